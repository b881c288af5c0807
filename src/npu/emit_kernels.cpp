#include "npu/emit_kernels.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tk {

void EmitKernels::put(KernelWork kernel) {
  kernel.stream = kernel.collective ? comm_stream : stream;
  step_->add(std::move(kernel));
}

int EmitKernels::weight(const std::string& name, std::int64_t bytes) {
  const auto [it, fresh] = weights_.try_emplace(name, 0);
  if (fresh) it->second = step_->tensor(TensorKind::weight, bytes);
  return it->second;
}

int EmitKernels::cache(const std::string& name, std::int64_t bytes) {
  // Micro-batches have sequences, so caches, of their own.
  const std::string key = cat(name, "@", stream);
  const auto [it, fresh] = caches_.try_emplace(key, 0);
  if (fresh) it->second = step_->tensor(TensorKind::state, bytes);
  return it->second;
}

int EmitKernels::linear(const std::string& module, int x, std::int64_t rows, std::int64_t k,
                        std::int64_t n, int weight_bits, int act_bits) {
  if (act_bits == 8) {
    const auto found = quantised_.find(x);
    if (found == quantised_.end()) {
      const int q = step_->tensor(TensorKind::activation, rows * k);
      vector("DynamicQuant", module, Family::quant, {x}, rows * k * 12, rows, q);
      quantised_[x] = q;
      x = q;
    } else {
      x = found->second;
    }
  }
  const int y = step_->tensor(TensorKind::activation, rows * n * (act_bits == 32 ? 4 : 2));
  KernelWork m;
  m.family = Family::matmul;
  m.type = act_bits == 8      ? "QuantBatchMatmulV3"
           : weight_bits < 16 ? "WeightQuantBatchMatmulV2"
                              : "MatMulV2";
  m.module = module;
  m.products = {{rows, n, k, 1}};
  m.bits = act_bits;
  m.gathered_mix = act_bits == 8 || weight_bits < 16;
  if (act_bits == 8) m.vector_bytes = static_cast<double>(rows * n) * 8;
  if (weight_bits < act_bits) m.vector_bytes += static_cast<double>(k * n) * 4;  // widened
  m.operands = {all_of(x, false), all_of(weight(module, k * n * weight_bits / 8), false),
                all_of(y, true)};
  put(std::move(m));
  return y;
}

void EmitKernels::per_head(const std::string& module, int x, std::int64_t heads, std::int64_t rows,
                           std::int64_t k, std::int64_t n, int y) {
  KernelWork m;
  m.family = Family::matmul;
  m.type = "TransposeBatchMatMul";
  m.module = module;
  m.products = {{rows, n, k, heads}};
  m.operands = {all_of(x, false), all_of(weight(module, heads * k * n * 2), false),
                all_of(y, true)};
  put(std::move(m));
}

int EmitKernels::grouped(const std::string& module, int x, const Spread& rows, std::int64_t experts,
                         std::int64_t k, std::int64_t n, int weight_bits, int act_bits) {
  const int y = step_->tensor(TensorKind::activation, rows.rows * n * 2);
  const int w = weight(module, experts * k * n * weight_bits / 8);
  KernelWork m;
  m.family = Family::grouped_matmul;
  m.type = "GroupedMatmul";
  m.module = module;
  const std::int64_t hit = std::clamp<std::int64_t>(rows.experts_hit, 1, experts);
  m.products = {{(rows.rows + hit - 1) / hit, n, k, hit}};
  m.bits = act_bits;
  m.gathered_mix = weight_bits < 16;
  if (act_bits == 8) m.vector_bytes = static_cast<double>(rows.rows * n) * 8;
  if (weight_bits < act_bits) m.vector_bytes += static_cast<double>(hit * k * n) * 4;
  m.operands = {all_of(x, false), {w, step_->bytes_of(w) / experts * hit, false}, all_of(y, true)};
  put(std::move(m));
  return y;
}

void EmitKernels::attention(const std::string& type, const std::string& module,
                            const std::vector<int>& in, int cache, int y, const AttentionSizes& s,
                            std::int64_t readers, double kv_bytes) {
  KernelWork k;
  k.family = Family::attention;
  k.type = type;
  k.module = module;
  const auto keys = std::max<std::int64_t>(1, std::llround(s.keys));
  // Keys are the free axis of both products, so that long sequences are split over cores.
  k.products = {{s.rows, keys, s.dim, s.groups}};
  if (s.v_dim > 0) k.products.push_back({s.rows, keys, s.v_dim, s.groups});
  k.vector_bytes = static_cast<double>(s.groups * s.rows) * s.keys * 4 * s.passes;
  k.bits = s.bits;
  for (const int t : in) k.operands.push_back(all_of(t, false));
  const auto read = static_cast<std::int64_t>(kv_bytes * static_cast<double>(readers));
  if (read > 0) k.operands.push_back({cache, std::min(read, step_->bytes_of(cache)), false});
  k.operands.push_back(all_of(y, true));
  put(std::move(k));
}

void EmitKernels::norm(const std::string& type, const std::string& module,
                       const std::vector<int>& in, std::int64_t rows, std::int64_t width, int y) {
  KernelWork k;
  k.family = Family::norm;
  k.type = type;
  k.module = module;
  k.vector_bytes = static_cast<double>(rows * width) * 4 * 5;
  k.parts = rows;
  for (const int t : in) k.operands.push_back(all_of(t, false));
  k.operands.push_back(all_of(y, true));
  put(std::move(k));
}

void EmitKernels::vector(const std::string& type, const std::string& module, Family family,
                         const std::vector<int>& in, std::int64_t vector_bytes, std::int64_t parts,
                         int y) {
  KernelWork k;
  k.family = family;
  k.type = type;
  k.module = module;
  k.vector_bytes = static_cast<double>(vector_bytes);
  k.parts = parts;
  for (const int t : in) k.operands.push_back(all_of(t, false));
  if (y < 0) y = step_->tensor(TensorKind::activation, 512);
  k.operands.push_back(all_of(y, true));
  put(std::move(k));
}

void EmitKernels::cache_write(const std::string& module, int x, int cache, std::int64_t bytes) {
  KernelWork k;
  k.family = Family::cache;
  k.type = "ScatterPaKvCache";
  k.module = module;
  k.operands = {{x, std::min(bytes, step_->bytes_of(x)), false},
                {cache, std::clamp<std::int64_t>(bytes, 1, step_->bytes_of(cache)), true}};
  put(std::move(k));
}

void EmitKernels::recurrent(const std::string& type, const std::string& module,
                            const std::vector<int>& in, int state, int y, std::int64_t state_bytes,
                            double vector_bytes) {
  KernelWork k;
  k.family = Family::pointwise;
  k.type = type;
  k.module = module;
  k.vector_bytes = vector_bytes;
  for (const int t : in) k.operands.push_back(all_of(t, false));
  k.operands.push_back({state, state_bytes, false});
  k.operands.push_back({state, state_bytes, true});
  k.operands.push_back(all_of(y, true));
  put(std::move(k));
}

void EmitKernels::gather(const std::string& type, const std::string& module, int table,
                         std::int64_t bytes, int y) {
  KernelWork k;
  k.family = Family::gather;
  k.type = type;
  k.module = module;
  k.operands = {{table, std::min(bytes, step_->bytes_of(table)), false}, all_of(y, true)};
  put(std::move(k));
}

void EmitKernels::copy(const std::string& type, const std::string& module, int x, int y,
                       std::int64_t bytes) {
  KernelWork k;
  k.family = Family::gather;
  k.type = type;
  k.module = module;
  k.operands = {{x, std::min(bytes, step_->bytes_of(x)), false},
                {y, std::min(bytes, step_->bytes_of(y)), true}};
  put(std::move(k));
}

int EmitKernels::add(const std::string& module, int a, int b, int y, std::int64_t elements) {
  vector("Add", module, Family::pointwise, {a, b}, elements * 4, 0, y);
  return y;
}

void EmitKernels::collective(sim::CollectiveKind kind, const std::string& module, int x,
                             std::int64_t degree, std::int64_t bytes) {
  if (degree <= 1) return;
  KernelWork k;
  k.family = Family::collective;
  k.module = module;
  switch (kind) {
    case sim::CollectiveKind::all_reduce:
      k.type = "hcom_allReduce_";
      break;
    case sim::CollectiveKind::reduce_scatter:
      k.type = "hcom_reduceScatter_";
      break;
    case sim::CollectiveKind::all_gather:
      k.type = "hcom_allGather_";
      break;
    default:
      k.type = "hcom_alltoall_";
      break;
  }
  sim::Collective c;
  c.kind = kind;
  c.group = step_->group(0, static_cast<std::int32_t>(degree));
  c.bytes = bytes;
  k.collective = c;
  k.operands = {all_of(x, false), all_of(x, true)};
  put(std::move(k));
}

void EmitKernels::exchange(sim::CollectiveKind kind, const std::string& module, int x,
                           std::int64_t ranks, std::int64_t bytes, double zipf, double to_first) {
  KernelWork k;
  k.family = Family::collective;
  k.module = module;
  const bool back = kind == sim::CollectiveKind::combine;
  k.type = back ? "MoeDistributeCombine" : "MoeDistributeDispatch";
  sim::Collective c;
  c.kind = kind;
  c.group = step_->group(0, static_cast<std::int32_t>(ranks));
  c.bytes = bytes;
  if (zipf > 0 || to_first > 0)
    c.traffic = step_->traffic(routed_bytes(ranks, bytes, zipf, back, to_first));
  k.collective = c;
  k.operands = {all_of(x, false), all_of(x, true)};
  put(std::move(k));
}

}  // namespace tk

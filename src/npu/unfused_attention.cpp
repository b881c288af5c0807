#include "npu/unfused_attention.h"

#include <algorithm>

#include "base/error.h"

namespace tk {

std::vector<KernelWork> unfused_attention(Step* step, const KernelWork& whole,
                                          std::int64_t scores) {
  TK_CHECK(whole.products.size() == 1, "an attention is one product");
  constexpr std::int64_t f32 = 4;
  const auto kernel = [&](Family family, const char* type, std::vector<Operand> operands) {
    KernelWork k;
    k.family = family;
    k.type = type;
    k.module = whole.module;
    k.place = whole.place;
    k.stream = whole.stream;
    k.bits = whole.bits;
    k.operands = std::move(operands);
    return k;
  };
  std::vector<KernelWork> out;
  std::vector<Operand> first;   // of the scores: queries and what was gathered first
  std::vector<Operand> second;  // of the sums: what was gathered last
  std::vector<Operand> results;
  for (const Operand& o : whole.operands) {
    if (o.write) {
      results.push_back(o);
    } else if (!step->is_state(o.tensor)) {
      first.push_back(o);
    } else {
      const int dense = step->tensor(TensorKind::activation, o.bytes);
      out.push_back(kernel(Family::gather, "Index", {o, {dense, o.bytes, true}}));
      second.assign(1, {dense, o.bytes, false});
      if (out.size() == 1) first.push_back(second.front());
    }
  }
  Product qk = whole.products.front();
  qk.n = std::max<std::int64_t>(1, qk.n / 2);
  Product pv = qk;
  std::swap(pv.n, pv.k);
  const std::int64_t bytes = scores * f32;
  const int raw = step->tensor(TensorKind::activation, bytes);
  const int weights = step->tensor(TensorKind::activation, bytes);
  first.push_back({raw, bytes, true});
  out.push_back(kernel(Family::matmul, "BatchMatMulV2", std::move(first)));
  out.back().products = {qk};
  out.push_back(kernel(Family::pointwise, "MaskedFill", {{raw, bytes, false}, {raw, bytes, true}}));
  out.back().vector_bytes = static_cast<double>(bytes);
  out.push_back(
      kernel(Family::pointwise, "SoftmaxV2", {{raw, bytes, false}, {weights, bytes, true}}));
  out.back().vector_bytes = std::max(whole.vector_bytes, static_cast<double>(bytes));
  second.push_back({weights, bytes, false});
  second.insert(second.end(), results.begin(), results.end());
  out.push_back(kernel(Family::matmul, "BatchMatMulV2", std::move(second)));
  out.back().products = {pv};
  out.back().in_shapes = whole.in_shapes;
  out.back().in_types = whole.in_types;
  out.back().out_shapes = whole.out_shapes;
  return out;
}

}  // namespace tk

#include "cpu/pack.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/file.h"
#include "cpu/kernels/linear.h"
#include "cpu/product.h"
#include "cpu/rows.h"

namespace tk {
namespace {

// Operators whose kernels take a packed weight; the weight is W [N, K], or [K, N], or one [K, N]
// for each expert.
struct Packable {
  std::string_view op;
  int input, rank;
  bool n_k, gated;
};
constexpr std::array packable_ops = {
    Packable{"aten.linear", 1, 2, true, false},
    Packable{"aten.mm", 1, 2, false, false},
    Packable{"aten.addmm", 2, 2, false, false},
    Packable{"aten.matmul", 1, 2, false, false},
    Packable{"tk.linear_glu", 1, 2, true, true},
    Packable{"npu.npu_grouped_matmul", 1, 3, false, false},
    Packable{"tk.grouped_linear_glu", 1, 3, false, true},
    Packable{"aten._grouped_mm", 1, 3, false, false},
    Packable{"transformers.grouped_mm_fallback", 1, 3, false, false},
};

const Packable* packable_op(const Node& n) {
  const auto* it = std::find_if(packable_ops.begin(), packable_ops.end(),
                                [&](const Packable& p) { return p.op == n.op->name; });
  return it == packable_ops.end() ? nullptr : it;
}

TensorView of_expert(const TensorView& w, std::int64_t e) {
  if (w.rank() == 2) return w;
  TensorView one = w;
  one.data = w.as<bf16>() + e * w.strides[0];
  one.shape = {w.shape[1], w.shape[2]};
  one.strides = {w.strides[1], w.strides[2]};
  return one;
}

}  // namespace

Tensor huge_memory(std::int64_t bytes) {
  constexpr std::size_t huge = std::size_t{2} << 20;
  const std::size_t size = (static_cast<std::size_t>(bytes) + huge - 1) / huge * huge + huge;
  void* const p = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    throw UserError("TK0500", cat("no memory for ", bytes >> 20, " MiB of packed weights"))
        .help("TOKAMAK_PACK=0 runs with the weights as they lie in the file");
  auto* const begin = static_cast<std::byte*>(p);
  const std::size_t skip = (huge - reinterpret_cast<std::uintptr_t>(p) % huge) % huge;
  madvise(begin + skip, size - huge, MADV_HUGEPAGE);  // advice
  Tensor t;
  t.data = begin + skip;
  t.dtype = DType::u8;
  t.shape = {bytes};
  t.strides = {1};
  t.owner = std::shared_ptr<void>(p, [size](void* q) { munmap(q, size); });
  return t;
}

bool weight_is_n_k(const Node& node) {
  const Packable* p = packable_op(node);
  TK_CHECK(p != nullptr, node.op->name, " takes no packed weight");
  return p->n_k;
}

WeightPacker::WeightPacker(Team* team, const Weights& weights) : team_(team) {
  std::string identity;
  for (const auto& [name, t] : weights) {
    const MappedPlace place = mapped_place(t.data);
    if (place.stamp.empty()) return;
    identity += cat(name, " ", place.stamp, " ", place.offset, " ", t.shape.str(), t.strides.str(),
                    static_cast<int>(t.dtype), "\n");
  }
  file_ = PackedFile::find(identity);
}

Tensor WeightPacker::room(std::int64_t bytes) {
  constexpr std::int64_t chunk = 64 << 20;
  const std::int64_t size = (bytes + 63) / 64 * 64;
  if (size > chunk / 2) return huge_memory(size);
  if (chunk_.data == nullptr || used_ + size > chunk) {
    chunk_ = huge_memory(chunk);
    used_ = 0;
  }
  Tensor t = chunk_;
  t.data = chunk_.as<std::byte>() + used_;
  used_ += size;
  return t;
}

void WeightPacker::pack(const TensorView& w, bool n_k, bf16* out) const {
  const std::int64_t experts = w.rank() == 3 ? w.shape[0] : 1;
  WeightView v{};
  weight_view(of_expert(w, 0), n_k, &v);
  const std::int64_t panels = v.n / kernels::packed_columns;
  team_->run([&](int thread) {
    const kernels::Range mine = kernels::share(experts * panels, 1, thread, team_->size());
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const std::int64_t e = i / panels;
      const std::int64_t panel = i % panels;
      kernels::pack_weight(of_expert(w, e).as<bf16>(), v.layout, v.k, v.stride, panel, panel + 1,
                           out + e * v.n * v.k);
    }
  });
}

Tensor WeightPacker::operator()(const ConstantInput& c) {
  const Packable* p = packable_op(c.node);
  if (p == nullptr || c.input != p->input) return {};
  const Type& type = c.node.in(c.input)->type;
  if (type.dtype != DType::bf16 || type.rank() != p->rank) return {};
  for (int i = 0; i < type.rank(); ++i)
    if (!type.dim(i).is_const()) return {};
  const int row = p->rank - 2;
  const std::int64_t n = type.dim(p->n_k ? row : row + 1).value();
  const std::int64_t k = type.dim(p->n_k ? row + 1 : row).value();
  if (!kernels::packable(type.dtype, n, k)) return {};
  if (p->gated && n % (2 * kernels::packed_columns) != 0) return {};
  // Types that the kernels refuse stay with the reference, which wants the weight as it is.
  for (const Value* v : c.node.inputs)
    if (v != nullptr && v != c.node.in(c.input) && !kernel_float(v->type.dtype) &&
        v->type.dtype != DType::i64 && v->type.dtype != DType::i32)
      return {};
  if (!kernel_float(c.node.out(0)->type.dtype)) return {};
  const std::string key = cat(p->n_k ? "nk " : "kn ", c.key);
  auto it = packed_.find(key);
  if (it == packed_.end()) {
    const Dims shape = concrete(type.shape, {});
    const std::int64_t bytes = shape.numel() * 2;
    Tensor t;
    if (file_ != nullptr) t = file_->map(key, bytes, team_);
    const bool found = t.data != nullptr;
    if (!found) t = room(bytes);
    t.dtype = type.dtype;
    t.shape = shape;
    t.strides = contiguous_strides(shape);
    if (!found) {
      const Tensor w = c.value();
      WeightView v{};
      if (!weight_view(of_expert(w, 0), p->n_k, &v)) return {};
      pack(w, p->n_k, t.as<bf16>());
      release_pages(w.data, static_cast<std::size_t>(w.bytes()));
      news_ = true;
    }
    bytes_ += t.bytes();
    it = packed_.emplace(key, std::move(t)).first;
  }
  return it->second;
}

void WeightPacker::save() {
  constexpr std::int64_t worth = 32 << 20;  // less is packed in no time
  if (file_ != nullptr && news_ && bytes_ >= worth) file_->write(packed_);
  news_ = false;
}

void unpack_weight(const TensorView& packed, bool n_k, void* out) {
  const int row = packed.rank() - 2;
  const std::int64_t rows = packed.shape[row], cols = packed.shape[row + 1];
  const std::int64_t depth = n_k ? cols : rows, matrix = rows * cols;
  for (std::int64_t e = 0; e < packed.numel() / matrix; ++e) {
    const bf16* from = packed.as<bf16>() + e * matrix;
    bf16* to = static_cast<bf16*>(out) + e * matrix;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j)
        to[i * cols + j] = from[kernels::packed_index(n_k ? i : j, n_k ? j : i, depth)];
  }
}

}  // namespace tk

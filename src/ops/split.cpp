// One tensor into several, as views.
#include "ops/ops.h"
#include "ops/view.h"

namespace tk::ops {
namespace {

std::vector<Type> parts(const Args& args, int dim, const std::vector<Sym>& sizes) {
  if (sizes.size() > 100000) args.fail(cat("makes too many parts: ", sizes.size()));
  std::vector<Type> out;
  for (const Sym& s : sizes) {
    out.push_back(args.in(0));
    out.back().shape[static_cast<std::size_t>(dim)] = s;
  }
  return out;
}

// Parts of `size` each, the last one smaller when it doesn't divide n.
std::vector<Sym> equal_parts(const Args& args, const Sym& n, const Sym& size) {
  if (size.is_const() && size.value() < 1 && !n.is(0)) args.fail("needs a positive size");
  if (const auto count = exact_div(n, size); count && count->is_const()) {
    if (count->value() > 100000) args.fail(cat("makes too many parts: ", count->value()));
    return std::vector<Sym>(static_cast<std::size_t>(std::max<std::int64_t>(count->value(), 1)),
                            n.is(0) ? Sym(0) : size);
  }
  if (!n.is_const() || !size.is_const())
    args.fail(cat("can't tell how many parts of ", size.str(), " are in ", n.str()));
  const std::int64_t count = (n.value() + size.value() - 1) / size.value();
  if (count > 100000) args.fail(cat("makes too many parts: ", count));
  std::vector<Sym> out(static_cast<std::size_t>(count), size);
  out.back() = n - size * (count - 1);
  return out;
}

std::vector<Type> sized_parts(const Args& args, int dim, const SymDims& sizes) {
  Sym sum = 0;
  for (const Sym& s : sizes) {
    if (s.is_const() && s.value() < 0) args.fail("needs sizes that are not negative");
    sum = sum + s;
  }
  const Sym& n = args.in(0).dim(dim);
  if (!may_be_equal(sum, n))
    args.fail(cat("needs sizes that sum to ", n.str(), ", got ", str(sizes)));
  return parts(args, dim, sizes);
}

std::vector<Type> infer_split(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  const int dim = axis(args, "dim", args.in(0).rank());
  const Attr* a = args.attr("split_size");
  if (a != nullptr && std::holds_alternative<Sym>(*a))
    return parts(args, dim, equal_parts(args, args.in(0).dim(dim), std::get<Sym>(*a)));
  // One size is that of every part: split.Tensor has an int where split.sizes has a list.
  const SymDims sizes = args.syms("split_size");
  if (sizes.size() == 1) return parts(args, dim, equal_parts(args, args.in(0).dim(dim), sizes[0]));
  return sized_parts(args, dim, sizes);
}

std::vector<Type> infer_split_with_sizes(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  const int dim = axis(args, "dim", args.in(0).rank());
  return sized_parts(args, dim, args.syms("split_sizes"));
}

std::vector<Type> infer_chunk(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  const int dim = axis(args, "dim", args.in(0).rank());
  const Sym& n = args.in(0).dim(dim);
  const std::int64_t chunks = args.i64("chunks");
  if (chunks < 1 || chunks > 100000) args.fail(cat("can't make ", chunks, " chunks"));
  if (n.is(0)) return parts(args, dim, std::vector<Sym>(static_cast<std::size_t>(chunks), 0));
  if (n.is_const())
    return parts(args, dim, equal_parts(args, n, (n.value() + chunks - 1) / chunks));
  const auto size = exact_div(n, chunks);
  if (!size) args.fail(cat("can't tell the sizes of ", chunks, " chunks of ", n.str()));
  return parts(args, dim, std::vector<Sym>(static_cast<std::size_t>(chunks), *size));
}

// Cut before the given indices, or into parts of which the first ones may be larger by 1.
std::vector<Type> infer_tensor_split(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  const int dim = axis(args, "dim", args.in(0).rank());
  const Sym& n = args.in(0).dim(dim);
  if (args.has_attr("sections") == args.has_attr("indices")) args.fail("needs sections or indices");
  if (!n.is_const()) args.fail(cat("can't tell the sizes of the parts of ", n.str()));
  std::vector<Sym> sizes;
  if (args.has_attr("sections")) {
    const std::int64_t sections = args.i64("sections");
    if (sections < 1 || sections > 100000) args.fail(cat("can't make ", sections, " parts"));
    for (std::int64_t i = 0; i < sections; ++i)
      sizes.push_back(n.value() / sections + (i < n.value() % sections ? 1 : 0));
    return parts(args, dim, sizes);
  }
  std::int64_t at = 0;
  for (std::int64_t i : args.ints("indices")) {
    const std::int64_t end = std::clamp<std::int64_t>(i < 0 ? i + n.value() : i, 0, n.value());
    if (end < at) args.fail("needs indices in order");
    sizes.push_back(end - at);
    at = end;
  }
  sizes.push_back(n.value() - at);
  return parts(args, dim, sizes);
}

bool view_parts(const EvalArgs& args, std::span<TensorView> outputs) {
  const TensorView& t = args.in(0);
  const int dim = axis(args.i64("dim"), t.rank());
  std::int64_t at = 0;
  for (int i = 0; i < args.n_outputs(); ++i) {
    TensorView& out = outputs[static_cast<std::size_t>(i)];
    out = moved(t, at * t.strides[dim]);
    out.shape = args.out(i).shape;
    at += out.shape[dim];
  }
  need_shape(args, at == t.shape[dim], t);
  return true;
}

std::vector<Type> infer_unbind(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  Type t = args.in(0);
  const int dim = axis(args, "dim", t.rank());
  const Sym n = t.dim(dim);
  if (!n.is_const()) args.fail(cat("can't tell how many parts ", n.str(), " are"));
  if (n.value() > 100000) args.fail(cat("makes too many parts: ", n.value()));
  t.shape.erase(t.shape.begin() + dim);
  return std::vector<Type>(static_cast<std::size_t>(n.value()), t);
}

bool view_unbind(const EvalArgs& args, std::span<TensorView> outputs) {
  const TensorView& t = args.in(0);
  const int dim = axis(args.i64("dim"), t.rank());
  need_shape(args, t.shape[dim] == args.n_outputs(), t);
  for (int i = 0; i < args.n_outputs(); ++i) {
    TensorView& out = outputs[static_cast<std::size_t>(i)];
    out = moved(t, i * t.strides[dim]);
    out.shape.erase(dim);
    out.strides.erase(dim);
  }
  return true;
}

}  // namespace

const OpDef aten_split{.name = "aten.split",
                       .schema = "(Tensor self, int[] split_size, int dim=0) -> Tensor[]",
                       .doc = "parts of one size (the last may be smaller), or of the sizes given",
                       .infer = infer_split,
                       .eval = eval_view<view_parts>,
                       .view = view_parts};
const OpDef aten_split_with_sizes{
    .name = "aten.split_with_sizes",
    .schema = "(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]",
    .doc = "parts of the sizes given",
    .infer = infer_split_with_sizes,
    .eval = eval_view<view_parts>,
    .view = view_parts};
const OpDef aten_chunk{.name = "aten.chunk",
                       .schema = "(Tensor self, int chunks, int dim=0) -> Tensor[]",
                       .doc = "that many parts, the last may be smaller",
                       .infer = infer_chunk,
                       .eval = eval_view<view_parts>,
                       .view = view_parts};
const OpDef aten_tensor_split{
    .name = "aten.tensor_split",
    .schema = "(Tensor self, int? sections=None, int[]? indices=None, int dim=0) -> Tensor[]",
    .doc = "that many parts, the first ones larger by 1 where needed; or cut before indices",
    .infer = infer_tensor_split,
    .eval = eval_view<view_parts>,
    .view = view_parts};
const OpDef aten_unbind{.name = "aten.unbind",
                        .schema = "(Tensor self, int dim=0) -> Tensor[]",
                        .doc = "the parts at each index of a dim, which goes",
                        .infer = infer_unbind,
                        .eval = eval_view<view_unbind>,
                        .view = view_unbind};

}  // namespace tk::ops

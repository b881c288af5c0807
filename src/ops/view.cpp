// Parts of a tensor and other orders of its axes: views.
#include "ops/view.h"

#include "ops/ops.h"

namespace tk::ops {
namespace {

Type without_axis(const Type& t, int dim) {
  Type out = t;
  out.shape.erase(out.shape.begin() + dim);
  return out;
}

// ---- select, slice, narrow

std::vector<Type> infer_select(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  const Type& t = args.in(0);
  const int dim = axis(args, "dim", t.rank());
  const Sym index = args.sym("index");
  const Sym& n = t.dim(dim);
  if (index.is_const() && n.is_const() &&
      (index.value() < -n.value() || index.value() >= n.value()))
    args.fail(cat("needs an index below ", n.value(), ", got ", index.value()));
  return {without_axis(t, dim)};
}

bool view_select(const EvalArgs& args, std::span<TensorView> outputs) {
  const TensorView& t = args.in(0);
  const int dim = axis(args.i64("dim"), t.rank());
  const std::int64_t index = checked_index(args, args.i64("index"), t.shape[dim], true);
  outputs[0] = moved(t, index * t.strides[dim]);
  outputs[0].shape.erase(dim);
  outputs[0].strides.erase(dim);
  return true;
}

std::int64_t clamp_bound(std::int64_t v, std::int64_t n) {
  return std::clamp<std::int64_t>(v < 0 ? v + n : v, 0, n);
}

bool view_slice(const EvalArgs& args, std::span<TensorView> outputs) {
  const TensorView& t = args.in(0);
  const int dim = axis(args.i64("dim"), t.rank());
  const std::int64_t n = t.shape[dim];
  const std::int64_t step = args.i64("step");
  const std::int64_t start = args.has_attr("start") ? clamp_bound(args.i64("start"), n) : 0;
  const std::int64_t end = args.has_attr("end") ? clamp_bound(args.i64("end"), n) : n;
  outputs[0] = moved(t, start * t.strides[dim]);
  outputs[0].shape[dim] = end > start ? (end - start - 1) / step + 1 : 0;
  if (step < n) outputs[0].strides[dim] = t.strides[dim] * step;  // else it is never used
  need_shape(args, outputs[0].shape == args.out().shape, t);
  return true;
}

std::vector<Type> infer_narrow(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  Type t = args.in(0);
  const int dim = axis(args, "dim", t.rank());
  const Sym& n = t.dim(dim);
  const Sym start = args.sym("start");
  const Sym length = args.sym("length");
  const Sym end = start.is_const() && start.value() < 0 ? n + start + length : start + length;
  const Sym room = n - end;
  if ((room.is_const() && room.value() < 0) || (length.is_const() && length.value() < 0))
    args.fail(cat("needs ", length.str(), " elements from ", start.str(), " on, of ", n.str()));
  t.shape[static_cast<std::size_t>(dim)] = length;
  return {t};
}

bool view_narrow(const EvalArgs& args, std::span<TensorView> outputs) {
  const TensorView& t = args.in(0);
  const int dim = axis(args.i64("dim"), t.rank());
  const std::int64_t n = t.shape[dim];
  std::int64_t start = args.i64("start");
  const std::int64_t length = args.i64("length");
  if (start < 0) start += n;
  if (start < 0 || start > n) bad_index(args, args.i64("start"), n, "start");
  if (length < 0 || length > n - start) bad_index(args, length, n - start + 1, "length");
  outputs[0] = moved(t, start * t.strides[dim]);
  outputs[0].shape[dim] = length;
  return true;
}

// ---- orders of axes

template <typename Order>
Type permuted(const Type& t, const Order& order) {
  Type out{t.dtype, {}};
  for (int i : order) out.shape.push_back(t.dim(i));
  return out;
}

bool view_permuted(const TensorView& t, const std::vector<int>& order, TensorView* out) {
  *out = t;
  for (int i = 0; i < t.rank(); ++i) {
    const int from = order[static_cast<std::size_t>(i)];
    out->shape[i] = t.shape[from];
    out->strides[i] = t.strides[from];
  }
  return true;
}

std::vector<int> identity(int rank) {
  std::vector<int> order;
  for (int i = 0; i < rank; ++i) order.push_back(i);
  return order;
}

std::vector<int> swapped(int rank, int a, int b) {
  std::vector<int> order = identity(rank);
  if (rank > 0) std::swap(order[static_cast<std::size_t>(a)], order[static_cast<std::size_t>(b)]);
  return order;
}

std::vector<Type> infer_transpose(const Args& args) {
  const Type& t = args.in(0);
  const int a = axis(args, "dim0", t.rank());
  return {permuted(t, swapped(t.rank(), a, axis(args, "dim1", t.rank())))};
}
bool view_transpose(const EvalArgs& args, std::span<TensorView> outputs) {
  const int rank = args.in(0).rank();
  return view_permuted(args.in(0),
                       swapped(rank, axis(args.i64("dim0"), rank), axis(args.i64("dim1"), rank)),
                       outputs.data());
}

std::vector<Type> infer_swapaxes(const Args& args) {
  const Type& t = args.in(0);
  const int a = axis(args, "axis0", t.rank());
  return {permuted(t, swapped(t.rank(), a, axis(args, "axis1", t.rank())))};
}
bool view_swapaxes(const EvalArgs& args, std::span<TensorView> outputs) {
  const int rank = args.in(0).rank();
  return view_permuted(args.in(0),
                       swapped(rank, axis(args.i64("axis0"), rank), axis(args.i64("axis1"), rank)),
                       outputs.data());
}

std::vector<Type> infer_t(const Args& args) {
  need_rank(args, 0, 0, 2);
  const int rank = args.in(0).rank();
  return {permuted(args.in(0), swapped(rank, 0, std::max(rank - 1, 0)))};
}
bool view_t(const EvalArgs& args, std::span<TensorView> outputs) {
  const int rank = args.in(0).rank();
  return view_permuted(args.in(0), swapped(rank, 0, std::max(rank - 1, 0)), outputs.data());
}

std::vector<Type> infer_mt(const Args& args) {
  need_rank(args, 0, 2, max_rank);
  const int rank = args.in(0).rank();
  return {permuted(args.in(0), swapped(rank, rank - 2, rank - 1))};
}
bool view_mt(const EvalArgs& args, std::span<TensorView> outputs) {
  const int rank = args.in(0).rank();
  return view_permuted(args.in(0), swapped(rank, rank - 2, rank - 1), outputs.data());
}

std::vector<Type> infer_permute(const Args& args) {
  const Type& t = args.in(0);
  const auto dims = args.ints("dims");
  if (static_cast<int>(dims.size()) != t.rank())
    args.fail(cat("needs ", t.rank(), " dims, got ", dims.size()));
  if (t.rank() == 0) return {t};
  return {permuted(t, axes(args, "dims", t.rank()))};
}
bool view_permute(const EvalArgs& args, std::span<TensorView> outputs) {
  return view_permuted(args.in(0), axes(args, "dims", args.in(0).rank()), outputs.data());
}

// Source axes go to their destinations, the others fill up in order.
std::vector<int> movedim_order(int rank, const std::vector<int>& from, const std::vector<int>& to) {
  std::vector<int> order(static_cast<std::size_t>(rank), -1);
  for (std::size_t i = 0; i < from.size(); ++i) order[static_cast<std::size_t>(to[i])] = from[i];
  int next = 0;
  for (int& o : order) {
    if (o >= 0) continue;
    while (std::find(from.begin(), from.end(), next) != from.end()) ++next;
    o = next++;
  }
  return order;
}
std::vector<Type> infer_movedim(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  const Type& t = args.in(0);
  const auto from = axes(args, "source", t.rank());
  const auto to = axes(args, "destination", t.rank());
  if (from.size() != to.size()) args.fail("needs as many destinations as sources");
  return {permuted(t, movedim_order(t.rank(), from, to))};
}
bool view_movedim(const EvalArgs& args, std::span<TensorView> outputs) {
  const int rank = args.in(0).rank();
  return view_permuted(
      args.in(0), movedim_order(rank, axes(args, "source", rank), axes(args, "destination", rank)),
      outputs.data());
}

// ---- expand

std::vector<Type> expanded(const Args& args, SymDims sizes) {
  const Type& t = args.in(0);
  if (sizes.size() < t.shape.size())
    args.fail(cat("needs at least ", t.rank(), " sizes, got ", str(sizes)));
  const std::size_t lead = sizes.size() - t.shape.size();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Sym& s = sizes[i];
    if (s.is(-1) && i >= lead) s = t.shape[i - lead];
    if (s.is_const() && s.value() < 0) args.fail(cat("can't make a size of ", s.str()));
  }
  need_broadcastable(args, t.shape, sizes, "a tensor");
  return {{t.dtype, sizes}};
}
std::vector<Type> infer_expand(const Args& args) { return expanded(args, args.syms("size")); }
std::vector<Type> infer_expand_as(const Args& args) { return expanded(args, args.in(1).shape); }
bool view_expand(const EvalArgs& args, std::span<TensorView> outputs) {
  outputs[0] = expand(args.in(0), args.out().shape);
  return true;
}

// ---- diagonal, unfold

std::vector<Type> infer_diagonal(const Args& args) {
  need_rank(args, 0, 2, max_rank);
  const Type& t = args.in(0);
  const int a = axis(args, "dim1", t.rank());
  const int b = axis(args, "dim2", t.rank());
  if (a == b) args.fail("needs two different dims");
  const std::int64_t offset = args.i64("offset");
  const Sym rows = offset < 0 ? t.dim(a) + offset : t.dim(a);
  const Sym columns = offset > 0 ? t.dim(b) - offset : t.dim(b);
  Type out = without_axis(t, std::max(a, b));
  out = without_axis(out, std::min(a, b));
  out.shape.push_back(larger(smaller(rows, columns), 0));
  return {out};
}
bool view_diagonal(const EvalArgs& args, std::span<TensorView> outputs) {
  const TensorView& t = args.in(0);
  const int a = axis(args.i64("dim1"), t.rank());
  const int b = axis(args.i64("dim2"), t.rank());
  const std::int64_t offset = args.i64("offset");
  const std::int64_t n = args.out().shape.back();
  TensorView v = t;
  if (n > 0) v = moved(t, offset < 0 ? -offset * t.strides[a] : offset * t.strides[b]);
  const std::int64_t stride = t.strides[a] + t.strides[b];
  v.shape.erase(std::max(a, b));
  v.shape.erase(std::min(a, b));
  v.strides.erase(std::max(a, b));
  v.strides.erase(std::min(a, b));
  v.shape.push_back(n);
  v.strides.push_back(stride);
  outputs[0] = v;
  return true;
}

std::vector<Type> infer_unfold(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  Type t = args.in(0);
  const int dim = axis(args, "dimension", t.rank());
  const std::int64_t size = args.i64("size");
  const std::int64_t step = args.i64("step");
  Sym& n = t.shape[static_cast<std::size_t>(dim)];
  if (size < 0 || step < 1 || (n.is_const() && n.value() < size))
    args.fail(cat("needs a size within ", n.str(), " and a positive step"));
  n = floordiv(n - size, step) + 1;
  t.shape.push_back(size);
  return {t};
}
bool view_unfold(const EvalArgs& args, std::span<TensorView> outputs) {
  const TensorView& t = args.in(0);
  const int dim = axis(args.i64("dimension"), t.rank());
  need_shape(args, t.shape[dim] >= args.i64("size"), t);
  outputs[0] = t;
  outputs[0].shape = args.out().shape;
  if (args.out().shape[dim] > 1) outputs[0].strides[dim] = t.strides[dim] * args.i64("step");
  outputs[0].strides.push_back(t.strides[dim]);
  return true;
}

}  // namespace

std::vector<Type> infer_slice(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  Type t = args.in(0);
  const int dim = axis(args, "dim", t.rank());
  const std::int64_t step = args.i64("step");
  if (step < 1) args.fail(cat("needs a positive step, got ", step));
  Sym& n = t.shape[static_cast<std::size_t>(dim)];
  const auto bound = [&](std::string_view name, const Sym& otherwise) -> Sym {
    if (!args.has_attr(name)) return otherwise;
    const Sym v = args.sym(name);
    if (v.is_const() && v.value() < 0) return larger(n + v, 0);
    if (v.is(INT64_MAX)) return n;  // how torch.export writes "to the end"
    // A symbolic bound is taken as counted from the start; running checks it.
    return smaller(v.is_const() ? v : larger(v, 0), n);
  };
  const Sym start = bound("start", 0);
  const Sym end = bound("end", n);
  const Sym length = start.is(0) ? end : larger(end - start, 0);
  n = step == 1 ? length : floordiv(length + (step - 1), step);
  return {t};
}

const OpDef aten_select{.name = "aten.select",
                        .schema = "(Tensor self, int dim, int index) -> Tensor",
                        .doc = "the part at one index; the dim goes",
                        .infer = infer_select,
                        .eval = eval_view<view_select>,
                        .view = view_select};
const OpDef aten_slice{.name = "aten.slice",
                       .schema =
                           "(Tensor self, int dim=0, int? start=None, int? end=None, "
                           "int step=1) -> Tensor",
                       .doc = "self[start:end:step] of one dim, bounds as in Python",
                       .infer = infer_slice,
                       .eval = eval_view<view_slice>,
                       .view = view_slice};
const OpDef aten_narrow{.name = "aten.narrow",
                        .schema = "(Tensor self, int dim, int start, int length) -> Tensor",
                        .doc = "length elements of one dim from start on",
                        .infer = infer_narrow,
                        .eval = eval_view<view_narrow>,
                        .view = view_narrow};
const OpDef aten_transpose{.name = "aten.transpose",
                           .schema = "(Tensor self, int dim0, int dim1) -> Tensor",
                           .doc = "two dims swapped",
                           .infer = infer_transpose,
                           .eval = eval_view<view_transpose>,
                           .view = view_transpose};
const OpDef aten_swapaxes{.name = "aten.swapaxes",
                          .schema = "(Tensor self, int axis0, int axis1) -> Tensor",
                          .doc = "two dims swapped",
                          .infer = infer_swapaxes,
                          .eval = eval_view<view_swapaxes>,
                          .view = view_swapaxes};
const OpDef aten_t{.name = "aten.t",
                   .schema = "(Tensor self) -> Tensor",
                   .doc = "a matrix transposed",
                   .infer = infer_t,
                   .eval = eval_view<view_t>,
                   .view = view_t};
const OpDef aten_numpy_t{.name = "aten.numpy_T",
                         .schema = "(Tensor self) -> Tensor",
                         .doc = "a matrix transposed",
                         .infer = infer_t,
                         .eval = eval_view<view_t>,
                         .view = view_t};
const OpDef aten_mt{.name = "aten.mT",
                    .schema = "(Tensor self) -> Tensor",
                    .doc = "the last two dims swapped",
                    .infer = infer_mt,
                    .eval = eval_view<view_mt>,
                    .view = view_mt};
const OpDef aten_permute{.name = "aten.permute",
                         .schema = "(Tensor self, int[] dims) -> Tensor",
                         .doc = "the dims in another order",
                         .infer = infer_permute,
                         .eval = eval_view<view_permute>,
                         .view = view_permute};
const OpDef aten_movedim{.name = "aten.movedim",
                         .schema = "(Tensor self, int[] source, int[] destination) -> Tensor",
                         .doc = "dims moved to other places, the rest in order",
                         .infer = infer_movedim,
                         .eval = eval_view<view_movedim>,
                         .view = view_movedim};
const OpDef aten_expand{.name = "aten.expand",
                        .schema = "(Tensor self, int[] size, *, bool implicit=false) -> Tensor",
                        .doc = "dims of size 1 repeated; -1 keeps a size",
                        .infer = infer_expand,
                        .eval = eval_view<view_expand>,
                        .view = view_expand};
const OpDef aten_expand_as{.name = "aten.expand_as",
                           .schema = "(Tensor self, Tensor other) -> Tensor",
                           .doc = "dims of size 1 repeated to the shape of other",
                           .infer = infer_expand_as,
                           .eval = eval_view<view_expand>,
                           .view = view_expand};
const OpDef aten_diagonal{.name = "aten.diagonal",
                          .schema = "(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor",
                          .doc = "the diagonal of two dims, as a last dim",
                          .infer = infer_diagonal,
                          .eval = eval_view<view_diagonal>,
                          .view = view_diagonal};
const OpDef aten_unfold{.name = "aten.unfold",
                        .schema = "(Tensor self, int dimension, int size, int step) -> Tensor",
                        .doc = "windows of one dim, their elements as a last dim",
                        .infer = infer_unfold,
                        .eval = eval_view<view_unfold>,
                        .view = view_unfold};

}  // namespace tk::ops

// Several tensors into one, and one repeated, padded, turned.
#include "ops/ops.h"
#include "ops/view.h"

namespace tk::ops {
namespace {

// The old rule of cat: a tensor of shape [0] joins with anything.
bool is_nothing(const SymDims& shape) { return shape.size() == 1 && shape[0].is(0); }
bool is_nothing(const Dims& shape) { return shape.size() == 1 && shape[0] == 0; }

DType common_dtype(const Args& args) {
  Promotion p;
  for (int i = 0; i < args.n_inputs(); ++i) {
    if (!args.has(i)) args.fail("needs tensors");
    p.tensor(args.in(i).dtype, args.in(i).rank());
  }
  return p.result();
}

std::vector<Type> infer_joined(const Args& args, std::int64_t along) {
  int first = 0;
  while (first + 1 < args.n_inputs() && is_nothing(args.in(first).shape)) ++first;
  need_rank(args, first, 1, max_rank);
  Type out{common_dtype(args), args.in(first).shape};
  const int dim = axis(args, along, out.rank());
  Sym sum = 0;
  for (int i = 0; i < args.n_inputs(); ++i) {
    const Type& t = args.in(i);
    if (is_nothing(t.shape)) continue;
    bool fits = t.rank() == out.rank();
    for (int k = 0; fits && k < t.rank(); ++k) fits = k == dim || t.dim(k) == out.dim(k);
    if (!fits)
      args.fail(cat("needs tensors that differ in dim ", dim, " only, got ", args.in(first).str(),
                    " and ", t.str()));
    sum = sum + t.dim(dim);
  }
  out.shape[static_cast<std::size_t>(dim)] = sum;
  return {out};
}

std::vector<Type> infer_cat(const Args& args) {
  if (args.n_inputs() == 0) args.fail("needs a tensor");
  return infer_joined(args, args.i64("dim"));
}

void join(const EvalArgs& args, int dim) {
  const TensorView& out = args.out();
  std::int64_t at = 0;
  for (int i = 0; i < args.n_inputs(); ++i) {
    const TensorView& t = args.in(i);
    if (is_nothing(t.shape) && out.rank() != 1) continue;
    need_shape(args, at + t.shape[dim] <= out.shape[dim], t);
    TensorView part = moved(out, at * out.strides[dim]);
    part.shape[dim] = t.shape[dim];
    need_shape(args, part.shape == t.shape, t);
    cast(part, t);
    at += t.shape[dim];
  }
  need_shape(args, at == out.shape[dim], args.in(0));
}

void eval_cat(const EvalArgs& args) { join(args, axis(args.i64("dim"), args.out().rank())); }

std::vector<Type> infer_stack(const Args& args) {
  if (args.n_inputs() == 0) args.fail("needs a tensor");
  Type out{common_dtype(args), args.in(0).shape};
  for (int i = 1; i < args.n_inputs(); ++i)
    if (args.in(i).shape != out.shape)
      args.fail(
          cat("needs tensors of one shape, got ", args.in(0).str(), " and ", args.in(i).str()));
  const int dim = axis(args, args.i64("dim"), out.rank() + 1);
  out.shape.insert(out.shape.begin() + dim, Sym(args.n_inputs()));
  return {out};
}

void eval_stack(const EvalArgs& args) {
  const TensorView& out = args.out();
  const int dim = axis(args.i64("dim"), out.rank());
  for (int i = 0; i < args.n_inputs(); ++i) {
    TensorView part = moved(out, i * out.strides[dim]);
    part.shape.erase(dim);
    part.strides.erase(dim);
    need_shape(args, part.shape == args.in(i).shape, args.in(i));
    cast(part, args.in(i));
  }
}

std::vector<Type> infer_hstack(const Args& args) {
  if (args.n_inputs() == 0) args.fail("needs a tensor");
  return infer_joined(args, args.in(0).rank() == 1 ? 0 : 1);
}
void eval_hstack(const EvalArgs& args) { join(args, args.out().rank() == 1 ? 0 : 1); }

// ---- repetition

SymDims repeated(const Args& args, const SymDims& shape, SymDims repeats) {
  if (repeats.size() < shape.size())
    args.fail(cat("needs at least ", shape.size(), " repeats, got ", str(repeats)));
  const std::size_t lead = repeats.size() - shape.size();
  for (std::size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i].is_const() && repeats[i].value() < 0)
      args.fail(cat("needs repeats that are not negative, got ", str(repeats)));
    if (i >= lead) repeats[i] = repeats[i] * shape[i - lead];
  }
  return repeats;
}

std::vector<Type> infer_repeat(const Args& args) {
  return {{args.in(0).dtype, repeated(args, args.in(0).shape, args.syms("repeats"))}};
}
std::vector<Type> infer_tile(const Args& args) {
  SymDims repeats = args.syms("dims");
  const Type& t = args.in(0);
  while (repeats.size() < t.shape.size()) repeats.insert(repeats.begin(), Sym(1));
  return {{t.dtype, repeated(args, t.shape, repeats)}};
}

// Copies the input to every place of the grid that the output is.
void eval_repeat(const EvalArgs& args) {
  const TensorView& out = args.out();
  if (out.numel() == 0) return;
  TensorView t = args.in(0);
  while (t.rank() < out.rank()) {
    t.shape.insert(0, 1);
    t.strides.insert(0, 0);
  }
  Dims counts = out.shape;
  Dims steps = out.strides;
  for (int i = 0; i < out.rank(); ++i) {
    need_shape(args, out.shape[i] % t.shape[i] == 0, args.in(0));
    counts[i] = out.shape[i] / t.shape[i];
    steps[i] = out.strides[i] * t.shape[i];
  }
  for_blocks<1>(counts, {steps}, [&](const auto& at, const auto& step, int n) {
    for (int i = 0; i < n; ++i) {
      TensorView part = moved(out, at[0] + i * step[0]);
      part.shape = t.shape;
      copy_into(part, t);
    }
  });
}

std::vector<Type> infer_repeat_interleave(const Args& args) {
  Type t = args.in(0);
  const Sym repeats = args.sym("repeats");
  if (repeats.is_const() && repeats.value() < 0) args.fail("needs repeats that are not negative");
  if (!args.has_attr("dim")) return {{t.dtype, {t.numel() * repeats}}};
  need_rank(args, 0, 1, max_rank);
  Sym& n = t.shape[static_cast<std::size_t>(axis(args, "dim", t.rank()))];
  n = n * repeats;
  return {t};
}

void eval_repeat_interleave(const EvalArgs& args) {
  const TensorView& out = args.out();
  Tensor flat;
  TensorView t = args.in(0);
  int dim = 0;
  if (args.has_attr("dim")) {
    dim = axis(args.i64("dim"), t.rank());
  } else {
    flat = contiguous(t);
    TK_CHECK(reshape_view(flat, {t.numel()}, &t));
  }
  const std::int64_t repeats = args.i64("repeats");
  need_shape(args, out.shape[dim] == t.shape[dim] * repeats, args.in(0));
  for (std::int64_t r = 0; r < repeats; ++r) {
    TensorView part = moved(out, r * out.strides[dim]);
    part.shape[dim] = t.shape[dim];
    part.strides[dim] = out.strides[dim] * repeats;
    copy_into(part, t);
  }
}

// ---- turning

TensorView flipped(TensorView t, int dim) {
  if (t.shape[dim] > 1) t = moved(t, (t.shape[dim] - 1) * t.strides[dim]);
  t.strides[dim] = -t.strides[dim];
  return t;
}

std::vector<Type> infer_flip(const Args& args) {
  if (args.in(0).rank() > 0) axes(args, "dims", args.in(0).rank());
  return {args.in(0)};
}
void eval_flip(const EvalArgs& args) {
  TensorView t = args.in(0);
  if (t.rank() > 0)
    for (std::int64_t d : args.ints("dims")) t = flipped(t, axis(d, t.rank()));
  copy_into(args.out(), t);
}

std::vector<Type> infer_roll(const Args& args) {
  const std::size_t n_dims = args.ints("dims").size();
  const std::size_t n_shifts = args.syms("shifts").size();
  if (n_dims == 0 ? n_shifts != 1 : n_dims != n_shifts)
    args.fail("needs a shift for each dim, or one shift without dims");
  for (std::int64_t d : args.ints("dims")) axis(args, d, args.in(0).rank());
  return {args.in(0)};
}

void roll_axis(const TensorView& out, const TensorView& t, int dim, std::int64_t shift) {
  const std::int64_t n = t.shape[dim];
  if (n == 0) return;
  const std::int64_t k = ((shift % n) + n) % n;  // out[i] = t[i - k]
  const auto part = [&](TensorView v, std::int64_t from, std::int64_t count) {
    v = moved(v, from * v.strides[dim]);
    v.shape[dim] = count;
    return v;
  };
  copy_into(part(out, k, n - k), part(t, 0, n - k));
  copy_into(part(out, 0, k), part(t, n - k, k));
}

void eval_roll(const EvalArgs& args) {
  const Dims shifts = args.ints("shifts");
  const Dims dims = args.ints("dims");
  Tensor t = contiguous(args.in(0));
  if (t.rank() == 0) return copy_into(args.out(), t);
  if (dims.empty()) {
    TensorView from = t;
    TensorView to = args.out();
    from.shape = to.shape = {t.numel()};
    from.strides = to.strides = {1};
    return roll_axis(to, from, 0, shifts[0]);
  }
  for (int i = 0; i < dims.size(); ++i) {
    Tensor next = Tensor::empty(t.dtype, t.shape);
    roll_axis(next, t, axis(dims[i], t.rank()), shifts[i]);
    t = next;
  }
  copy_into(args.out(), t);
}

}  // namespace

const OpDef aten_cat{.name = "aten.cat",
                     .schema = "(Tensor[] tensors, int dim=0) -> Tensor",
                     .doc = "tensors side by side in one dim",
                     .infer = infer_cat,
                     .eval = eval_cat};
const OpDef aten_stack{.name = "aten.stack",
                       .schema = "(Tensor[] tensors, int dim=0) -> Tensor",
                       .doc = "tensors of one shape side by side in a new dim",
                       .infer = infer_stack,
                       .eval = eval_stack};
const OpDef aten_hstack{.name = "aten.hstack",
                        .schema = "(Tensor[] tensors) -> Tensor",
                        .doc = "tensors side by side in dim 1; vectors in dim 0",
                        .infer = infer_hstack,
                        .eval = eval_hstack};
const OpDef aten_repeat{.name = "aten.repeat",
                        .schema = "(Tensor self, int[] repeats) -> Tensor",
                        .doc = "the tensor as a tile, repeated in each dim",
                        .infer = infer_repeat,
                        .eval = eval_repeat};
const OpDef aten_tile{.name = "aten.tile",
                      .schema = "(Tensor self, int[] dims) -> Tensor",
                      .doc = "the tensor as a tile, repeated in each dim",
                      .infer = infer_tile,
                      .eval = eval_repeat};
const OpDef aten_repeat_interleave{
    .name = "aten.repeat_interleave",
    .schema = "(Tensor self, int repeats, int? dim=None, *, int? output_size=None) -> Tensor",
    .doc = "each element of a dim repeated in place; without dim, of all in a row",
    .infer = infer_repeat_interleave,
    .eval = eval_repeat_interleave};
const OpDef aten_flip{.name = "aten.flip",
                      .schema = "(Tensor self, int[] dims) -> Tensor",
                      .doc = "dims in reverse order",
                      .infer = infer_flip,
                      .eval = eval_flip};
const OpDef aten_roll{.name = "aten.roll",
                      .schema = "(Tensor self, int[] shifts, int[] dims=[]) -> Tensor",
                      .doc = "elements moved along a dim, the last ones to the front",
                      .infer = infer_roll,
                      .eval = eval_roll};

}  // namespace tk::ops

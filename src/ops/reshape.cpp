// Other shapes for the same elements in the same order. PyTorch's `view` demands strides that allow
// it; here a copy is made where they don't, because results of other operators are contiguous where
// PyTorch's may not be.
#include "ops/ops.h"
#include "ops/view.h"

namespace tk::ops {

bool reshape_view(const TensorView& t, const Dims& shape, TensorView* out) {
  *out = t;
  out->shape = shape;
  out->strides = contiguous_strides(shape);
  if (t.numel() == 0) return true;
  // Axes of t are grouped while each continues the next; a group may be cut anew at will.
  int new_axis = shape.size() - 1;
  std::int64_t old_count = 1;
  std::int64_t new_count = 1;
  std::int64_t base = t.rank() == 0 ? 1 : t.strides.back();
  for (int i = t.rank() - 1; i >= 0; --i) {
    old_count *= t.shape[i];
    if (i > 0 && (t.shape[i - 1] == 1 || t.strides[i - 1] == old_count * base)) continue;
    while (new_axis >= 0 && (new_count < old_count || shape[new_axis] == 1)) {
      out->strides[new_axis] = new_count * base;
      new_count *= shape[new_axis--];
    }
    if (new_count != old_count) return false;
    if (i > 0) {
      base = t.strides[i - 1];
      old_count = 1;
      new_count = 1;
    }
  }
  return true;
}

void need_shape(const EvalArgs& args, bool holds, const TensorView& found) {
  if (holds) return;
  std::string expected;
  for (int i = 0; i < args.n_outputs(); ++i)
    expected += cat(i != 0 ? ", " : "", args.out(i).shape.str());
  throw UserError("TK0505", cat(args.op().name, " can't make ", expected, " from ",
                                name_of(found.dtype), found.shape.str()))
      .note("the graph's symbolic sizes say otherwise");
}

bool view_reshape(const EvalArgs& args, std::span<TensorView> outputs) {
  need_shape(args, args.in(0).numel() == args.out().numel(), args.in(0));
  return reshape_view(args.in(0), args.out().shape, outputs.data());
}

void eval_reshape(const EvalArgs& args) {
  need_shape(args, args.in(0).numel() == args.out().numel(), args.in(0));
  TensorView out = args.out();
  out.shape = args.in(0).shape;
  out.strides = contiguous_strides(out.shape);
  copy_into(out, args.in(0));
}

namespace {

// A list of sizes of which one may be -1, for `total` elements.
SymDims resolve(const Args& args, SymDims sizes, const Sym& total) {
  Sym known = 1;
  Sym* free = nullptr;
  for (Sym& s : sizes) {
    if (s.is(-1)) {
      if (free != nullptr) args.fail(cat("needs at most one size of -1, got ", str(sizes)));
      free = &s;
    } else {
      if (s.is_const() && s.value() < 0)
        args.fail(cat("needs sizes that are not negative, got ", str(sizes)));
      known = known * s;
    }
  }
  if (free != nullptr) {
    const auto q = exact_div(total, known);
    // Where the division can't be shown to be exact it is checked when running.
    const bool open = !q && !known.is(0) && may_be_equal(mod(total, known), 0);
    if (!q && (!open || (total.is_const() && known.is_const())))
      args.fail(cat("can't divide ", total.str(), " elements into ", str(sizes)));
    *free = q ? *q : floordiv(total, known);
  } else if (!may_be_equal(known, total)) {
    args.fail(cat("can't make ", str(sizes), " from ", total.str(), " elements"));
  }
  return sizes;
}

std::vector<Type> infer_view(const Args& args) {
  const Type& t = args.in(0);
  return {{t.dtype, resolve(args, args.syms(args.op().parsed().attrs[0].name), t.numel())}};
}

std::vector<Type> infer_view_as(const Args& args) {
  const Type& t = args.in(0);
  return {{t.dtype, resolve(args, args.in(1).shape, t.numel())}};
}

std::vector<Type> infer_flatten(const Args& args) {
  const Type& t = args.in(0);
  const int start = axis(args, "start_dim", t.rank());
  const int end = axis(args, "end_dim", t.rank());
  if (t.rank() == 0) return {{t.dtype, {1}}};
  if (start > end) args.fail("needs start_dim before end_dim");
  SymDims shape(t.shape.begin(), t.shape.begin() + start);
  Sym product = 1;
  for (int i = start; i <= end; ++i) product = product * t.dim(i);
  shape.push_back(product);
  shape.insert(shape.end(), t.shape.begin() + end + 1, t.shape.end());
  return {{t.dtype, shape}};
}

std::vector<Type> infer_unflatten(const Args& args) {
  const Type& t = args.in(0);
  need_rank(args, 0, 1, max_rank);
  const int dim = axis(args, "dim", t.rank());
  const SymDims sizes = resolve(args, args.syms("sizes"), t.dim(dim));
  SymDims shape = t.shape;
  shape.erase(shape.begin() + dim);
  shape.insert(shape.begin() + dim, sizes.begin(), sizes.end());
  return {{t.dtype, shape}};
}

std::vector<Type> infer_unsqueeze(const Args& args) {
  Type t = args.in(0);
  const int dim = axis(args, args.i64("dim"), t.rank() + 1);
  t.shape.insert(t.shape.begin() + dim, Sym(1));
  return {t};
}

// Axes whose size is a symbol stay: a capture has no such graph for a size of 1.
std::vector<Type> infer_squeeze(const Args& args) {
  const Type& t = args.in(0);
  std::vector<bool> chosen(t.shape.size(), !args.has_attr("dim"));
  if (args.has_attr("dim"))
    for (std::int64_t d : args.ints("dim")) {
      const int i = axis(args, d, t.rank());
      if (t.rank() > 0) chosen[static_cast<std::size_t>(i)] = true;
    }
  Type out{t.dtype, {}};
  for (std::size_t i = 0; i < t.shape.size(); ++i)
    if (!chosen[i] || !t.shape[i].is(1)) out.shape.push_back(t.shape[i]);
  return {out};
}

bool view_alias(const EvalArgs& args, std::span<TensorView> outputs) {
  outputs[0] = args.in(0);
  return true;
}

bool view_contiguous(const EvalArgs& args, std::span<TensorView> outputs) {
  outputs[0] = args.in(0);
  return args.in(0).contiguous();
}

void eval_copy(const EvalArgs& args) { copy_into(args.out(), args.in(0)); }

// Conversions of the dtype: a view where it stays.
std::vector<Type> infer_to(const Args& args) {
  const Type& t = args.in(0);
  return {{args.has_attr("dtype") ? args.dtype("dtype") : t.dtype, t.shape}};
}
std::vector<Type> infer_type_as(const Args& args) { return {{args.in(1).dtype, args.in(0).shape}}; }
bool view_to(const EvalArgs& args, std::span<TensorView> outputs) {
  outputs[0] = args.in(0);
  return args.in(0).dtype == args.out().dtype;
}
void eval_to(const EvalArgs& args) { cast(args.out(), args.in(0)); }

std::vector<Type> infer_dropout(const Args& args) {
  if (args.flag("train")) args.fail("is for inference: needs train to be false");
  return {args.in(0)};
}

std::vector<Type> infer_copy(const Args& args) {
  need_broadcastable(args, args.in(1).shape, args.in(0).shape, "src");
  return {args.in(0)};
}
void eval_copy_from(const EvalArgs& args) {
  cast(args.out(), expand(args.in(1), args.out().shape));
}

// One result that is input 0 itself.
constexpr OpDef alias(std::string_view name, std::string_view doc) {
  return {.name = name,
          .schema = "(Tensor self) -> Tensor",
          .doc = doc,
          .infer = infer_same,
          .eval = eval_copy,
          .view = view_alias};
}

}  // namespace

const OpDef aten_view{.name = "aten.view",
                      .schema = "(Tensor self, int[] size) -> Tensor",
                      .doc = "the same elements in another shape; one size may be -1",
                      .infer = infer_view,
                      .eval = eval_reshape,
                      .view = view_reshape};
const OpDef aten_reshape{.name = "aten.reshape",
                         .schema = "(Tensor self, int[] shape) -> Tensor",
                         .doc = "the same elements in another shape; one size may be -1",
                         .infer = infer_view,
                         .eval = eval_reshape,
                         .view = view_reshape};
const OpDef aten_unsafe_view{.name = "aten._unsafe_view",
                             .schema = "(Tensor self, int[] size) -> Tensor",
                             .doc = "as aten.view",
                             .infer = infer_view,
                             .eval = eval_reshape,
                             .view = view_reshape};
const OpDef aten_view_as{.name = "aten.view_as",
                         .schema = "(Tensor self, Tensor other) -> Tensor",
                         .doc = "the same elements in the shape of other",
                         .infer = infer_view_as,
                         .eval = eval_reshape,
                         .view = view_reshape};
const OpDef aten_flatten{.name = "aten.flatten",
                         .schema = "(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor",
                         .doc = "the dims from start_dim to end_dim made one",
                         .infer = infer_flatten,
                         .eval = eval_reshape,
                         .view = view_reshape};
const OpDef aten_unflatten{.name = "aten.unflatten",
                           .schema = "(Tensor self, int dim, int[] sizes) -> Tensor",
                           .doc = "one dim cut into several; one size may be -1",
                           .infer = infer_unflatten,
                           .eval = eval_reshape,
                           .view = view_reshape};
const OpDef aten_unsqueeze{.name = "aten.unsqueeze",
                           .schema = "(Tensor self, int dim) -> Tensor",
                           .doc = "a new dim of size 1",
                           .infer = infer_unsqueeze,
                           .eval = eval_reshape,
                           .view = view_reshape};
const OpDef aten_squeeze{.name = "aten.squeeze",
                         .schema = "(Tensor self, int[]? dim=None) -> Tensor",
                         .doc = "without the dims of size 1, of those named or of all",
                         .infer = infer_squeeze,
                         .eval = eval_reshape,
                         .view = view_reshape};

const OpDef aten_alias = alias("aten.alias", "self");
const OpDef aten_detach = alias("aten.detach", "self, outside of gradients");
const OpDef aten_lift_fresh_copy = alias("aten.lift_fresh_copy", "a constant as a value");
const OpDef aten_contiguous{.name = "aten.contiguous",
                            .schema = "(Tensor self) -> Tensor",
                            .doc = "self, copied unless it is laid out row by row",
                            .infer = infer_same,
                            .eval = eval_copy,
                            .view = view_contiguous};
const OpDef aten_clone{.name = "aten.clone",
                       .schema = "(Tensor self) -> Tensor",
                       .doc = "a copy, laid out row by row",
                       .infer = infer_same,
                       .eval = eval_copy};
const OpDef aten_copy{.name = "aten.copy",
                      .schema = "(Tensor self, Tensor src) -> Tensor",
                      .doc = "src with the shape and dtype of self",
                      .infer = infer_copy,
                      .eval = eval_copy_from};
const OpDef aten_dropout{.name = "aten.dropout",
                         .schema = "(Tensor input, float p, bool train) -> Tensor",
                         .doc = "input: nothing is dropped in inference",
                         .infer = infer_dropout,
                         .eval = eval_copy,
                         .view = view_alias};

const OpDef aten_to{.name = "aten.to",
                    .schema = "(Tensor self, *, dtype? dtype=None) -> Tensor",
                    .doc = "self converted to dtype",
                    .infer = infer_to,
                    .eval = eval_to,
                    .view = view_to};
const OpDef aten_to_copy{.name = "aten._to_copy",
                         .schema = "(Tensor self, *, dtype? dtype=None) -> Tensor",
                         .doc = "self converted to dtype, always a copy",
                         .infer = infer_to,
                         .eval = eval_to};
const OpDef aten_type_as{.name = "aten.type_as",
                         .schema = "(Tensor self, Tensor other) -> Tensor",
                         .doc = "self converted to the dtype of other",
                         .infer = infer_type_as,
                         .eval = eval_to,
                         .view = view_to};

}  // namespace tk::ops

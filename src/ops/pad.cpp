// Padding, differences of neighbours, and views by raw strides.
#include <limits>

#include "graph/graph.h"
#include "ops/ops.h"
#include "ops/pointwise.h"
#include "ops/view.h"

namespace tk::ops {
namespace {

// ---- constant_pad_nd: pairs of (before, after) for the last axis, the one before it, ...

Type padded(const Args& args) {
  Type t = args.in(0);
  const SymDims pad = args.syms("pad");
  if (pad.size() % 2 != 0 || pad.size() > 2 * t.shape.size())
    args.fail(cat("needs two pads for some of ", t.rank(), " dims, got ", str(pad)));
  for (std::size_t i = 0; i < pad.size() / 2; ++i) {
    Sym& n = t.shape[t.shape.size() - 1 - i];
    n = n + pad[2 * i] + pad[2 * i + 1];
    if (n.is_const() && n.value() < 0) args.fail(cat("can't cut so much off: pad ", str(pad)));
  }
  return t;
}

std::vector<Type> infer_constant_pad(const Args& args) { return {padded(args)}; }

std::vector<Type> infer_pad(const Args& args) {
  if (args.text("mode") != "constant")
    args.fail(cat("pads with a constant here, not by '", args.text("mode"), "'"));
  return {padded(args)};
}

void eval_pad(const EvalArgs& args) {
  const TensorView& out = args.out();
  const Tensor value =
      args.has_attr("value") ? number(*args.attr("value"), args.env()) : number(Attr(false), {});
  cast(out, expand(value, out.shape));
  TensorView from = args.in(0);
  TensorView to = out;
  const Dims pad = args.ints("pad");
  for (int i = 0; i < pad.size() / 2; ++i) {
    const int dim = out.rank() - 1 - i;
    const std::int64_t before = pad[2 * i];
    // A negative pad cuts off.
    const std::int64_t kept = from.shape[dim] + std::min<std::int64_t>(before, 0) +
                              std::min<std::int64_t>(pad[2 * i + 1], 0);
    need_shape(args, out.shape[dim] == from.shape[dim] + before + pad[2 * i + 1], args.in(0));
    if (kept <= 0) return;
    if (before < 0) from = moved(from, -before * from.strides[dim]);
    if (before > 0) to = moved(to, before * to.strides[dim]);
    from.shape[dim] = to.shape[dim] = kept;
  }
  if (from.numel() > 0) copy_into(to, from);
}

// ---- diff

std::vector<Type> infer_diff(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  Type t = args.in(0);
  const int dim = axis(args, "dim", t.rank());
  const std::int64_t times = args.i64("n");
  if (times < 0) args.fail(cat("needs n that is not negative, got ", times));
  Sym& n = t.shape[static_cast<std::size_t>(dim)];
  for (int input : {1, 2}) {  // prepend, append
    if (!args.has(input)) continue;
    const Type& more = args.in(input);
    bool fits = more.rank() == t.rank() && more.dtype == t.dtype;
    for (int i = 0; fits && i < t.rank(); ++i) fits = i == dim || more.dim(i) == t.dim(i);
    if (!fits) args.fail(cat("needs tensors that differ in dim ", dim, " only"));
    n = n + more.dim(dim);
  }
  n = n - times;
  if (n.is_const() && n.value() < 0) n = 0;
  return {t};
}

struct Difference {
  template <typename T>
  T operator()(T a, T b) const {
    return wrap_add(a, wrap_mul(b, T(-1)));
  }
};

void eval_diff(const EvalArgs& args) {
  const TensorView& in = args.in(0);
  const int dim = axis(args.i64("dim"), in.rank());
  const auto part = [&](TensorView t, std::int64_t from, std::int64_t n) {
    t = moved(t, from * t.strides[dim]);
    t.shape[dim] = n;
    return t;
  };
  Dims shape = in.shape;
  for (int i : {1, 2})
    if (args.has(i)) shape[dim] += args.in(i).shape[dim];
  Tensor line = Tensor::empty(in.dtype, shape);
  std::int64_t at = 0;
  for (int i : {1, 0, 2}) {
    if (!args.has(i)) continue;
    const std::int64_t n = args.in(i).shape[dim];
    copy_into(part(line, at, n), args.in(i));
    at += n;
  }
  const bool boolean = in.dtype == DType::boolean;
  for (std::int64_t k = 0; k < args.i64("n"); ++k) {
    const std::int64_t n = line.shape[dim] - 1;
    if (n < 0) break;
    shape[dim] = n;
    Tensor next = Tensor::empty(in.dtype, shape);
    const std::array<TensorView, 2> pair{part(line, std::min<std::int64_t>(n, 1), n),
                                         part(line, 0, n)};
    with_math(in.dtype, [&](auto tag) {
      using T = decltype(tag);
      if (boolean) return map<T, 2>(next, pair, [](T a, T b) { return a != b; });
      map<T, 2>(next, pair, Difference{});
    });
    line = next;
  }
  need_shape(args, line.shape == args.out().shape, in);
  copy_into(args.out(), line);
}

// ---- as_strided: counts in the memory of self, so self has to lie in it row by row

std::vector<Type> infer_as_strided(const Args& args) {
  const Node* from = args.value(0)->node;
  const bool known = from == nullptr || from->is("aten.contiguous") || from->is("aten.clone") ||
                     from->is("aten.linear") || from->is("aten.cat") || from->is("aten.index");
  if (!known)
    args.fail(
        "counts in the memory of its input, whose layout is known only for inputs and "
        "weights, and after contiguous, clone, linear, cat and index");
  const SymDims size = args.syms("size");
  if (size.size() != args.syms("stride").size()) args.fail("needs as many strides as sizes");
  for (const SymDims& list : {size, args.syms("stride")})
    for (const Sym& s : list)
      if (s.is_const() && s.value() < 0)
        args.fail(cat("needs no negative numbers, got ", str(list)));
  return {{args.in(0).dtype, size}};
}

bool view_as_strided(const EvalArgs& args, std::span<TensorView> outputs) {
  const TensorView& t = args.in(0);
  if (!t.contiguous())
    throw UserError("TK0505", "aten.as_strided: the input does not lie in memory row by row");
  const std::int64_t offset = args.has_attr("storage_offset") ? args.i64("storage_offset") : 0;
  const Dims strides = args.ints("stride");
  TensorView out = t;
  out.shape = args.out().shape;
  out.strides = strides;
  std::int64_t last = offset;
  bool overflow = offset < 0;
  for (int i = 0; i < strides.size(); ++i) {
    std::int64_t reach = 0;
    overflow |=
        strides[i] < 0 || out.shape[i] < 0 ||
        __builtin_mul_overflow(strides[i], std::max<std::int64_t>(out.shape[i] - 1, 0), &reach) ||
        __builtin_add_overflow(last, reach, &last);
  }
  if (out.numel() == 0) last = 0;
  if (overflow || last >= std::max<std::int64_t>(t.numel(), 1))
    bad_index(args, overflow ? std::numeric_limits<std::int64_t>::max() : last, t.numel(),
              "an element at");
  outputs[0] = out.numel() == 0 ? out : moved(out, offset);
  return true;
}

}  // namespace

const OpDef aten_constant_pad_nd{
    .name = "aten.constant_pad_nd",
    .schema = "(Tensor self, int[] pad, scalar value=0) -> Tensor",
    .doc = "value before and after; pads are pairs from the last dim on, negative ones cut",
    .infer = infer_constant_pad,
    .eval = eval_pad};
const OpDef aten_pad{
    .name = "aten.pad",
    .schema = "(Tensor self, int[] pad, str mode=\"constant\", float? value=None) -> Tensor",
    .doc = "as constant_pad_nd",
    .infer = infer_pad,
    .eval = eval_pad};
const OpDef aten_diff{.name = "aten.diff",
                      .schema =
                          "(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, "
                          "Tensor? append=None) -> Tensor",
                      .doc = "each element less its neighbour before, n times",
                      .infer = infer_diff,
                      .eval = eval_diff};
const OpDef aten_as_strided{
    .name = "aten.as_strided",
    .schema = "(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor",
    .doc = "a view by strides in elements, where self lies in memory row by row",
    .infer = infer_as_strided,
    .eval = eval_view<view_as_strided>,
    .view = view_as_strided};

}  // namespace tk::ops

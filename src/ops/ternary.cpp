// Choices between tensors, and formulas of three of them.
#include <cmath>

#include "ops/ops.h"
#include "ops/pointwise.h"

namespace tk::ops {
namespace {

std::vector<Type> infer_where(const Args& args) {
  if (!is_integral(args.in(0).dtype)) args.fail("needs a condition of bool");
  need_operand(args, {1, "self"});
  need_operand(args, {2, "other"});
  return {{result_type(args, {{1, "self"}, {2, "other"}}), broadcast(args, {{0}, {1}, {2}})}};
}

// out = mask ? a : b, for operands of out's dtype.
void choose(const TensorView& out, const TensorView& mask, const TensorView& a,
            const TensorView& b) {
  const TensorView m = expand(mask, out.shape);
  const TensorView x = expand(a, out.shape);
  const TensorView y = expand(b, out.shape);
  with_math(out.dtype, [&](auto tag) {
    using T = decltype(tag);
    std::array<std::int64_t, block> bm;
    std::array<T, block> bx;
    std::array<T, block> by;
    for_blocks<4>(out.shape, {out.strides, m.strides, x.strides, y.strides},
                  [&](const auto& at, const auto& step, int n) {
                    const auto* pm = load(m, at[1], step[1], n, bm.data());
                    const auto* px = load(x, at[2], step[2], n, bx.data());
                    const auto* py = load(y, at[3], step[3], n, by.data());
                    std::array<T, block> r;
                    for (int i = 0; i < n; ++i) r[i] = pm[i] != 0 ? px[i] : py[i];
                    store(out, at[0], step[0], n, r.data());
                  });
  });
}

void eval_where(const EvalArgs& args) {
  const auto in = operands(args, {{1, "self"}, {2, "other"}}, args.out().dtype);
  choose(args.out(), args.in(0), in.tensors[0], in.tensors[1]);
}

std::vector<Type> infer_masked_fill(const Args& args) {
  if (args.in(1).dtype != DType::boolean) args.fail("needs a mask of bool");
  need_operand(args, {2, "value"});
  if (args.has(2) && args.in(2).rank() != 0)
    args.fail(cat("needs a value without axes, got ", args.in(2).str()));
  return {{args.in(0).dtype, broadcast(args, {{0}, {1}})}};
}

void eval_masked_fill(const EvalArgs& args) {
  const Tensor value = operand(args, {2, "value"}, args.out().dtype, false);
  choose(args.out(), args.in(1), value, args.in(0));
}

struct Bounds {
  Operand low, high;
};

std::vector<Type> infer_bounded(const Args& args, const Bounds& b) {
  const DType dtype = result_type(args, {{0}, b.low, b.high});
  if (dtype == DType::c64) args.fail("is not defined for complex numbers");
  return {{dtype, broadcast(args, {{0}, b.low, b.high})}};
}

// NaN stays, also a bound's; where both bounds cross, the upper one wins.
template <bool has_low, bool has_high>
void clamp(const EvalArgs& args, const Operand& low, const Operand& high) {
  const DType dtype = args.out().dtype;
  const Tensor x = as_dtype(args.in(0), dtype);
  const Tensor a = has_low ? operand(args, low, dtype, false) : x;
  const Tensor b = has_high ? operand(args, high, dtype, false) : x;
  with_real(dtype, [&](auto tag) {
    using T = decltype(tag);
    map<T, 3>(args.out(), {x, a, b}, [](T v, T lower, T upper) {
      if (v != v) return v;
      if (has_low && !(v >= lower)) v = lower;
      if (has_high && !(v <= upper)) v = upper;
      return v;
    });
  });
}

std::vector<Type> infer_clamp(const Args& args) {
  if (!args.has(1) && !args.has(2) && !args.has_attr("min") && !args.has_attr("max"))
    args.fail("needs min or max");
  if (args.has(1)) need_operand(args, {1, "min"});
  if (args.has(2)) need_operand(args, {2, "max"});
  return infer_bounded(args, {{1, "min"}, {2, "max"}});
}

void eval_clamp(const EvalArgs& args) {
  const bool low = args.has(1) || args.has_attr("min");
  const bool high = args.has(2) || args.has_attr("max");
  if (low && high) return clamp<true, true>(args, {1, "min"}, {2, "max"});
  if (low) return clamp<true, false>(args, {1, "min"}, {2, "max"});
  clamp<false, true>(args, {1, "min"}, {2, "max"});
}

std::vector<Type> infer_clamp_min(const Args& args) {
  need_operand(args, {1, "min"});
  return infer_bounded(args, {{1, "min"}, {1, "min"}});
}
std::vector<Type> infer_clamp_max(const Args& args) {
  need_operand(args, {1, "max"});
  return infer_bounded(args, {{1, "max"}, {1, "max"}});
}
void eval_clamp_min(const EvalArgs& args) { clamp<true, false>(args, {1, "min"}, {1, "min"}); }
void eval_clamp_max(const EvalArgs& args) { clamp<false, true>(args, {1, "max"}, {1, "max"}); }

std::vector<Type> infer_lerp(const Args& args) {
  need_operand(args, {2, "weight"});
  for (int i = 0; i < 2; ++i) need_float(args, i);
  const bool same = args.in(0).dtype == args.in(1).dtype &&
                    (!args.has(2) || args.in(2).dtype == args.in(0).dtype);
  if (!same) args.fail("needs operands of one dtype");
  return {{args.in(0).dtype, broadcast(args, {{0}, {1}, {2}})}};
}

void eval_lerp(const EvalArgs& args) {
  const Tensor weight = operand(args, {2, "weight"}, args.out().dtype, /*exact_scalars=*/true);
  with_float(args.out().dtype, [&](auto tag) {
    using T = decltype(tag);
    map<T, 3>(args.out(), {args.in(0), args.in(1), weight}, [](T a, T b, T w) {
      return std::abs(w) < T(0.5) ? a + w * (b - a) : b - (b - a) * (T(1) - w);
    });
  });
}

std::vector<Type> infer_addc(const Args& args) {
  const DType dtype = result_type(args, {{0}, {1}, {2}});
  if (dtype == DType::c64) args.fail("is not defined for complex numbers here");
  return {{dtype, broadcast(args, {{0}, {1}, {2}})}};
}

std::vector<Type> infer_addcdiv(const Args& args) {
  auto types = infer_addc(args);
  if (is_integral(types[0].dtype)) args.fail("needs floating-point numbers");
  return types;
}

template <bool divide>
void eval_addc(const EvalArgs& args) {
  const DType dtype = args.out().dtype;
  const auto in = operands(args, {{0}, {1}, {2}}, dtype);
  with_real(dtype, [&](auto tag) {
    using T = decltype(tag);
    const Tensor value = number(*args.attr("value"), args.env());
    T buffer{};
    const T factor = *load<T>(value, 0, 0, 1, &buffer);
    map<T, 3>(args.out(), in.views(), [=](T x, T a, T b) {
      if constexpr (divide && !std::is_integral_v<T>) return x + factor * a / b;
      return wrap_add(x, wrap_mul(wrap_mul(factor, a), b));
    });
  });
}

}  // namespace

const OpDef aten_where{.name = "aten.where",
                       .schema =
                           "(Tensor condition, Tensor? self, Tensor? other, scalar? self=None, "
                           "scalar? other=None) -> Tensor",
                       .doc = "self where the condition holds, other elsewhere",
                       .infer = infer_where,
                       .eval = eval_where};
const OpDef aten_masked_fill{
    .name = "aten.masked_fill",
    .schema = "(Tensor self, Tensor mask, Tensor? value, scalar? value=None) -> Tensor",
    .doc = "value where the mask is true, self elsewhere",
    .infer = infer_masked_fill,
    .eval = eval_masked_fill};
const OpDef aten_clamp{
    .name = "aten.clamp",
    .schema =
        "(Tensor self, Tensor? min, Tensor? max, scalar? min=None, scalar? max=None)"
        " -> Tensor",
    .doc = "self within [min, max]; a bound may be absent",
    .infer = infer_clamp,
    .eval = eval_clamp};
const OpDef aten_clamp_min{.name = "aten.clamp_min",
                           .schema = "(Tensor self, Tensor? min, scalar? min=None) -> Tensor",
                           .doc = "the larger of self and min",
                           .infer = infer_clamp_min,
                           .eval = eval_clamp_min};
const OpDef aten_clamp_max{.name = "aten.clamp_max",
                           .schema = "(Tensor self, Tensor? max, scalar? max=None) -> Tensor",
                           .doc = "the smaller of self and max",
                           .infer = infer_clamp_max,
                           .eval = eval_clamp_max};
const OpDef aten_lerp{
    .name = "aten.lerp",
    .schema = "(Tensor self, Tensor end, Tensor? weight, scalar? weight=None) -> Tensor",
    .doc = "self + weight * (end - self)",
    .infer = infer_lerp,
    .eval = eval_lerp};
const OpDef aten_addcmul{
    .name = "aten.addcmul",
    .schema = "(Tensor self, Tensor tensor1, Tensor tensor2, *, scalar value=1) -> Tensor",
    .doc = "self + value * tensor1 * tensor2",
    .infer = infer_addc,
    .eval = eval_addc<false>};
const OpDef aten_addcdiv{
    .name = "aten.addcdiv",
    .schema = "(Tensor self, Tensor tensor1, Tensor tensor2, *, scalar value=1) -> Tensor",
    .doc = "self + value * tensor1 / tensor2",
    .infer = infer_addcdiv,
    .eval = eval_addc<true>};

}  // namespace tk::ops

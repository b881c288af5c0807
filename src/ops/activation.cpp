// Activations with parameters.
#include <cmath>
#include <limits>

#include "ops/ops.h"
#include "ops/pointwise.h"
#include "ops/view.h"

namespace tk::ops {
namespace {

template <typename T>
T softplus(T x, T beta, T threshold) {
  return x * beta > threshold ? x : std::log1p(std::exp(x * beta)) / beta;
}

std::vector<Type> infer_float_same(const Args& args) {
  need_float(args, 0);
  return {args.in(0)};
}

void eval_gelu(const EvalArgs& args) {
  const bool tanh_form = args.text("approximate") == "tanh";
  with_float(args.in(0).dtype, [&](auto tag) {
    using T = decltype(tag);
    map<T, 1>(args.out(), {args.in(0)}, [=](T x) {
      constexpr T sqrt_half = T(0.70710678118654752440);
      constexpr T sqrt_2_pi = T(0.79788456080286535588);
      if (!tanh_form) return x * T(0.5) * (T(1) + std::erf(x * sqrt_half));
      const T inner = sqrt_2_pi * (x + T(0.044715) * x * x * x);
      return T(0.5) * x * (T(1) + std::tanh(inner));
    });
  });
}

std::vector<Type> infer_gelu(const Args& args) {
  const std::string& form = args.text("approximate");
  if (form != "none" && form != "tanh")
    args.fail(cat("needs approximate to be none or tanh, got ", form));
  return infer_float_same(args);
}

void eval_leaky_relu(const EvalArgs& args) {
  with_float(args.in(0).dtype, [&](auto tag) {
    using T = decltype(tag);
    const T slope = static_cast<T>(args.f64("negative_slope"));
    map<T, 1>(args.out(), {args.in(0)}, [=](T x) { return x > T(0) ? x : x * slope; });
  });
}

void eval_elu(const EvalArgs& args) {
  with_float(args.in(0).dtype, [&](auto tag) {
    using T = decltype(tag);
    const T negative = static_cast<T>(args.f64("alpha") * args.f64("scale"));
    const T scale = static_cast<T>(args.f64("scale"));
    const T input_scale = static_cast<T>(args.f64("input_scale"));
    map<T, 1>(args.out(), {args.in(0)},
              [=](T x) { return x < T(0) ? std::expm1(x * input_scale) * negative : x * scale; });
  });
}

void eval_softplus(const EvalArgs& args) {
  with_float(args.in(0).dtype, [&](auto tag) {
    using T = decltype(tag);
    const T beta = static_cast<T>(args.f64("beta"));
    const T threshold = static_cast<T>(args.f64("threshold"));
    map<T, 1>(args.out(), {args.in(0)}, [=](T x) { return softplus(x, beta, threshold); });
  });
}

void eval_hardtanh(const EvalArgs& args) {
  with_real(args.in(0).dtype, [&](auto tag) {
    using T = decltype(tag);
    const T low = static_cast<T>(args.f64("min_val"));
    const T high = static_cast<T>(args.f64("max_val"));
    map<T, 1>(args.out(), {args.in(0)}, [=](T x) { return x < low ? low : x > high ? high : x; });
  });
}

void eval_celu(const EvalArgs& args) {
  with_float(args.in(0).dtype, [&](auto tag) {
    using T = decltype(tag);
    const T alpha = static_cast<T>(args.f64("alpha"));
    map<T, 1>(args.out(), {args.in(0)},
              [=](T x) { return x < T(0) ? alpha * std::expm1(x / alpha) : x; });
  });
}

void eval_threshold(const EvalArgs& args) {
  const Tensor threshold = cast_to(number(*args.attr("threshold"), args.env()), args.out().dtype);
  const Tensor instead = cast_to(number(*args.attr("value"), args.env()), args.out().dtype);
  const TensorView& limit = threshold;
  const TensorView& value = instead;
  with_real(args.in(0).dtype, [&](auto tag) {
    using T = decltype(tag);
    map<T, 3>(args.out(), {args.in(0), limit, value},
              [](T x, T most, T other) { return x <= most ? other : x; });
  });
}

// The largest finite number of a dtype.
double most_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return std::numeric_limits<double>::max();
    case DType::f16:
      return 65504;
    case DType::bf16:
      return 0x1.fep127;
    default:
      return std::numeric_limits<float>::max();
  }
}

void eval_nan_to_num(const EvalArgs& args) {
  const DType dtype = args.out().dtype;
  if (is_integral(dtype)) return copy_into(args.out(), args.in(0));
  const double most = most_of(dtype);
  with_float(dtype, [&](auto tag) {
    using T = decltype(tag);
    const T nan = static_cast<T>(args.has_attr("nan") ? args.f64("nan") : 0);
    const T high = static_cast<T>(args.has_attr("posinf") ? args.f64("posinf") : most);
    const T low = static_cast<T>(args.has_attr("neginf") ? args.f64("neginf") : -most);
    map<T, 1>(args.out(), {args.in(0)}, [=](T x) {
      if (x != x) return nan;
      return !std::isinf(x) ? x : x > 0 ? high : low;
    });
  });
}

std::vector<Type> infer_glu(const Args& args) {
  need_float(args, 0);
  need_rank(args, 0, 1, max_rank);
  Type t = args.in(0);
  Sym& n = t.shape[static_cast<std::size_t>(axis(args, "dim", t.rank()))];
  const auto half = exact_div(n, 2);
  if (!half) args.fail(cat("needs a dim of even size, got ", n.str()));
  n = *half;
  return {t};
}

void eval_glu(const EvalArgs& args) {
  TensorView left = args.in(0);
  const int dim = axis(args.i64("dim"), left.rank());
  left.shape[dim] = args.out().shape[dim];
  const TensorView right = moved(left, left.shape[dim] * left.strides[dim]);
  with_float(args.out().dtype, [&](auto tag) {
    using T = decltype(tag);
    map<T, 2>(args.out(), {left, right}, [](T a, T b) { return a / (T(1) + std::exp(-b)); });
  });
}

}  // namespace

const OpDef aten_gelu{.name = "aten.gelu",
                      .schema = "(Tensor self, *, str approximate=\"none\") -> Tensor",
                      .doc = "x * P(X <= x) of the normal distribution, exact or by tanh",
                      .infer = infer_gelu,
                      .eval = eval_gelu};
const OpDef aten_leaky_relu{.name = "aten.leaky_relu",
                            .schema = "(Tensor self, scalar negative_slope=0.01) -> Tensor",
                            .doc = "x, times negative_slope where x is negative",
                            .infer = infer_float_same,
                            .eval = eval_leaky_relu};
const OpDef aten_elu{
    .name = "aten.elu",
    .schema = "(Tensor self, scalar alpha=1, scalar scale=1, scalar input_scale=1) -> Tensor",
    .doc = "scale * x, or scale * alpha * (e^(x * input_scale) - 1) where x is negative",
    .infer = infer_float_same,
    .eval = eval_elu};
const OpDef aten_softplus{.name = "aten.softplus",
                          .schema = "(Tensor self, scalar beta=1, scalar threshold=20) -> Tensor",
                          .doc = "ln(1 + e^(beta * x)) / beta; x where beta * x > threshold",
                          .infer = infer_float_same,
                          .eval = eval_softplus};
const OpDef aten_hardtanh{.name = "aten.hardtanh",
                          .schema = "(Tensor self, scalar min_val=-1, scalar max_val=1) -> Tensor",
                          .doc = "x within [min_val, max_val]",
                          .infer = infer_real,
                          .eval = eval_hardtanh};

const OpDef aten_celu{.name = "aten.celu",
                      .schema = "(Tensor self, scalar alpha=1.0) -> Tensor",
                      .doc = "x, or alpha * (e^(x / alpha) - 1) where x is negative",
                      .infer = infer_float_same,
                      .eval = eval_celu};
const OpDef aten_threshold{.name = "aten.threshold",
                           .schema = "(Tensor self, scalar threshold, scalar value) -> Tensor",
                           .doc = "x where it is above threshold, else value",
                           .infer = infer_real,
                           .eval = eval_threshold};
const OpDef aten_nan_to_num{
    .name = "aten.nan_to_num",
    .schema = "(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
    .doc = "NaN and infinities replaced, by 0 and the largest numbers where not given",
    .infer = infer_real,
    .eval = eval_nan_to_num};
const OpDef aten_glu{.name = "aten.glu",
                     .schema = "(Tensor self, int dim=-1) -> Tensor",
                     .doc = "the first half of dim times the sigmoid of the second",
                     .infer = infer_glu,
                     .eval = eval_glu};

}  // namespace tk::ops

// Functions of one tensor, element by element.
#include <cmath>

#include "ops/ops.h"
#include "ops/pointwise.h"

namespace tk::ops {

std::vector<Type> infer_real(const Args& args) {
  if (args.in(0).dtype == DType::c64) args.fail("is not defined for complex numbers here");
  return {args.in(0)};
}

std::vector<Type> infer_real_float(const Args& args) {
  if (args.in(0).dtype == DType::c64) args.fail("is not defined for complex numbers here");
  return infer_float(args);
}

namespace {

template <typename T>
T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <typename T>
T softplus(T x, T beta, T threshold) {
  return x * beta > threshold ? x : std::log1p(std::exp(x * beta)) / beta;
}

}  // namespace

const OpDef aten_exp = float_unary("aten.exp", "e^x", [](auto x) { return std::exp(x); });
const OpDef aten_exp2 = float_unary("aten.exp2", "2^x", [](auto x) { return std::exp2(x); });
const OpDef aten_expm1 = float_unary("aten.expm1", "e^x - 1", [](auto x) { return std::expm1(x); });
const OpDef aten_log = float_unary("aten.log", "ln x", [](auto x) { return std::log(x); });
const OpDef aten_log1p =
    float_unary("aten.log1p", "ln(1 + x)", [](auto x) { return std::log1p(x); });
const OpDef aten_log2 = float_unary("aten.log2", "log2 x", [](auto x) { return std::log2(x); });
const OpDef aten_log10 = float_unary("aten.log10", "log10 x", [](auto x) { return std::log10(x); });
const OpDef aten_sqrt =
    float_unary("aten.sqrt", "square root", [](auto x) { return std::sqrt(x); });
const OpDef aten_rsqrt = float_unary("aten.rsqrt", "1 / square root",
                                     [](auto x) { return decltype(x)(1) / std::sqrt(x); });
const OpDef aten_reciprocal =
    float_unary("aten.reciprocal", "1 / x", [](auto x) { return decltype(x)(1) / x; });
const OpDef aten_sin = float_unary("aten.sin", "sine", [](auto x) { return std::sin(x); });
const OpDef aten_cos = float_unary("aten.cos", "cosine", [](auto x) { return std::cos(x); });
const OpDef aten_tan = float_unary("aten.tan", "tangent", [](auto x) { return std::tan(x); });
const OpDef aten_atan =
    float_unary("aten.atan", "inverse tangent", [](auto x) { return std::atan(x); });
const OpDef aten_sinh =
    float_unary("aten.sinh", "hyperbolic sine", [](auto x) { return std::sinh(x); });
const OpDef aten_cosh =
    float_unary("aten.cosh", "hyperbolic cosine", [](auto x) { return std::cosh(x); });
const OpDef aten_tanh =
    float_unary("aten.tanh", "hyperbolic tangent", [](auto x) { return std::tanh(x); });
const OpDef aten_erf =
    float_unary("aten.erf", "the error function", [](auto x) { return std::erf(x); });
const OpDef aten_sigmoid =
    float_unary("aten.sigmoid", "1 / (1 + e^-x)", [](auto x) { return sigmoid(x); });
const OpDef aten_log_sigmoid = float_unary("aten.log_sigmoid", "ln(1 / (1 + e^-x))", [](auto x) {
  using T = decltype(x);
  return std::min(x, T(0)) - std::log1p(std::exp(-std::abs(x)));
});
const OpDef aten_silu =
    float_unary("aten.silu", "x * sigmoid(x)", [](auto x) { return x / (1 + std::exp(-x)); });
const OpDef aten_mish = float_unary("aten.mish", "x * tanh(ln(1 + e^x))",
                                    [](auto x) { return x * std::tanh(std::log1p(std::exp(x))); });
const OpDef aten_hardswish =
    float_unary("aten.hardswish", "x * min(max(x + 3, 0), 6) / 6", [](auto x) {
      using T = decltype(x);
      return x * std::min(std::max(x + 3, T(0)), T(6)) / 6;
    });
const OpDef aten_hardsigmoid =
    float_unary("aten.hardsigmoid", "min(max(x + 3, 0), 6) / 6", [](auto x) {
      using T = decltype(x);
      return std::min(std::max(x + 3, T(0)), T(6)) / 6;
    });

const OpDef aten_relu = real_unary("aten.relu", "max(x, 0); NaN stays", [](auto x) {
  using T = decltype(x);
  return x < T(0) ? T(0) : x;
});
const OpDef aten_sign = real_unary("aten.sign", "-1, 0 or 1", [](auto x) {
  using T = decltype(x);
  return static_cast<T>((x > T(0)) - (x < T(0)));
});
const OpDef aten_floor = real_unary("aten.floor", "the next whole number below", [](auto x) {
  if constexpr (std::is_integral_v<decltype(x)>) {
    return x;
  } else {
    return std::floor(x);
  }
});
const OpDef aten_ceil = real_unary("aten.ceil", "the next whole number above", [](auto x) {
  if constexpr (std::is_integral_v<decltype(x)>) {
    return x;
  } else {
    return std::ceil(x);
  }
});
const OpDef aten_trunc = real_unary("aten.trunc", "the next whole number towards 0", [](auto x) {
  if constexpr (std::is_integral_v<decltype(x)>) {
    return x;
  } else {
    return std::trunc(x);
  }
});
const OpDef aten_round =
    real_unary("aten.round", "the nearest whole number, halves to even", [](auto x) {
      if constexpr (std::is_integral_v<decltype(x)>) {
        return x;
      } else {
        return std::nearbyint(x);
      }
    });

namespace {

// neg, abs and square are defined for complex numbers too.
template <typename F>
void eval_any_unary(const EvalArgs& args) {
  with_math(args.in(0).dtype,
            [&](auto tag) { map<decltype(tag), 1>(args.out(), {args.in(0)}, F{}); });
}

std::vector<Type> infer_abs(const Args& args) {
  const Type& t = args.in(0);
  return {{t.dtype == DType::c64 ? DType::f32 : t.dtype, t.shape}};
}

struct Neg {
  template <typename T>
  T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(0 - static_cast<std::uint64_t>(x));
    return -x;
  }
};

struct Abs {
  template <typename T>
  auto operator()(T x) const {
    if constexpr (std::is_integral_v<T>) return x < 0 ? Neg()(x) : x;
    return std::abs(x);
  }
};

struct LogicalNot {
  template <typename T>
  bool operator()(T x) const {
    return x == T(0);
  }
};

struct IsNan {
  template <typename T>
  bool operator()(T x) const {
    return x != x;
  }
};

void eval_abs(const EvalArgs& args) {
  if (args.in(0).dtype != DType::c64) return eval_real_unary<Abs>(args);
  map<Complex, 1>(args.out(), {args.in(0)}, [](Complex x) { return std::abs(x); });
}

std::vector<Type> infer_bitwise_not(const Args& args) {
  if (!is_integral(args.in(0).dtype)) args.fail("needs integers or bool");
  return {args.in(0)};
}

void eval_bitwise_not(const EvalArgs& args) {
  const bool boolean = args.in(0).dtype == DType::boolean;
  map<std::int64_t, 1>(args.out(), {args.in(0)},
                       [=](std::int64_t x) { return boolean ? std::int64_t{x == 0} : ~x; });
}

void eval_isinf(const EvalArgs& args) {
  with_real(args.in(0).dtype, [&](auto tag) {
    using T = decltype(tag);
    map<T, 1>(args.out(), {args.in(0)}, [](T x) {
      if constexpr (std::is_integral_v<T>) return false;
      return std::isinf(static_cast<double>(x));
    });
  });
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

}  // namespace

const OpDef aten_neg{.name = "aten.neg",
                     .schema = "(Tensor self) -> Tensor",
                     .doc = "-x",
                     .infer = infer_same,
                     .eval = eval_any_unary<Neg>};
const OpDef aten_abs{.name = "aten.abs",
                     .schema = "(Tensor self) -> Tensor",
                     .doc = "|x|; of complex numbers a real one",
                     .infer = infer_abs,
                     .eval = eval_abs};
const OpDef aten_logical_not{.name = "aten.logical_not",
                             .schema = "(Tensor self) -> Tensor",
                             .doc = "x == 0",
                             .infer = infer_bool,
                             .eval = eval_any_unary<LogicalNot>};
const OpDef aten_bitwise_not{.name = "aten.bitwise_not",
                             .schema = "(Tensor self) -> Tensor",
                             .doc = "all bits inverted; of bool the logical not",
                             .infer = infer_bitwise_not,
                             .eval = eval_bitwise_not};
const OpDef aten_isnan{.name = "aten.isnan",
                       .schema = "(Tensor self) -> Tensor",
                       .doc = "true where x is not a number",
                       .infer = infer_bool,
                       .eval = eval_any_unary<IsNan>};
const OpDef aten_isinf{.name = "aten.isinf",
                       .schema = "(Tensor self) -> Tensor",
                       .doc = "true where x is an infinity",
                       .infer = infer_bool,
                       .eval = eval_isinf};
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

}  // namespace tk::ops

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

const OpDef aten_asin =
    float_unary("aten.asin", "inverse sine", [](auto x) { return std::asin(x); });
const OpDef aten_acos =
    float_unary("aten.acos", "inverse cosine", [](auto x) { return std::acos(x); });
const OpDef aten_selu = float_unary("aten.selu", "elu with the constants of SELU", [](auto x) {
  using T = decltype(x);
  constexpr T scale = T(1.0507009873554804934193349852946);
  constexpr T alpha = T(1.6732632423543772848170429916717);
  return x < T(0) ? std::expm1(x) * (scale * alpha) : x * scale;
});

const OpDef aten_relu = real_unary("aten.relu", "max(x, 0); NaN stays", [](auto x) {
  using T = decltype(x);
  return x < T(0) ? T(0) : x;
});
const OpDef aten_relu6 = real_unary("aten.relu6", "x within [0, 6]; NaN stays", [](auto x) {
  using T = decltype(x);
  return x < T(0) ? T(0) : x > T(6) ? T(6) : x;
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

struct Square {
  template <typename T>
  T operator()(T x) const {
    return wrap_mul(x, x);
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

void eval_isfinite(const EvalArgs& args) {
  with_real(args.in(0).dtype, [&](auto tag) {
    using T = decltype(tag);
    map<T, 1>(args.out(), {args.in(0)}, [](T x) {
      if constexpr (std::is_integral_v<T>) return true;
      return std::isfinite(static_cast<double>(x));
    });
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
const OpDef aten_isfinite{.name = "aten.isfinite",
                          .schema = "(Tensor self) -> Tensor",
                          .doc = "true where x is neither an infinity nor NaN",
                          .infer = infer_bool,
                          .eval = eval_isfinite};
const OpDef aten_square{.name = "aten.square",
                        .schema = "(Tensor self) -> Tensor",
                        .doc = "x * x",
                        .infer = infer_same,
                        .eval = eval_any_unary<Square>};
const OpDef aten_isinf{.name = "aten.isinf",
                       .schema = "(Tensor self) -> Tensor",
                       .doc = "true where x is an infinity",
                       .infer = infer_bool,
                       .eval = eval_isinf};
}  // namespace tk::ops

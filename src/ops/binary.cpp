// Arithmetic of two tensors, or of a tensor and a number, with PyTorch's promotion.
#include <cmath>
#include <limits>

#include "ops/ops.h"
#include "ops/pointwise.h"

namespace tk::ops {

void need_operand(const Args& args, const Operand& o) {
  if (args.has(o.input) == args.has_attr(o.name))
    args.fail(cat("needs '", o.name, "' as a tensor or as a number"));
}

std::vector<Type> infer_binary(const Args& args) {
  need_operand(args, {1, "other"});
  return {{result_type(args, {{0}, {1, "other"}}), broadcast(args, {{0}, {1}})}};
}

std::vector<Type> infer_compare(const Args& args) {
  return {{DType::boolean, infer_binary(args)[0].shape}};
}

namespace {

// alpha in the computing type.
template <typename T>
T factor(const EvalArgs& args, std::string_view name) {
  const Tensor t = number(*args.attr(name), args.env());
  T buffer{};
  return *load<T>(t, 0, 0, 1, &buffer);
}

void check_alpha(const Args& args) {
  const DType dtype = result_type(args, {{0}, {1, "other"}});
  if (is_integral(dtype) && std::holds_alternative<double>(*args.attr("alpha")))
    args.fail("needs a whole alpha for integers");
}

std::vector<Type> infer_add(const Args& args) {
  auto types = infer_binary(args);
  check_alpha(args);
  return types;
}

// self + alpha * other with `sign` -1 for sub; rsub has the operands in the other order.
template <int sign, bool reversed>
void eval_add(const EvalArgs& args) {
  const DType dtype = args.out().dtype;
  const auto in = operands(args, {{reversed ? 1 : 0, "other"}, {reversed ? 0 : 1, "other"}}, dtype,
                           /*exact_scalars=*/true);
  with_math(dtype, [&](auto tag) {
    using T = decltype(tag);
    const T alpha = wrap_mul(factor<T>(args, "alpha"), T(sign));
    if (alpha == T(1)) {
      map<T, 2>(args.out(), in.views(), [](T a, T b) { return wrap_add(a, b); });
    } else if (alpha == T(-1)) {
      map<T, 2>(args.out(), in.views(), [=](T a, T b) { return wrap_add(a, wrap_mul(b, alpha)); });
    } else {
      map<T, 2>(args.out(), in.views(), [=](T a, T b) { return wrap_add(a, wrap_mul(alpha, b)); });
    }
  });
}

void eval_mul(const EvalArgs& args) {
  const DType dtype = args.out().dtype;
  const auto in = operands(args, {{0}, {1, "other"}}, dtype, /*exact_scalars=*/true);
  with_math(dtype, [&](auto tag) {
    using T = decltype(tag);
    map<T, 2>(args.out(), in.views(), [](T a, T b) { return wrap_mul(a, b); });
  });
}

// Python's // of integers; the caller excludes b == 0.
std::int64_t floor_of(std::int64_t a, std::int64_t b) {
  if (b == -1) return static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(a));
  const std::int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

// Python's // of floats, as PyTorch computes it: exact also where a / b rounds up to a whole.
template <typename T>
T floor_of_float(T a, T b) {
  if (b == T(0)) return a / b;
  const T mod = std::fmod(a, b);
  T div = (a - mod) / b;
  if (mod != T(0) && (b < T(0)) != (mod < T(0))) div -= T(1);
  if (div == T(0)) return std::copysign(T(0), a / b);
  const T whole = std::floor(div);
  return div - whole > T(0.5) ? whole + T(1) : whole;
}

enum class Rounding { none, trunc, floor };

template <typename T, Rounding rounding>
void divide(const EvalArgs& args, const std::array<TensorView, 2>& in) {
  map<T, 2>(args.out(), in, [&](T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0)
        throw UserError("TK0505", cat(args.op().name, ": division of an integer by zero"));
      if constexpr (rounding == Rounding::floor) return floor_of(a, b);
      return b == -1 ? floor_of(a, b) : a / b;
    } else if constexpr (rounding == Rounding::none) {
      return a / b;
    } else if constexpr (rounding == Rounding::trunc) {
      return std::trunc(a / b);
    } else {
      return floor_of_float(a, b);
    }
  });
}

template <Rounding rounding>
void eval_rounded_div(const EvalArgs& args) {
  const DType dtype = args.out().dtype;
  const auto in = operands(args, {{0}, {1, "other"}}, dtype, /*exact_scalars=*/true);
  with_real(dtype, [&](auto tag) { divide<decltype(tag), rounding>(args, in.views()); });
}

void eval_div(const EvalArgs& args) {
  if (args.has_attr("rounding_mode")) {
    return args.text("rounding_mode") == "floor" ? eval_rounded_div<Rounding::floor>(args)
                                                 : eval_rounded_div<Rounding::trunc>(args);
  }
  const DType dtype = args.out().dtype;
  const auto in = operands(args, {{0}, {1, "other"}}, dtype, /*exact_scalars=*/true);
  if (dtype == DType::c64) {
    return map<Complex, 2>(args.out(), in.views(), [](Complex a, Complex b) { return a / b; });
  }
  with_float(dtype, [&](auto tag) { divide<decltype(tag), Rounding::none>(args, in.views()); });
}

std::vector<Type> infer_div(const Args& args) {
  auto types = infer_binary(args);
  if (!args.has_attr("rounding_mode")) {
    types[0].dtype = float_of(types[0].dtype);
  } else {
    const std::string& mode = args.text("rounding_mode");
    if (mode != "floor" && mode != "trunc")
      args.fail(cat("needs rounding_mode to be floor or trunc, got ", mode));
    if (types[0].dtype == DType::c64) args.fail("can't round complex numbers");
  }
  return types;
}

struct Remainder {  // Python's %: the sign of the divisor
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) throw UserError("TK0505", "aten.remainder: division of an integer by zero");
      if (b == -1) return 0;
      const T r = a % b;
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    } else {
      const T r = std::fmod(a, b);
      return r != T(0) && (b < T(0)) != (r < T(0)) ? r + b : r;
    }
  }
};

struct Fmod {  // C's %: the sign of the dividend
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) throw UserError("TK0505", "aten.fmod: division of an integer by zero");
      return b == -1 ? 0 : a % b;
    } else {
      return std::fmod(a, b);
    }
  }
};

// Integers by repeated squaring, wrapping around; a negative exponent gives 0 but for +-1.
std::int64_t int_pow(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  std::int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = wrap_mul(result, base);
    base = wrap_mul(base, base);
  }
  return result;
}

std::vector<Type> infer_pow(const Args& args) {
  need_operand(args, {0, "self"});
  need_operand(args, {1, "exponent"});
  if (!args.has(0) && !args.has(1)) args.fail("needs a tensor");
  const DType dtype = result_type(args, {{0, "self"}, {1, "exponent"}});
  if (dtype == DType::c64) args.fail("is not defined for complex numbers here");
  return {{dtype, broadcast(args, {{0}, {1}})}};
}

void eval_pow(const EvalArgs& args) {
  const DType dtype = args.out().dtype;
  const auto in = operands(args, {{0, "self"}, {1, "exponent"}}, dtype);
  if (is_integral(dtype)) {
    return map<std::int64_t, 2>(args.out(), in.views(), int_pow);
  }
  with_float(dtype, [&](auto tag) {
    using T = decltype(tag);
    // The exponents that PyTorch computes by products.
    const double e = args.has(1) ? std::numeric_limits<double>::quiet_NaN() : args.f64("exponent");
    if (e == 2) return map<T, 1>(args.out(), {in.tensors[0]}, [](T a) { return a * a; });
    if (e == 3) return map<T, 1>(args.out(), {in.tensors[0]}, [](T a) { return a * a * a; });
    map<T, 2>(args.out(), in.views(), [](T a, T b) { return std::pow(a, b); });
  });
}

struct Maximum {
  template <typename T>
  T operator()(T a, T b) const {
    return a != a || a > b ? a : b;
  }
};
struct Minimum {
  template <typename T>
  T operator()(T a, T b) const {
    return a != a || a < b ? a : b;
  }
};

struct LogAddExp {
  template <typename T>
  T operator()(T a, T b) const {
    if (std::isinf(a) && a == b) return a;
    return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
  }
};
struct Atan2 {
  template <typename T>
  T operator()(T a, T b) const {
    return std::atan2(a, b);
  }
};
template <typename F>
void eval_float_pair(const EvalArgs& args) {
  const auto in = operands(args, {{0}, {1}}, args.out().dtype);
  with_float(args.out().dtype,
             [&](auto tag) { map<decltype(tag), 2>(args.out(), in.views(), F{}); });
}

std::vector<Type> infer_extremum(const Args& args) {
  const DType dtype = result_type(args, {{0}, {1}});
  if (dtype == DType::c64) args.fail("is not defined for complex numbers");
  return {{dtype, broadcast(args, {{0}, {1}})}};
}

std::vector<Type> infer_float_pair(const Args& args) {
  auto types = infer_extremum(args);
  types[0].dtype = float_of(types[0].dtype);
  return types;
}

std::vector<Type> infer_real_binary(const Args& args) {
  auto types = infer_binary(args);
  if (types[0].dtype == DType::c64) args.fail("is not defined for complex numbers");
  return types;
}

constexpr std::string_view alpha_schema =
    "(Tensor self, Tensor? other, scalar? other=None, scalar alpha=1) -> Tensor";

}  // namespace

const OpDef aten_add{.name = "aten.add",
                     .schema = alpha_schema,
                     .doc = "self + alpha * other",
                     .infer = infer_add,
                     .eval = eval_add<1, false>};
const OpDef aten_sub{.name = "aten.sub",
                     .schema = alpha_schema,
                     .doc = "self - alpha * other",
                     .infer = infer_add,
                     .eval = eval_add<-1, false>};
const OpDef aten_rsub{.name = "aten.rsub",
                      .schema = alpha_schema,
                      .doc = "other - alpha * self",
                      .infer = infer_add,
                      .eval = eval_add<-1, true>};
const OpDef aten_mul{.name = "aten.mul",
                     .schema = binary_schema,
                     .doc = "self * other",
                     .infer = infer_binary,
                     .eval = eval_mul};
const OpDef aten_div{
    .name = "aten.div",
    .schema =
        "(Tensor self, Tensor? other, scalar? other=None, *, str? rounding_mode=None)"
        " -> Tensor",
    .doc = "self / other; with rounding_mode floor or trunc, whole numbers",
    .infer = infer_div,
    .eval = eval_div};
const OpDef aten_floor_divide{.name = "aten.floor_divide",
                              .schema = binary_schema,
                              .doc = "floor(self / other), as Python's //",
                              .infer = infer_real_binary,
                              .eval = eval_rounded_div<Rounding::floor>};
const OpDef aten_remainder{.name = "aten.remainder",
                           .schema = binary_schema,
                           .doc = "Python's %: the rest has the divisor's sign",
                           .infer = infer_real_binary,
                           .eval = eval_binary<Remainder>};
const OpDef aten_fmod{.name = "aten.fmod",
                      .schema = binary_schema,
                      .doc = "C's %: the rest has the dividend's sign",
                      .infer = infer_real_binary,
                      .eval = eval_binary<Fmod>};
const OpDef aten_pow{
    .name = "aten.pow",
    .schema =
        "(Tensor? self, Tensor? exponent, scalar? self=None, scalar? exponent=None)"
        " -> Tensor",
    .doc = "self to the power of exponent",
    .infer = infer_pow,
    .eval = eval_pow};
const OpDef aten_maximum{.name = "aten.maximum",
                         .schema = "(Tensor self, Tensor other) -> Tensor",
                         .doc = "the larger of two; NaN when either is",
                         .infer = infer_extremum,
                         .eval = eval_binary<Maximum>};
const OpDef aten_minimum{.name = "aten.minimum",
                         .schema = "(Tensor self, Tensor other) -> Tensor",
                         .doc = "the smaller of two; NaN when either is",
                         .infer = infer_extremum,
                         .eval = eval_binary<Minimum>};

const OpDef aten_atan2{.name = "aten.atan2",
                       .schema = "(Tensor self, Tensor other) -> Tensor",
                       .doc = "the angle of the point (other, self)",
                       .infer = infer_float_pair,
                       .eval = eval_float_pair<Atan2>};
const OpDef aten_logaddexp{.name = "aten.logaddexp",
                           .schema = "(Tensor self, Tensor other) -> Tensor",
                           .doc = "ln(e^self + e^other)",
                           .infer = infer_float_pair,
                           .eval = eval_float_pair<LogAddExp>};

}  // namespace tk::ops

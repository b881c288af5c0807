// Elementwise aten operators, casts and the copies of values that no view can give.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "cpu/kernels/elementwise.h"
#include "cpu/loops.h"
#include "cpu/pointwise.h"
#include "cpu/prepare.h"
#include "cpu/rows.h"

namespace tk {
namespace {

// ---- the loops ----

#define TK_FLOAT_LOOP(name, expression)                                \
  TK_CLONES void name(float* y, const float* const* x, int n) {        \
    [[maybe_unused]] const float* a = x[0];                            \
    [[maybe_unused]] const float* b = x[1];                            \
    [[maybe_unused]] const float* c = x[2];                            \
    for (int i = 0; i < n; ++i) y[i] = static_cast<float>(expression); \
  }
#define TK_INT_LOOP(name, expression)                                         \
  TK_CLONES void name(std::int64_t* y, const std::int64_t* const* x, int n) { \
    [[maybe_unused]] const std::int64_t* a = x[0];                            \
    [[maybe_unused]] const std::int64_t* b = x[1];                            \
    [[maybe_unused]] const std::int64_t* c = x[2];                            \
    for (int i = 0; i < n; ++i) y[i] = static_cast<std::int64_t>(expression); \
  }
#define TK_LOOPS(name, expression)        \
  TK_FLOAT_LOOP(float_##name, expression) \
  TK_INT_LOOP(int_##name, expression)

// Signed overflow wraps around, as torch's does.
std::int64_t wrap(std::uint64_t x) { return static_cast<std::int64_t>(x); }
std::uint64_t bits(std::int64_t x) { return static_cast<std::uint64_t>(x); }

TK_FLOAT_LOOP(float_add, a[i] + b[i])
TK_FLOAT_LOOP(float_sub, a[i] - b[i])
TK_FLOAT_LOOP(float_mul, a[i] * b[i])
TK_INT_LOOP(int_add, wrap(bits(a[i]) + bits(b[i])))
TK_INT_LOOP(int_sub, wrap(bits(a[i]) - bits(b[i])))
TK_INT_LOOP(int_mul, wrap(bits(a[i]) * bits(b[i])))
TK_FLOAT_LOOP(float_div, a[i] / b[i])
// NaN when either is.
TK_FLOAT_LOOP(float_maximum, a[i] != a[i] || a[i] > b[i] ? a[i] : b[i])
TK_FLOAT_LOOP(float_minimum, a[i] != a[i] || a[i] < b[i] ? a[i] : b[i])
TK_LOOPS(eq, a[i] == b[i])
TK_LOOPS(ne, a[i] != b[i])
TK_LOOPS(lt, a[i] < b[i])
TK_LOOPS(le, a[i] <= b[i])
TK_LOOPS(gt, a[i] > b[i])
TK_LOOPS(ge, a[i] >= b[i])
TK_LOOPS(logical_and, (a[i] != 0) & (b[i] != 0))
TK_LOOPS(logical_or, (a[i] != 0) | (b[i] != 0))
TK_LOOPS(logical_not, a[i] == 0)
TK_INT_LOOP(int_and, a[i] & b[i])
TK_INT_LOOP(int_or, a[i] | b[i])
TK_LOOPS(where, a[i] != 0 ? b[i] : c[i])
TK_LOOPS(masked_fill, b[i] != 0 ? c[i] : a[i])
TK_FLOAT_LOOP(float_clamp, a[i]<b[i] ? b[i] : a[i]> c[i] ? c[i] : a[i])
TK_LOOPS(copy, a[i])
TK_FLOAT_LOOP(float_not_zero, a[i] != 0)
TK_INT_LOOP(int_not_zero, a[i] != 0)
TK_FLOAT_LOOP(float_neg, -a[i])
TK_INT_LOOP(int_neg, wrap(0 - bits(a[i])))
TK_FLOAT_LOOP(float_abs, std::fabs(a[i]))
TK_FLOAT_LOOP(float_square, a[i] * a[i])
TK_FLOAT_LOOP(float_cube, a[i] * a[i] * a[i])
TK_FLOAT_LOOP(float_sqrt, std::sqrt(a[i]))
TK_FLOAT_LOOP(float_rsqrt, 1.0F / std::sqrt(a[i]))
TK_FLOAT_LOOP(float_reciprocal, 1.0F / a[i])
TK_FLOAT_LOOP(float_exp, std::exp(a[i]))
TK_FLOAT_LOOP(float_log, std::log(a[i]))
TK_FLOAT_LOOP(float_sin, std::sin(a[i]))
TK_FLOAT_LOOP(float_cos, std::cos(a[i]))
TK_FLOAT_LOOP(float_pow, std::pow(a[i], b[i]))

// Functions that the SIMD kernels have.
template <kernels::Activation act>
void activation(float* y, const float* const* x, int n) {
  kernels::UnaryArgs a;
  a.act = act;
  a.x = {x[0], DType::f32, n};
  a.y = {y, DType::f32, n};
  a.rows = 1;
  a.cols = n;
  kernels::unary(a, 0, 1);
}

// ---- operands ----

struct Loops {
  FloatLoop in_float;
  IntLoop in_int = nullptr;
};

float round_to(DType dtype, double x) {
  const auto f = static_cast<float>(x);
  if (dtype == DType::bf16) return to_float(to_bf16(f));
  if (dtype == DType::f16) return to_float(to_f16(f));
  return f;
}

// An input, or the number that stands for it.
struct Operand {
  int input;
  const char* attr = nullptr;
};

bool integer(DType t) { return is_integral(t); }

// y = loop(operands). `exact` numbers keep their precision beside 16-bit floats, as torch's add,
// sub, mul and div have it; others are rounded to the dtype that is computed in.
const char* pointwise_of(Prepare& p, const Loops& loops, std::initializer_list<Operand> operands,
                         bool exact = false) {
  const TensorView& out = p.out();
  PointwiseArgs a;
  DType math = out.dtype;  // the widest of the tensors: what torch computes in
  bool any_float = kernel_float(out.dtype);
  bool any_number = false;
  for (const Operand& o : operands) {
    if (!p.has(o.input)) continue;
    const DType t = p.in(o.input).dtype;
    if (t == DType::f64 || t == DType::c64) return "f64 or complex operands";
    if (kernel_float(t) && !kernel_float(math)) math = t;
    if (kernel_float(t) && kernel_float(math) && math != t) math = DType::f32;
    any_float |= kernel_float(t);
  }
  if (out.dtype == DType::f64 || out.dtype == DType::c64) return "a result of f64 or complex";
  a.n_in = static_cast<int>(operands.size());
  std::array<Dims, max_operands + 1> strides;
  std::size_t k = 0;
  std::array<double, max_operands> numbers{};
  std::array<bool, max_operands> is_number{};
  for (const Operand& o : operands) {
    strides[k] = out.shape;
    for (auto& s : strides[k]) s = 0;
    if (p.has(o.input)) {
      const TensorView& t = p.in(o.input);
      // An integer beside 16-bit floats would be rounded to 16 bits first.
      if (any_float && integer(t.dtype) && t.dtype != DType::boolean && math != DType::f32)
        return "integers beside 16-bit floats";
      const int lead = out.rank() - t.rank();
      if (lead < 0) return "an operand of higher rank";
      for (int i = 0; i < t.rank(); ++i)
        strides[k][lead + i] = t.shape[i] == 1 && out.shape[lead + i] != 1 ? 0 : t.strides[i];
      a.in[k].data = t.data;
      a.in[k].dtype = t.dtype;
    } else {
      if (o.attr == nullptr || !p.args.has_attr(o.attr)) return "an operand that is absent";
      numbers[k] = p.args.f64(o.attr);
      is_number[k] = any_number = true;
      any_float |= std::holds_alternative<double>(*p.args.attr(o.attr));
    }
    ++k;
  }
  if (any_float ? loops.in_float == nullptr : loops.in_int == nullptr)
    return "this kind of operand";
  // Integers with a fractional number, compared or chosen: f32 in torch.
  if (any_float && !kernel_float(math)) math = DType::f32;
  if (any_number) {
    for (std::size_t i = 0; i < max_operands; ++i) {
      if (!is_number[i]) continue;
      if (any_float) {
        auto* f = p.keep<float>(1);
        *f = exact ? static_cast<float>(numbers[i]) : round_to(math, numbers[i]);
        a.in[i].data = f;
        a.in[i].dtype = DType::f32;
      } else {
        // Beyond 2^53 a double would not do.
        if (std::abs(numbers[i]) > 9e15) return "a large number";
        auto* v = p.keep<std::int64_t>(1);
        *v = static_cast<std::int64_t>(numbers[i]);
        a.in[i].data = v;
        a.in[i].dtype = DType::i64;
      }
    }
  }
  Dims shape = out.shape;
  if (shape.numel() == 0) return "an empty result";
  strides[k] = out.strides;
  Dims* list[max_operands + 1];
  for (std::size_t i = 0; i <= k; ++i) list[i] = &strides[i];
  a.rank = merge_all(&shape, list, static_cast<int>(k) + 1);
  std::copy(shape.begin(), shape.end(), a.shape.begin());
  for (std::size_t i = 0; i < k; ++i)
    std::copy(strides[i].begin(), strides[i].end(), a.in[i].strides.begin());
  std::copy(strides[k].begin(), strides[k].end(), a.out.strides.begin());
  a.out.data = out.data;
  a.out.dtype = out.dtype;
  if (any_float)
    a.in_float = loops.in_float;
  else
    a.in_int = loops.in_int;
  // What is repeated is read from the cache.
  std::int64_t bytes = out.bytes();
  for (const Operand& o : operands)
    if (p.has(o.input)) bytes += std::min(p.in(o.input).bytes(), out.numel() * 8);
  p.launch<pointwise>("pointwise", bytes) = a;
  return nullptr;
}

const char* move_into(Prepare& p, const TensorView& y, const TensorView& x) {
  const auto size = static_cast<std::int64_t>(size_of(x.dtype));
  if (x.dtype != y.dtype) return "another dtype";
  MoveArgs a;
  a.from = x.data;
  a.to = y.data;
  a.size = size;
  Dims shape = x.shape;
  Dims from = x.strides;
  Dims to = y.strides;
  Dims* strides[] = {&from, &to};
  a.rank = merge_all(&shape, strides, 2);
  std::copy(shape.begin(), shape.end(), a.shape.begin());
  std::copy(from.begin(), from.end(), a.from_strides.begin());
  std::copy(to.begin(), to.end(), a.to_strides.begin());
  p.launch<move>("move", 2 * x.bytes()) = a;
  return nullptr;
}

const char* unary(Prepare& p, const Loops& loops) { return pointwise_of(p, loops, {{0}}); }
const char* binary(Prepare& p, const Loops& loops, bool exact = false) {
  return pointwise_of(p, loops, {{0}, {1, "other"}}, exact);
}

}  // namespace

const char* prepare_add(Prepare& p) {
  if (p.out().dtype == DType::boolean) return "bool";
  if (p.args.f64("alpha") != 1) return "alpha is not 1";
  return binary(p, {float_add, int_add}, true);
}
const char* prepare_sub(Prepare& p) {
  if (p.args.f64("alpha") != 1) return "alpha is not 1";
  return binary(p, {float_sub, int_sub}, true);
}
const char* prepare_rsub(Prepare& p) {
  if (p.args.f64("alpha") != 1) return "alpha is not 1";
  return pointwise_of(p, {float_sub, int_sub}, {{1, "other"}, {0}}, true);
}
const char* prepare_mul(Prepare& p) { return binary(p, {float_mul, int_mul}, true); }
const char* prepare_div(Prepare& p) {
  if (p.args.has_attr("rounding_mode")) return "a rounding mode";
  return binary(p, {float_div}, true);
}
const char* prepare_maximum(Prepare& p) { return binary(p, {float_maximum}); }
const char* prepare_minimum(Prepare& p) { return binary(p, {float_minimum}); }
const char* prepare_eq(Prepare& p) { return binary(p, {float_eq, int_eq}); }
const char* prepare_ne(Prepare& p) { return binary(p, {float_ne, int_ne}); }
const char* prepare_lt(Prepare& p) { return binary(p, {float_lt, int_lt}); }
const char* prepare_le(Prepare& p) { return binary(p, {float_le, int_le}); }
const char* prepare_gt(Prepare& p) { return binary(p, {float_gt, int_gt}); }
const char* prepare_ge(Prepare& p) { return binary(p, {float_ge, int_ge}); }
const char* prepare_logical_and(Prepare& p) {
  return binary(p, {float_logical_and, int_logical_and});
}
const char* prepare_logical_or(Prepare& p) { return binary(p, {float_logical_or, int_logical_or}); }
const char* prepare_logical_not(Prepare& p) {
  return unary(p, {float_logical_not, int_logical_not});
}
const char* prepare_bitwise_and(Prepare& p) { return binary(p, {nullptr, int_and}); }
const char* prepare_bitwise_or(Prepare& p) { return binary(p, {nullptr, int_or}); }
const char* prepare_bitwise_not(Prepare& p) {
  if (p.in(0).dtype != DType::boolean) return "not bool";
  return unary(p, {nullptr, int_logical_not});
}
const char* prepare_where(Prepare& p) {
  return pointwise_of(p, {float_where, int_where}, {{0}, {1, "self"}, {2, "other"}});
}
const char* prepare_masked_fill(Prepare& p) {
  return pointwise_of(p, {float_masked_fill, int_masked_fill}, {{0}, {1}, {2, "value"}});
}
const char* prepare_clamp(Prepare& p) {
  const bool low = p.has(1) || p.args.has_attr("min");
  const bool high = p.has(2) || p.args.has_attr("max");
  if (!high) return pointwise_of(p, {float_maximum}, {{0}, {1, "min"}});
  if (!low) return pointwise_of(p, {float_minimum}, {{0}, {2, "max"}});
  return pointwise_of(p, {float_clamp}, {{0}, {1, "min"}, {2, "max"}});
}
const char* prepare_clamp_min(Prepare& p) {
  return pointwise_of(p, {float_maximum}, {{0}, {1, "min"}});
}
const char* prepare_clamp_max(Prepare& p) {
  return pointwise_of(p, {float_minimum}, {{0}, {1, "max"}});
}
const char* prepare_pow(Prepare& p) {
  if (!p.has(0)) return "a number to a power";
  if (!p.has(1)) {
    const double e = p.args.f64("exponent");
    if (e == 2) return unary(p, {float_square});
    if (e == 3) return unary(p, {float_cube});
    if (e == 0.5) return unary(p, {float_sqrt});
    if (e == -0.5) return unary(p, {float_rsqrt});
    if (e == -1) return unary(p, {float_reciprocal});
  }
  return pointwise_of(p, {float_pow}, {{0}, {1, "exponent"}});
}
const char* prepare_neg(Prepare& p) { return unary(p, {float_neg, int_neg}); }
const char* prepare_abs(Prepare& p) { return unary(p, {float_abs}); }
const char* prepare_sqrt(Prepare& p) { return unary(p, {float_sqrt}); }
const char* prepare_rsqrt(Prepare& p) { return unary(p, {float_rsqrt}); }
const char* prepare_reciprocal(Prepare& p) { return unary(p, {float_reciprocal}); }
const char* prepare_exp(Prepare& p) { return unary(p, {float_exp}); }
const char* prepare_log(Prepare& p) { return unary(p, {float_log}); }
const char* prepare_sin(Prepare& p) { return unary(p, {float_sin}); }
const char* prepare_cos(Prepare& p) { return unary(p, {float_cos}); }
const char* prepare_silu(Prepare& p) { return unary(p, {activation<kernels::Activation::silu>}); }
const char* prepare_sigmoid(Prepare& p) {
  return unary(p, {activation<kernels::Activation::sigmoid>});
}
const char* prepare_tanh(Prepare& p) { return unary(p, {activation<kernels::Activation::tanh>}); }
const char* prepare_relu(Prepare& p) {
  if (!kernel_float(p.in(0).dtype)) return "not float";
  return unary(p, {activation<kernels::Activation::relu>});
}
const char* prepare_gelu(Prepare& p) {
  if (p.args.text("approximate") == "tanh")
    return unary(p, {activation<kernels::Activation::gelu_tanh>});
  return unary(p, {activation<kernels::Activation::gelu_erf>});
}

const char* prepare_cast(Prepare& p) {
  const DType to = p.out().dtype;
  const DType from = p.in(0).dtype;
  if (from == to) return move_into(p, p.out(), p.in(0));
  if (to == DType::boolean) return unary(p, {float_not_zero, int_not_zero});
  if (kernel_float(from) && integer(to)) return "floats to integers";
  return unary(p, {float_copy, int_copy});
}

// The result has the input's elements in row-major order; views were not possible.
const char* prepare_move(Prepare& p) {
  if (p.in(0).numel() != p.out().numel()) return "another number of elements";
  TensorView y = p.out();
  y.shape = p.in(0).shape;
  y.strides = contiguous_strides(y.shape);
  return move_into(p, y, p.in(0));
}

const char* prepare_cat(Prepare& p) {
  const TensorView& out = p.out();
  std::int64_t dim = p.args.i64("dim");
  if (dim < 0) dim += out.rank();
  for (int i = 0; i < p.args.n_inputs(); ++i)
    if (!p.has(i) || p.in(i).dtype != out.dtype || p.in(i).rank() != out.rank())
      return "operands of another dtype or rank";
  std::int64_t at = 0;
  for (int i = 0; i < p.args.n_inputs(); ++i) {
    TensorView part = out;
    part.shape = p.in(i).shape;
    part.data =
        static_cast<std::byte*>(out.data) +
        at * out.strides[static_cast<int>(dim)] * static_cast<std::int64_t>(size_of(out.dtype));
    at += part.shape[static_cast<int>(dim)];
    if (part.numel() == 0) continue;
    move_into(p, part, p.in(i));
  }
  return nullptr;
}

// Reductions over the last axis.
namespace {
const char* reduce(Prepare& p, Reduction kind) {
  const TensorView& x = p.in(0);
  Matrix m;
  if (!kernel_float(x.dtype) || !kernel_float(p.out().dtype)) return "dtypes";
  if (!p.args.has_attr("dim")) return "more than the last axis";
  const Dims dims = p.args.ints("dim");
  if (dims.size() != 1 || (dims[0] != -1 && dims[0] != x.rank() - 1)) return "not the last axis";
  if (!as_matrix(x, &m) || m.cols == 0 || m.rows == 0) return "strides";
  p.launch<reduce_rows>("reduce_rows", x.bytes()) = {kind,          x.data, p.out().data, x.dtype,
                                                     p.out().dtype, m.rows, m.cols,       m.stride};
  return nullptr;
}
}  // namespace
const char* prepare_mean(Prepare& p) { return reduce(p, Reduction::mean); }
const char* prepare_sum(Prepare& p) { return reduce(p, Reduction::sum); }
const char* prepare_amax(Prepare& p) { return reduce(p, Reduction::max); }

}  // namespace tk

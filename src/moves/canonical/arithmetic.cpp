// Arithmetic that changes nothing, and second names of operators. Each rule is exact: the result is
// the same to the bit (for zeros, their sign too).
#include <cmath>

#include "moves/canonical/rules.h"

namespace tk::canonical {
namespace {

bool keeps_type(const Node& n) { return type(n) == n.out()->type; }

const Attr* number(const Node& n) { return n.in(1) == nullptr ? n.attrs.find("other") : nullptr; }

Replacement renamed(Builder& b, const Node& n, std::string_view op) {
  return {b.op(op, n.inputs, n.attrs)};
}

}  // namespace

bool is_number(const Attr& a, double value) {
  if (const Sym* s = std::get_if<Sym>(&a))
    return s->is_const() && static_cast<double>(s->value()) == value;
  if (const double* d = std::get_if<double>(&a)) return *d == value;
  return false;
}

// Of integers only: -0.0 + 0 is 0.0.
Replacement drop_add_zero(Builder&, const Node& n) {
  const Attr* other = number(n);
  if (other == nullptr || !is_number(*other, 0) || !keeps_type(n) || is_float(type(n).dtype))
    return {};
  return {n.in(0)};
}

Replacement drop_sub_zero(Builder&, const Node& n) {
  const Attr* other = number(n);
  if (other == nullptr || !is_number(*other, 0) || !keeps_type(n)) return {};
  if (const double* d = std::get_if<double>(other); d != nullptr && std::signbit(*d)) return {};
  return {n.in(0)};
}

// other - alpha * self
Replacement spell_rsub(Builder& b, const Node& n) {
  if (n.in(1) == nullptr) return {};
  return {b.op("aten.sub", {n.in(1), n.in(0)}, n.attrs)};
}

// mul and div
Replacement drop_mul_one(Builder&, const Node& n) {
  const Attr* other = number(n);
  if (other == nullptr || !is_number(*other, 1) || !keeps_type(n)) return {};
  if (n.attrs.find("rounding_mode") != nullptr) return {};
  return {n.in(0)};
}

Replacement square_to_pow(Builder& b, const Node& n) {
  if (n.in(1) != n.in(0) || n.out()->type.dtype == DType::c64) return {};  // pow takes no complex
  return {b.op("aten.pow", {n.in(0)}, {{"exponent", Sym(2)}})};
}

// Exact for powers of two: both scale the exponent, and round alike where the result is subnormal.
Replacement div_to_mul(Builder& b, const Node& n) {
  const Attr* other = number(n);
  if (other == nullptr || !is_float(type(n).dtype) || n.attrs.find("rounding_mode") != nullptr)
    return {};
  double d = 0;
  if (const Sym* s = std::get_if<Sym>(other)) {
    if (!s->is_const()) return {};
    d = static_cast<double>(s->value());
  } else if (const double* v = std::get_if<double>(other)) {
    d = *v;
  }
  int exponent = 0;
  const double mantissa = std::frexp(std::fabs(d), &exponent);
  if (mantissa != 0.5 || exponent < -60 || exponent > 60) return {};
  return {b.op("aten.mul", {n.in(0)}, {{"other", 1.0 / d}})};
}

Replacement drop_pow_one(Builder&, const Node& n) {
  const Attr* exponent = n.attrs.find("exponent");
  if (n.in(1) != nullptr || exponent == nullptr || !is_number(*exponent, 1) || !keeps_type(n))
    return {};
  return {n.in(0)};
}

Replacement spell_and(Builder& b, const Node& n) { return renamed(b, n, "aten.bitwise_and"); }
Replacement spell_or(Builder& b, const Node& n) { return renamed(b, n, "aten.bitwise_or"); }
Replacement spell_xor(Builder& b, const Node& n) { return renamed(b, n, "aten.bitwise_xor"); }
Replacement spell_left_shift(Builder& b, const Node& n) {
  return renamed(b, n, "aten.bitwise_left_shift");
}
Replacement spell_right_shift(Builder& b, const Node& n) {
  return renamed(b, n, "aten.bitwise_right_shift");
}

namespace {
bool all_bool(const Node& n) {
  for (const Value* v : n.inputs)
    if (v == nullptr || v->type.dtype != DType::boolean) return false;
  return true;
}
}  // namespace

Replacement spell_logical_and(Builder& b, const Node& n) {
  return all_bool(n) ? renamed(b, n, "aten.bitwise_and") : Replacement{};
}
Replacement spell_logical_or(Builder& b, const Node& n) {
  return all_bool(n) ? renamed(b, n, "aten.bitwise_or") : Replacement{};
}
Replacement spell_logical_not(Builder& b, const Node& n) {
  return all_bool(n) ? renamed(b, n, "aten.bitwise_not") : Replacement{};
}

namespace {
// x & true, x | false, either way round.
Replacement drop_neutral(const Node& n, bool neutral) {
  if (n.in(1) == nullptr) return {};
  for (const int i : {0, 1}) {
    const auto fill = filled_with(n.in(i));
    const bool* value = fill ? std::get_if<bool>(&*fill) : nullptr;
    if (value != nullptr && *value == neutral && n.in(1 - i)->type == n.out()->type)
      return {n.in(1 - i)};
  }
  return {};
}
}  // namespace

Replacement drop_and_true(Builder&, const Node& n) { return drop_neutral(n, true); }
Replacement drop_or_false(Builder&, const Node& n) { return drop_neutral(n, false); }

Replacement spell_clamp(Builder& b, const Node& n) {
  const std::string_view name = n.is("aten.clamp_min") ? "min" : "max";
  const Attr* limit = n.attrs.find(name);
  if (n.in(1) != nullptr || limit == nullptr) return {};
  Value* v = b.op("aten.clamp", {n.in(0)}, {{std::string(name), *limit}});
  if (v->type != n.out()->type) return {};
  return {v};
}

Replacement spell_softmax(Builder& b, const Node& n) {
  Attrs attrs{{"dim", n.args().sym("dim")}};
  if (n.out()->type.dtype != type(n).dtype) attrs.set("dtype", n.out()->type.dtype);
  return {b.op("aten.softmax", {n.in(0)}, std::move(attrs))};
}

// A dtype that is the input's own.
Replacement drop_dtype(Builder& b, const Node& n) {
  const Attr* dtype = n.attrs.find("dtype");
  if (dtype == nullptr || !(*dtype == Attr(type(n).dtype))) return {};
  Attrs attrs = n.attrs;
  attrs.erase("dtype");
  Value* v = b.op(n.op->name, n.inputs, std::move(attrs));
  if (v->type != n.out()->type) return {};  // sums of bool and small integers are i64
  return {v};
}

// max over a dim of which only the values are wanted.
Replacement max_to_amax(Builder& b, const Node& n) {
  if (n.outputs.size() != 2 || !n.out(1)->uses.empty()) return {};
  Value* v = b.op("aten.amax", {n.in(0)},
                  {{"dim", SymDims{n.args().sym("dim")}}, {"keepdim", n.args().flag("keepdim")}});
  return {v, nullptr};
}

}  // namespace tk::canonical

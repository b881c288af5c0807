// Filled tensors.
#include <cmath>

#include "moves/canonical/rules.h"
#include "ops/interpret.h"

namespace tk::canonical {
namespace {

// zeros for empty: what new memory holds is undefined, so any value is right.
Attr fill_of(const Node& n) {
  const std::string_view name = n.op->name;
  if (name == "aten.full" || name == "aten.new_full" || name == "aten.full_like")
    return *n.args().attr("fill_value");
  if (name == "aten.scalar_tensor") return *n.args().attr("s");
  const bool one = name.find("ones") != std::string_view::npos;
  return Sym(one ? 1 : 0);
}

// In the kind of the dtype, so that 1, 1.0 and true are one spelling.
Attr in_kind(Attr value, DType dtype) {
  double d = 0;
  if (const Sym* s = std::get_if<Sym>(&value)) {
    if (!s->is_const()) return value;
    if (dtype == DType::boolean) return s->value() != 0;
    if (!is_float(dtype)) return value;
    return static_cast<double>(s->value());
  }
  if (const double* v = std::get_if<double>(&value)) d = *v;
  if (const bool* v = std::get_if<bool>(&value)) d = *v ? 1 : 0;
  if (dtype == DType::boolean) return d != 0;
  if (is_float(dtype)) return d;
  if (is_integral(dtype) && d == static_cast<double>(static_cast<std::int32_t>(d)))
    return Sym(static_cast<std::int64_t>(d));
  return value;
}

}  // namespace

Replacement spell_full(Builder& b, const Node& n) {
  const Type& t = n.out()->type;
  return {
      b.op("aten.full", {},
           {{"size", t.shape}, {"fill_value", in_kind(fill_of(n), t.dtype)}, {"dtype", t.dtype}})};
}

Replacement spell_full_dtype(Builder& b, const Node& n) {
  const Type& t = n.out()->type;
  const Attr fill = in_kind(fill_of(n), t.dtype);
  if (n.attrs.find("dtype") != nullptr && fill == *n.attrs.find("fill_value") &&
      n.args().syms("size") == t.shape)
    return {};
  return {b.op("aten.full", {}, {{"size", t.shape}, {"fill_value", fill}, {"dtype", t.dtype}})};
}

// Follows the shape of its input, which may say more about the axes than the sizes do.
Replacement spell_full_like(Builder& b, const Node& n) {
  const Type& t = n.out()->type;
  Attrs attrs{{"fill_value", in_kind(fill_of(n), t.dtype)}};
  if (t.dtype != type(n).dtype) attrs.set("dtype", t.dtype);
  return {b.op("aten.full_like", {n.in(0)}, std::move(attrs))};
}

std::optional<Attr> filled_with(const Value* v) {
  const Node* n = made_by(v, "aten.full");
  if (n == nullptr) return std::nullopt;
  return in_kind(fill_of(*n), v->type.dtype);
}

// The same elements in another shape are all the same number still.
Replacement fold_shape(Builder& b, const Node& n) {
  const auto fill = filled_with(n.in(0));
  if (!fill) return {};
  const Type& t = n.out()->type;
  return {b.op("aten.full", {}, {{"size", t.shape}, {"fill_value", *fill}, {"dtype", t.dtype}})};
}

// An element-wise operator on filled tensors: computed once, here, by its own reference.
Replacement fold_number(Builder& b, const Node& n) {
  constexpr double exact = 9007199254740992.0;  // beyond 2^53 a double skips integers
  std::vector<Tensor> inputs;
  for (const Value* v : n.inputs) {
    if (v == nullptr) {
      inputs.emplace_back();
      continue;
    }
    const auto fill = filled_with(v);
    if (!fill) return {};
    double value = 0;
    if (const Sym* s = std::get_if<Sym>(&*fill)) {
      if (!s->is_const()) return {};
      value = static_cast<double>(s->value());
    } else if (const double* d = std::get_if<double>(&*fill)) {
      value = *d;
    } else if (const bool* flag = std::get_if<bool>(&*fill)) {
      value = *flag ? 1 : 0;
    }
    if (is_integral(v->type.dtype) && std::fabs(value) >= exact) return {};
    Dims ones;  // of the same rank: promotion asks for it
    for (int i = 0; i < v->type.rank(); ++i) ones.push_back(1);
    Tensor one = Tensor::empty(v->type.dtype, ones);
    set_element(one, 0, value);
    inputs.push_back(std::move(one));
  }
  for (const auto& [key, value] : n.attrs)
    if (const Sym* s = std::get_if<Sym>(&value); s != nullptr && !s->is_const()) return {};
  const Type& t = n.out()->type;
  if (t.dtype == DType::c64) return {};
  const double value = element(evaluate(*n.op, inputs, n.attrs).at(0), 0);
  if (std::isnan(value) || (is_integral(t.dtype) && std::fabs(value) >= exact)) return {};
  Attr fill = value;
  if (is_integral(t.dtype)) fill = Sym(static_cast<std::int64_t>(value));
  return {b.op("aten.full", {},
               {{"size", t.shape}, {"fill_value", in_kind(fill, t.dtype)}, {"dtype", t.dtype}})};
}

}  // namespace tk::canonical

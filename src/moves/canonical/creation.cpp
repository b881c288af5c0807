// Filled tensors.
#include "moves/canonical/rules.h"

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

}  // namespace tk::canonical

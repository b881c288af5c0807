#include "graph/limit_value.h"

#include <map>

#include "base/error.h"

namespace tk::limit {

Val list_of(List items) { return {std::make_shared<List>(std::move(items))}; }
Val integer(std::int64_t i) { return {Sym(i)}; }

Val of_attr(const Attr* attr) {
  if (attr == nullptr) return {None{}};
  if (const auto* b = std::get_if<bool>(attr)) return {*b};
  if (const auto* s = std::get_if<Sym>(attr)) return {*s};
  if (const auto* d = std::get_if<double>(attr)) return {*d};
  if (const auto* t = std::get_if<std::string>(attr)) return {*t};
  if (const auto* d = std::get_if<DType>(attr)) return {*d};
  List items;
  if (const auto* l = std::get_if<SymDims>(attr))
    for (const Sym& s : *l) items.push_back({s});
  else
    for (double d : std::get<std::vector<double>>(*attr)) items.push_back({d});
  return list_of(std::move(items));
}

std::string text_of(const Val& v) {
  if (v.none()) return "None";
  if (v.unknown()) return "?";
  if (const auto* b = v.get<bool>()) return *b ? "True" : "False";
  if (const auto* s = v.get<Sym>()) return s->str();
  if (const auto* d = v.get<double>()) return cat(*d);
  if (const auto* t = v.get<std::string>()) return cat('"', *t, '"');
  if (const auto* d = v.get<DType>()) return std::string(name_of(*d));
  if (const auto* t = v.get<TensorRef>()) return t->type->str();
  std::string out = "[";
  const List& items = **v.get<std::shared_ptr<List>>();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i == 8) {
      out += ", ...";
      break;
    }
    out += (i == 0 ? "" : ", ") + text_of(items[i]);
  }
  return out + "]";
}

std::optional<DType> dtype_named(std::string_view name) {
  static const std::map<std::string_view, DType> names = {
      {"fp32", DType::f32},  {"fp16", DType::f16},    {"bf16", DType::bf16}, {"fp64", DType::f64},
      {"int64", DType::i64}, {"int32", DType::i32},   {"int16", DType::i16}, {"int8", DType::i8},
      {"uint8", DType::u8},  {"bool", DType::boolean}};
  const auto it = names.find(name);
  return it == names.end() ? std::nullopt : std::optional(it->second);
}

// What may be known beyond the call.
bool is_fact(std::string_view name) {
  return name == "graph" || name == "phase" || name == "world" || name == "weight_nz";
}

// Contents as a list of numbers.
Val contents(const TensorRef& t) {
  if (t.data == nullptr || t.data->data == nullptr) return {Unknown{}};
  List items;
  const std::int64_t n = t.data->numel();
  items.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const double d = element(*t.data, i);
    items.push_back(is_integral(t.type->dtype) ? integer(static_cast<std::int64_t>(d)) : Val{d});
  }
  return list_of(std::move(items));
}

// A list, or a tensor's contents; null when not known.
std::shared_ptr<List> items_of(const Val& v) {
  if (const auto* l = v.get<std::shared_ptr<List>>()) return *l;
  if (const auto* t = v.get<TensorRef>())
    if (const Val c = contents(*t); !c.unknown()) return *c.get<std::shared_ptr<List>>();
  return nullptr;
}

std::optional<double> number(const Val& v) {
  if (const auto* b = v.get<bool>()) return *b ? 1 : 0;
  if (const auto* d = v.get<double>()) return *d;
  if (const auto* s = v.get<Sym>(); s != nullptr && s->is_const())
    return static_cast<double>(s->value());
  return std::nullopt;
}

// -1, 0, 1, or nothing when it depends on what symbols are.
std::optional<int> order(const Val& a, const Val& b) {
  const auto* x = a.get<Sym>();
  const auto* y = b.get<Sym>();
  if (x != nullptr && y != nullptr) {
    const Sym d = *x - *y;
    if (!d.is_const()) return std::nullopt;
    return d.value() < 0 ? -1 : d.value() > 0 ? 1 : 0;
  }
  const auto p = number(a);
  const auto q = number(b);
  if (!p || !q) return std::nullopt;
  return *p < *q ? -1 : *p > *q ? 1 : 0;
}

std::optional<bool> equal(const Val& a, const Val& b) {
  if (a.unknown() || b.unknown()) return std::nullopt;
  const auto la = items_of(a);
  const auto lb = items_of(b);
  if (la != nullptr && lb != nullptr) {
    if (la->size() != lb->size()) return false;
    std::optional<bool> all = true;
    for (std::size_t i = 0; i < la->size(); ++i) {
      const auto e = equal((*la)[i], (*lb)[i]);
      if (e && !*e) return false;
      if (!e) all = std::nullopt;
    }
    return all;
  }
  if (a.v.index() == b.v.index()) {
    if (a.none()) return true;
    if (const auto* s = a.get<std::string>()) return *s == *b.get<std::string>();
    if (const auto* d = a.get<DType>()) return *d == *b.get<DType>();
    if (const auto* f = a.get<bool>()) return *f == *b.get<bool>();
  }
  const bool numbers = (a.get<Sym>() || a.get<double>() || a.get<bool>()) &&
                       (b.get<Sym>() || b.get<double>() || b.get<bool>());
  if (!numbers) return false;
  const auto o = order(a, b);
  if (!o) return std::nullopt;
  return *o == 0;
}

}  // namespace tk::limit

#include "import/pt2_symbols.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"

namespace tk {
namespace {

// A guard that is a comparison of a size with a size or a number:
//   L['input_ids'].size()[0] == L['position_ids'].size()[0]
struct Side {
  std::string_view input;  // empty: a number
  std::int64_t value = 0;  // the axis, or the number
};

std::optional<std::int64_t> number(std::string_view s) {
  std::int64_t v = 0;
  auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
  if (error != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return v;
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

std::optional<Side> parse_side(std::string_view s) {
  s = trim(s);
  if (auto v = number(s)) return Side{{}, *v};
  constexpr std::string_view open = "L['";
  constexpr std::string_view middle = "'].size()[";
  if (!s.starts_with(open) || !s.ends_with(']')) return std::nullopt;
  s.remove_prefix(open.size());
  s.remove_suffix(1);
  const std::size_t at = s.find(middle);
  if (at == std::string_view::npos) return std::nullopt;
  const auto axis = number(s.substr(at + middle.size()));
  if (!axis) return std::nullopt;
  return Side{s.substr(0, at), *axis};
}

std::optional<std::string> plain_symbol(const Sym& s) {
  std::set<std::string, std::less<>> names;
  s.collect_symbols(&names);
  if (names.size() == 1 && s == Sym::symbol(*names.begin())) return *names.begin();
  return std::nullopt;
}

}  // namespace

DType pt2_dtype(const json::Value& value) {
  switch (value.integer()) {
    case 1:
      return DType::u8;
    case 2:
      return DType::i8;
    case 3:
      return DType::i16;
    case 4:
      return DType::i32;
    case 5:
      return DType::i64;
    case 6:
      return DType::f16;
    case 7:
      return DType::f32;
    case 8:
      return DType::f64;
    case 10:
      return DType::c64;
    case 12:
      return DType::boolean;
    case 13:
      return DType::bf16;
    default:
      throw UserError("TK0204", cat("element type ", value.integer(), " of torch.export, at ",
                                    value.path(), ", is not supported"))
          .at(value.file())
          .help(
              "supported are uint8, int8, int16, int32, int64, float16, bfloat16, float32, "
              "float64, complex64 and bool");
  }
}

Pt2Symbols::Pt2Symbols(const json::Value& root, const std::vector<TensorMeta>& inputs) {
  read_guards(root, inputs);
  name_first_input(inputs);
  read_ranges(root);
  exprs_ = SymExprs(names_);  // forgets what was parsed under the old names
}

Sym Pt2Symbols::size(const json::Value& value) {
  if (auto v = value.find("as_int")) return v->integer();
  if (auto v = value.find("as_expr")) return exprs_.parse((*v)["expr_str"].string());
  throw value.error("is not a size: expected as_int or as_expr");
}

Type Pt2Symbols::type(const json::Value& meta) {
  Type t;
  t.dtype = pt2_dtype(meta["dtype"]);
  for (const json::Value size_value : meta["sizes"].elements()) {
    Sym s = size(size_value);
    if (s.is_const() && s.value() < 0)
      throw UserError("TK0204", cat("the size at ", size_value.path(), " is negative: ", s.value()))
          .at(meta.file());
    t.shape.push_back(std::move(s));
    if (t.shape.size() > max_rank)
      throw UserError("TK0204",
                      cat("the tensor at ", meta.path(), " has more than ", max_rank, " axes"))
          .at(meta.file());
  }
  std::int64_t elements = 1;  // of the constant part: more than any memory holds is a broken file
  for (const Sym& s : t.shape)
    if (s.is_const() && s.value() != 0 && __builtin_mul_overflow(elements, s.value(), &elements))
      throw UserError("TK0204", cat("the tensor at ", meta.path(), " is too large: ", t.str()))
          .at(meta.file());
  return t;
}

void Pt2Symbols::narrow(std::string_view symbol, Range range) {
  Range& r = ranges_.emplace(std::string(symbol), Range{}).first->second;
  r.min = std::max(r.min, range.min);
  r.max = std::min(r.max, range.max);
}

// Makes a and b one where either is a plain symbol; equalities of expressions say nothing that a
// substitution can use.
void Pt2Symbols::unify(const Sym& a, const Sym& b) {
  if (a == b) return;
  auto name = plain_symbol(b);
  const Sym* other = &a;
  if (!name) {
    name = plain_symbol(a);
    other = &b;
  }
  if (!name || other->mentions(*name)) return;
  const SymExprs::Names env{{*name, *other}};
  for (auto& [key, value] : names_) value = value.subst(env);
  names_[*name] = *other;
}

void Pt2Symbols::read_guards(const json::Value& root, const std::vector<TensorMeta>& inputs) {
  const auto guards = root.find("guards_code");
  if (!guards || guards->is_null()) return;
  auto sym_of = [&](const Side& side) -> std::optional<Sym> {
    if (side.input.empty()) return Sym(side.value);
    for (const TensorMeta& input : inputs) {
      if (input.name != side.input) continue;
      std::int64_t axis = 0;
      for (const json::Value v : input.value["sizes"].elements())
        if (axis++ == side.value) return size(v).subst(names_);
    }
    return std::nullopt;
  };
  for (const json::Value guard : guards->elements()) {
    const std::string_view text = guard.string();
    for (const std::string_view op : {"==", "<=", ">=", "<", ">"}) {
      const std::size_t at = text.find(op);
      if (at == std::string_view::npos) continue;
      const auto left = parse_side(text.substr(0, at));
      const auto right = parse_side(text.substr(at + op.size()));
      if (!left || !right) break;  // arithmetic: the types of the values carry what follows from it
      const auto a = sym_of(*left);
      const auto b = sym_of(*right);
      if (!a || !b) break;
      if (op == "==") {
        unify(*a, *b);
        break;
      }
      const bool swapped = a->is_const();
      const auto symbol = plain_symbol(swapped ? *b : *a);
      const auto bound = (swapped ? *a : *b).constant();
      if (!symbol || !bound) break;
      const bool upper = (op.front() == '<') != swapped;
      const std::int64_t strict = op.size() == 1 ? 1 : 0;
      if (upper) narrow(*symbol, {0, *bound - strict});
      if (!upper) narrow(*symbol, {*bound + strict, INT64_MAX});
      break;
    }
  }
}

void Pt2Symbols::name_first_input(const std::vector<TensorMeta>& inputs) {
  if (inputs.empty()) return;
  std::set<std::string, std::less<>> taken;
  for (const TensorMeta& input : inputs)
    for (const json::Value v : input.value["sizes"].elements())
      size(v).subst(names_).collect_symbols(&taken);
  SymExprs::Names env;
  int axis = 0;
  for (const json::Value v : inputs.front().value["sizes"].elements()) {
    const std::string_view name = axis == 0 ? "B" : "S";
    if (axis++ == 2) break;
    const auto symbol = plain_symbol(size(v).subst(names_));
    if (symbol && *symbol != name && taken.count(name) == 0 && env.count(*symbol) == 0)
      env[*symbol] = Sym::symbol(name);
  }
  for (auto& [key, value] : names_) value = value.subst(env);
  for (const auto& [key, value] : env) names_[key] = value;
}

void Pt2Symbols::read_ranges(const json::Value& root) {
  // Ranges that guards gave under the old names.
  std::map<std::string, Range, std::less<>> old;
  old.swap(ranges_);
  auto add = [&](std::string_view name, Range range) {
    const std::string plain = symbol_name(name);
    auto it = names_.find(plain);
    const auto symbol =
        it == names_.end() ? std::optional<std::string>(plain) : plain_symbol(it->second);
    if (symbol) narrow(*symbol, range);
  };
  for (const auto& [name, range] : old) add(name, range);
  const auto constraints = root.find("range_constraints");
  if (constraints && !constraints->is_null())
    for (const json::Member m : constraints->members()) {
      Range range;
      if (auto v = m.value.find("min_val"); v && !v->is_null()) range.min = v->integer();
      if (auto v = m.value.find("max_val"); v && !v->is_null()) range.max = v->integer();
      add(m.name, range);
    }
  for (const auto& [name, range] : ranges_)
    if (range.min > range.max)
      throw UserError("TK0204", cat("the size ", name, " has no possible value: at least ",
                                    range.min, ", at most ", range.max))
          .at(root.file());
}

bool Pt2Symbols::agree(const Sym& a, const Sym& b) const {
  if (a == b) return true;
  std::set<std::string, std::less<>> names;
  a.collect_symbols(&names);
  b.collect_symbols(&names);
  constexpr std::int64_t sizes[] = {1, 2, 3, 7, 16, 37, 101};
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    SymEnv env;
    std::size_t k = i;
    for (const std::string& name : names) {
      auto range = ranges_.find(name);
      std::int64_t size = sizes[k % std::size(sizes)];
      if (range != ranges_.end()) size = std::clamp(size, range->second.min, range->second.max);
      env[name] = size;
      k += i + 1;  // the sizes of different symbols differ, and pair in different ways
    }
    if (a.eval(env) != b.eval(env)) return false;
  }
  return true;
}

bool Pt2Symbols::agree(const Type& a, const Type& b) const {
  return a.dtype == b.dtype && a.rank() == b.rank() &&
         std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(),
                    [this](const Sym& x, const Sym& y) { return agree(x, y); });
}

}  // namespace tk

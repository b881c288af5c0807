#include "graph/type.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace tk {

const Sym& Type::dim(int i) const {
  const int n = rank();
  if (i < 0) i += n;
  TK_CHECK(i >= 0 && i < n, "axis ", i, " of ", str());
  return shape[static_cast<std::size_t>(i)];
}

Sym Type::numel() const {
  Sym n = 1;
  for (const Sym& d : shape) n = n * d;
  return n;
}

std::string str(const SymDims& shape) {
  std::string s = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) s += cat(i != 0 ? ", " : "", shape[i].str());
  return s + "]";
}

std::string Type::str() const { return cat(name_of(dtype), tk::str(shape)); }

Dims concrete(const SymDims& shape, const SymEnv& env) {
  Dims out;
  for (const Sym& d : shape) out.push_back(d.eval(env));
  return out;
}

bool operator==(const Attr& a, const Attr& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        return x == std::get<T>(b);
      },
      a);
}

namespace {

std::string str_of(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[32];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, v);
  std::string s(buffer, end);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

std::string quoted(const std::string& text) {
  std::string s = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') s += '\\';
    if (c == '\n') {
      s += "\\n";
    } else {
      s += c;
    }
  }
  return s + "\"";
}

}  // namespace

std::string str(const Attr& attr) {
  struct Print {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(const Sym& v) const { return v.str(); }
    std::string operator()(double v) const { return str_of(v); }
    std::string operator()(const std::string& v) const { return quoted(v); }
    std::string operator()(DType v) const { return std::string(name_of(v)); }
    std::string operator()(const SymDims& v) const { return tk::str(v); }
    std::string operator()(const std::vector<double>& v) const {
      std::string s = "[";
      for (std::size_t i = 0; i < v.size(); ++i) s += cat(i != 0 ? ", " : "", str_of(v[i]));
      return s + "]";
    }
  };
  return std::visit(Print{}, attr);
}

namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

bool parse_double(std::string_view s, double* out) {
  if (s == "inf") return *out = INFINITY, true;
  if (s == "-inf") return *out = -INFINITY, true;
  if (s == "nan") return *out = NAN, true;
  if (s.find_first_of(".e") == std::string_view::npos ||
      s.find_first_not_of("0123456789.e+-") != std::string_view::npos)
    return false;
  auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), *out);
  return error == std::errc() && end == s.data() + s.size();
}

// Splits at commas outside parentheses.
std::vector<std::string_view> split_list(std::string_view s) {
  std::vector<std::string_view> items;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= s.size(); ++i) {
    if (i == s.size() || (s[i] == ',' && depth == 0)) {
      std::string_view item = trim(s.substr(start, i - start));
      if (!item.empty() || i != s.size() || !items.empty()) items.push_back(item);
      start = i + 1;
    } else if (s[i] == '(') {
      ++depth;
    } else if (s[i] == ')') {
      --depth;
    }
  }
  return items;
}

}  // namespace

Attr parse_attr(std::string_view text) {
  const std::string_view s = trim(text);
  if (s.empty()) throw UserError("TK0310", "an attribute has no value");
  if (s == "true" || s == "false") return s == "true";
  if (DType dtype{}; parse_dtype(s, &dtype)) return dtype;
  if (double v = 0; parse_double(s, &v)) return v;
  if (s.front() == '"') {
    if (s.size() < 2 || s.back() != '"')
      throw UserError("TK0310", cat("the string ", s, " has no end"));
    std::string out;
    for (std::size_t i = 1; i + 1 < s.size(); ++i) {
      if (s[i] == '\\' && i + 2 < s.size()) {
        ++i;
        out += s[i] == 'n' ? '\n' : s[i];
      } else {
        out += s[i];
      }
    }
    return out;
  }
  if (s.front() == '[') {
    if (s.back() != ']') throw UserError("TK0310", cat("the list ", s, " has no end"));
    const auto items = split_list(s.substr(1, s.size() - 2));
    double v = 0;
    const bool doubles =
        !items.empty() && std::any_of(items.begin(), items.end(),
                                      [&](std::string_view i) { return parse_double(i, &v); });
    if (doubles) {
      std::vector<double> out;
      for (auto item : items) {
        if (!parse_double(item, &v)) v = static_cast<double>(Sym::parse(item).value());
        out.push_back(v);
      }
      return out;
    }
    SymDims out;
    for (auto item : items) out.push_back(Sym::parse(item));
    return out;
  }
  return Sym::parse(s);
}

const Attr* Attrs::find(std::string_view name) const {
  for (const auto& [key, value] : items_)
    if (key == name) return &value;
  return nullptr;
}

void Attrs::set(std::string_view name, Attr value) {
  for (auto& [key, old] : items_)
    if (key == name) {
      old = std::move(value);
      return;
    }
  items_.emplace_back(name, std::move(value));
}

void Attrs::erase(std::string_view name) {
  std::erase_if(items_, [&](const auto& item) { return item.first == name; });
}

bool operator==(const Attrs& a, const Attrs& b) {
  if (a.items_.size() != b.items_.size()) return false;
  return std::all_of(a.items_.begin(), a.items_.end(), [&](const auto& item) {
    const Attr* other = b.find(item.first);
    return other != nullptr && item.second == *other;
  });
}

}  // namespace tk

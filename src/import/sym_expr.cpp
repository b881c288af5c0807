#include "import/sym_expr.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"

namespace tk {
namespace {

constexpr int max_depth = 100;
constexpr std::int64_t max_power = 16;

// A rational: sympy writes s*(s+1)/2 as a product with Rational(1, 2).
struct Fraction {
  Sym num = 0;
  std::int64_t den = 1;
};

std::int64_t times(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r))
    throw UserError("TK0203", "a size has a denominator of more than 64 bits");
  return r;
}

Fraction add(const Fraction& a, const Fraction& b) {
  if (a.den == b.den) return {a.num + b.num, a.den};
  return {a.num * Sym(b.den) + b.num * Sym(a.den), times(a.den, b.den)};
}

Fraction multiply(const Fraction& a, const Fraction& b) {
  return {a.num * b.num, times(a.den, b.den)};
}

class Parser {
 public:
  Parser(std::string_view text, const SymExprs::Names& names)
      : all_(text), rest_(text), names_(names) {}

  Sym whole() {
    const Fraction f = expression(0);
    space();
    if (!rest_.empty()) wrong("nothing more");
    return floor(f);
  }

 private:
  [[noreturn]] void wrong(std::string_view expected) const {
    throw UserError("TK0203", cat("a size reads '", all_.substr(0, 200), "': expected ", expected,
                                  " at '", rest_.substr(0, 40), "'"));
  }
  void space() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  bool take(char c) {
    space();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void need(char c) {
    if (!take(c)) wrong(cat("'", std::string(1, c), "'"));
  }
  std::string_view word() {
    space();
    std::size_t n = 0;
    while (n < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[n])) != 0 || rest_[n] == '_'))
      ++n;
    if (n == 0) wrong("a name");
    const std::string_view w = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return w;
  }
  std::int64_t integer() {
    space();
    std::int64_t v = 0;
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), v);
    if (error != std::errc()) wrong("an integer of 64 bits");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return v;
  }

  // An exact integer where the fraction is one; sympy keeps sizes integer, so the floor is exact.
  static Sym floor(const Fraction& f) { return f.den == 1 ? f.num : floordiv(f.num, Sym(f.den)); }
  static Sym ceil(const Fraction& f) {
    return f.den == 1 ? f.num : Sym(0) - floordiv(Sym(0) - f.num, Sym(f.den));
  }

  Fraction symbol() {
    space();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) wrong("a quoted name");
    const char quote = rest_.front();
    rest_.remove_prefix(1);
    const std::size_t end = rest_.find(quote);
    if (end == std::string_view::npos) wrong("a closing quote");
    const std::string_view name = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    while (take(',')) {  // assumptions: positive=True, integer=True
      word();
      need('=');
      word();
    }
    need(')');
    const std::string plain = symbol_name(name);
    auto it = names_.find(plain);
    return {it != names_.end() ? it->second : Sym::symbol(plain), 1};
  }

  Fraction expression(int depth) {
    if (depth > max_depth) wrong(cat("at most ", max_depth, " levels"));
    space();
    if (!rest_.empty() &&
        (rest_.front() == '-' || std::isdigit(static_cast<unsigned char>(rest_.front())) != 0))
      return {integer(), 1};
    const std::string_view name = word();
    need('(');
    if (name == "Symbol") return symbol();
    if (name == "Integer") {
      const Fraction f{integer(), 1};
      need(')');
      return f;
    }
    if (name == "Rational") {
      const std::int64_t num = integer();
      need(',');
      const std::int64_t den = integer();
      if (den <= 0) wrong("a positive denominator");
      need(')');
      return {num, den};
    }
    std::vector<Fraction> args;
    if (!take(')')) {
      do args.push_back(expression(depth + 1));
      while (take(','));
      need(')');
    }
    return call(name, args);
  }

  Fraction call(std::string_view name, const std::vector<Fraction>& args) {
    auto arity = [&](std::size_t n) {
      if (args.size() != n) wrong(cat(n, " arguments of ", name));
    };
    if (name == "Add" || name == "Mul") {
      Fraction out{name == "Add" ? 0 : 1, 1};
      for (const Fraction& f : args) out = name == "Add" ? add(out, f) : multiply(out, f);
      return out;
    }
    if (name == "Min" || name == "Max") {
      if (args.empty()) wrong("arguments");
      Sym out = floor(args[0]);
      for (std::size_t i = 1; i < args.size(); ++i)
        out = name == "Min" ? min(out, floor(args[i])) : max(out, floor(args[i]));
      return {out, 1};
    }
    if (name == "Pow" || name == "PowByNatural") return power(args);
    if (name == "FloorDiv" || name == "CleanDiv") {
      arity(2);
      return {floordiv(floor(args[0]), floor(args[1])), 1};
    }
    if (name == "Mod" || name == "PythonMod") {
      arity(2);
      return {mod(floor(args[0]), floor(args[1])), 1};
    }
    if (name == "ModularIndexing") {
      arity(3);
      return {mod(floordiv(floor(args[0]), floor(args[1])), floor(args[2])), 1};
    }
    if (name == "IntTrueDiv" || name == "FloatTrueDiv") {
      arity(2);
      if (args[1].den != 1 || !args[1].num.is_const() || args[1].num.value() <= 0)
        wrong("a division by a positive constant");
      return {args[0].num, times(args[0].den, args[1].num.value())};
    }
    if (name == "CeilDiv") {
      arity(2);
      return {Sym(0) - floordiv(Sym(0) - floor(args[0]), floor(args[1])), 1};
    }
    // Sizes are not negative, so truncation is the floor.
    if (name == "FloorToInt" || name == "floor" || name == "TruncToInt") {
      arity(1);
      return {floor(args[0]), 1};
    }
    if (name == "CeilToInt" || name == "ceiling") {
      arity(1);
      return {ceil(args[0]), 1};
    }
    if (name == "Identity" || name == "ToFloat") {
      arity(1);
      return args[0];
    }
    throw UserError("TK0203", cat("a size uses the function ", name,
                                  ", which is not supported: ", all_.substr(0, 200)));
  }

  Fraction power(const std::vector<Fraction>& args) {
    if (args.size() != 2 || args[1].den != 1 || !args[1].num.is_const() ||
        args[1].num.value() < 0 || args[1].num.value() > max_power)
      wrong(cat("a constant power from 0 to ", max_power));
    Fraction out{1, 1};
    for (std::int64_t i = 0; i < args[1].num.value(); ++i) out = multiply(out, args[0]);
    return out;
  }

  std::string_view all_, rest_;
  const SymExprs::Names& names_;
};

}  // namespace

std::string symbol_name(std::string_view name) {
  const bool plain = !name.empty() && name.size() <= 64 &&
                     std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
                     std::all_of(name.begin(), name.end(), [](char c) {
                       return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
                     });
  if (!plain)
    throw UserError("TK0203", cat("a symbol of a size is called '", name.substr(0, 64),
                                  "': expected letters, digits and _"));
  std::string out(name);
  DType dtype{};
  for (const std::string_view word :
       {"floordiv", "mod", "min", "max", "true", "false", "inf", "nan", "none"})
    if (out == word) return out + "_";
  return parse_dtype(out, &dtype) ? out + "_" : out;  // torch's unbacked symbols: u8
}

const Sym& SymExprs::parse(std::string_view srepr) {
  std::string key(srepr);
  auto it = known_.find(key);
  if (it == known_.end()) {
    Sym value = Parser(srepr, names_).whole();
    it = known_.emplace(std::move(key), std::move(value)).first;
  }
  return it->second;
}

}  // namespace tk

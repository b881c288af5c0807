#include "base/sym.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.h"

namespace tk {

// kind 's' is a symbol; '/' floordiv, '%' mod, 'm' min, 'M' max. `nodes` is its printed size.
struct Sym::Atom {
  char kind;
  std::string name;
  Sym a, b;
  std::size_t nodes = 1;
};

namespace {

using Atom = Sym::Atom;
using AtomPtr = Sym::AtomPtr;
using Term = Sym::Term;
using Terms = Sym::Terms;

// A dim of a real model has a handful of terms. Beyond these a hostile file would cost time and
// memory without bound: products multiply terms, and functions of shared parts double in print.
constexpr std::size_t max_terms = 4096;
constexpr std::size_t max_degree = 64;
constexpr std::size_t max_nodes = 10000;

void check_size(bool fits) {
  if (!fits) throw UserError("TK0304", "a symbolic dim has too many terms");
}

[[noreturn]] void overflows() { throw UserError("TK0304", "a symbolic dim overflows 64 bits"); }
std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  if (b == 0) throw UserError("TK0304", "division by zero in a symbolic dim");
  if (b == -1 && a == std::numeric_limits<std::int64_t>::min()) overflows();
  const std::int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}
std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) overflows();
  return r;
}
std::int64_t mul(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) overflows();
  return r;
}

std::int64_t floor_mod(std::int64_t a, std::int64_t b) {
  return b == -1 ? 0 : a - floor_div(a, b) * b;
}

int compare(const Sym& a, const Sym& b);

int compare(const Atom& a, const Atom& b) {
  if (&a == &b) return 0;
  if (a.kind != b.kind) return a.kind == 's' ? -1 : b.kind == 's' ? 1 : a.kind - b.kind;
  if (a.kind == 's') return a.name.compare(b.name);
  if (int c = compare(a.a, b.a)) return c;
  return compare(a.b, b.b);
}

// Shorter products last, so that S*B + S prints in descending degree.
int compare(const std::vector<AtomPtr>& a, const std::vector<AtomPtr>& b) {
  if (a.size() != b.size()) return a.size() > b.size() ? -1 : 1;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (int c = compare(*a[i], *b[i])) return c;
  return 0;
}

}  // namespace

namespace {
int compare(const Sym& a, const Sym& b) {
  static const Terms none;
  const Terms& ta = a.terms() != nullptr ? *a.terms() : none;
  const Terms& tb = b.terms() != nullptr ? *b.terms() : none;
  if (ta.size() != tb.size()) return ta.size() < tb.size() ? -1 : 1;
  for (std::size_t i = 0; i < ta.size(); ++i) {
    if (int c = compare(ta[i].atoms, tb[i].atoms)) return c;
    if (ta[i].coefficient != tb[i].coefficient)
      return ta[i].coefficient < tb[i].coefficient ? -1 : 1;
  }
  const std::int64_t x = a.constant_part();
  const std::int64_t y = b.constant_part();
  return x < y ? -1 : x > y ? 1 : 0;
}
}  // namespace

Sym Sym::make(Terms terms, std::int64_t constant) {
  Sym s(constant);
  check_size(terms.size() <= max_terms);
  if (!terms.empty()) s.terms_ = std::make_shared<const Terms>(std::move(terms));
  return s;
}

Sym Sym::symbol(std::string_view name) {
  auto atom = std::make_shared<const Atom>(Atom{'s', std::string(name), 0, 0});
  return make({{{atom}, 1}}, 0);
}

Sym Sym::function(char kind, const Sym& a, const Sym& b) {
  std::size_t nodes = 1;
  for (const Sym* s : {&a, &b})
    if (s->terms_ != nullptr)
      for (const Term& t : *s->terms_)
        for (const AtomPtr& part : t.atoms) nodes += part->nodes;
  check_size(nodes <= max_nodes);
  auto atom = std::make_shared<const Atom>(Atom{kind, "", a, b, nodes});
  return make({{{atom}, 1}}, 0);
}

std::int64_t Sym::value() const {
  TK_CHECK(is_const(), str(), " is not a constant");
  return constant_;
}

std::optional<std::int64_t> Sym::constant() const {
  if (is_const()) return constant_;
  return std::nullopt;
}

bool operator==(const Sym& a, const Sym& b) {
  if (a.constant_ != b.constant_) return false;
  if (a.terms_ == b.terms_) return true;
  if (a.terms_ == nullptr || b.terms_ == nullptr) return false;
  return compare(a, b) == 0;
}

bool operator<(const Sym& a, const Sym& b) { return compare(a, b) < 0; }

Sym operator+(const Sym& a, const Sym& b) {
  if (a.terms_ == nullptr || b.terms_ == nullptr) {
    Sym s(add(a.constant_, b.constant_));
    s.terms_ = a.terms_ != nullptr ? a.terms_ : b.terms_;
    return s;
  }
  Terms out;
  const Terms& x = *a.terms_;
  const Terms& y = *b.terms_;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < x.size() || j < y.size()) {
    const int c = i == x.size() ? 1 : j == y.size() ? -1 : compare(x[i].atoms, y[j].atoms);
    if (c < 0) {
      out.push_back(x[i++]);
    } else if (c > 0) {
      out.push_back(y[j++]);
    } else {
      const std::int64_t k = add(x[i].coefficient, y[j].coefficient);
      if (k != 0) out.push_back({x[i].atoms, k});
      ++i;
      ++j;
    }
  }
  return Sym::make(std::move(out), add(a.constant_, b.constant_));
}

Sym operator*(const Sym& a, const Sym& b) {
  if (a.is_const() && b.is_const()) return mul(a.constant_, b.constant_);
  if (a.is_const() || b.is_const()) {
    const std::int64_t k = a.is_const() ? a.constant_ : b.constant_;
    const Sym& p = a.is_const() ? b : a;
    if (k == 0) return 0;
    Terms out = *p.terms_;
    for (Term& t : out) t.coefficient = mul(t.coefficient, k);
    return Sym::make(std::move(out), mul(p.constant_, k));
  }
  check_size(a.terms_->size() * b.terms_->size() <= max_terms);
  Terms products;
  for (const Term& x : *a.terms_)
    for (const Term& y : *b.terms_) {
      Term t{x.atoms, mul(x.coefficient, y.coefficient)};
      t.atoms.insert(t.atoms.end(), y.atoms.begin(), y.atoms.end());
      check_size(t.atoms.size() <= max_degree);
      std::sort(t.atoms.begin(), t.atoms.end(),
                [](const AtomPtr& p, const AtomPtr& q) { return compare(*p, *q) < 0; });
      products.push_back(std::move(t));
    }
  std::sort(products.begin(), products.end(),
            [](const Term& p, const Term& q) { return compare(p.atoms, q.atoms) < 0; });
  Terms merged;
  for (Term& t : products) {
    if (!merged.empty() && compare(merged.back().atoms, t.atoms) == 0) {
      merged.back().coefficient = add(merged.back().coefficient, t.coefficient);
    } else {
      if (!merged.empty() && merged.back().coefficient == 0) merged.pop_back();
      merged.push_back(std::move(t));
    }
  }
  if (!merged.empty() && merged.back().coefficient == 0) merged.pop_back();
  return Sym::make(std::move(merged), 0) + Sym::make(*b.terms_, 0) * a.constant_ +
         Sym::make(*a.terms_, 0) * b.constant_ + mul(a.constant_, b.constant_);
}

Sym operator-(const Sym& a, const Sym& b) { return a + b * Sym(-1); }

std::int64_t Sym::eval(const SymEnv& env) const {
  std::int64_t sum = constant_;
  if (terms_ == nullptr) return sum;
  for (const Term& t : *terms_) {
    std::int64_t product = t.coefficient;
    for (const AtomPtr& atom : t.atoms) {
      std::int64_t v = 0;
      if (atom->kind == 's') {
        auto it = env.find(atom->name);
        if (it == env.end())
          throw UserError("TK0303", cat("the size '", atom->name, "' has no value here"));
        v = it->second;
      } else {
        const std::int64_t x = atom->a.eval(env);
        const std::int64_t y = atom->b.eval(env);
        switch (atom->kind) {
          case '/':
            v = floor_div(x, y);
            break;
          case '%':
            v = floor_mod(x, y);
            break;
          case 'm':
            v = std::min(x, y);
            break;
          default:
            v = std::max(x, y);
            break;
        }
      }
      product = mul(product, v);
    }
    sum = add(sum, product);
  }
  return sum;
}

Sym Sym::subst(const std::map<std::string, Sym, std::less<>>& env) const {
  if (terms_ == nullptr) return *this;
  Sym sum = constant_;
  for (const Term& t : *terms_) {
    Sym product = t.coefficient;
    for (const AtomPtr& atom : t.atoms) {
      Sym v;
      if (atom->kind == 's') {
        auto it = env.find(atom->name);
        v = it == env.end() ? make({{{atom}, 1}}, 0) : it->second;
      } else {
        const Sym x = atom->a.subst(env);
        const Sym y = atom->b.subst(env);
        switch (atom->kind) {
          case '/':
            v = floordiv(x, y);
            break;
          case '%':
            v = mod(x, y);
            break;
          case 'm':
            v = min(x, y);
            break;
          default:
            v = max(x, y);
            break;
        }
      }
      product = product * v;
    }
    sum = sum + product;
  }
  return sum;
}

void Sym::collect_symbols(std::set<std::string, std::less<>>* out) const {
  if (terms_ == nullptr) return;
  for (const Term& t : *terms_)
    for (const AtomPtr& atom : t.atoms) {
      if (atom->kind == 's') out->insert(atom->name);
      atom->a.collect_symbols(out);
      atom->b.collect_symbols(out);
    }
}

bool Sym::mentions(std::string_view symbol) const {
  std::set<std::string, std::less<>> names;
  collect_symbols(&names);
  return names.count(symbol) != 0;
}

namespace {
// |v| of every 64-bit integer, the smallest too.
std::uint64_t magnitude(std::int64_t v) {
  return v < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(v) : static_cast<std::uint64_t>(v);
}
}  // namespace

std::string Sym::str() const {
  if (terms_ == nullptr) return std::to_string(constant_);
  std::string out;
  for (const Term& t : *terms_) {
    if (out.empty()) {
      if (t.coefficient < 0) out += "-";
    } else {
      out += t.coefficient < 0 ? " - " : " + ";
    }
    if (magnitude(t.coefficient) != 1) out += cat(magnitude(t.coefficient), "*");
    bool first = true;
    for (const AtomPtr& atom : t.atoms) {
      if (!first) out += "*";
      first = false;
      switch (atom->kind) {
        case 's':
          out += atom->name;
          break;
        case '/':
          out += cat("floordiv(", atom->a.str(), ", ", atom->b.str(), ")");
          break;
        case '%':
          out += cat("mod(", atom->a.str(), ", ", atom->b.str(), ")");
          break;
        case 'm':
          out += cat("min(", atom->a.str(), ", ", atom->b.str(), ")");
          break;
        default:
          out += cat("max(", atom->a.str(), ", ", atom->b.str(), ")");
          break;
      }
    }
  }
  if (constant_ > 0) out += cat(" + ", constant_);
  if (constant_ < 0) out += cat(" - ", magnitude(constant_));
  return out;
}

namespace {

Sym of_atom(const Atom& atom) {
  switch (atom.kind) {
    case 's':
      return Sym::symbol(atom.name);
    case '/':
      return floordiv(atom.a, atom.b);
    case '%':
      return mod(atom.a, atom.b);
    case 'm':
      return min(atom.a, atom.b);
    default:
      return max(atom.a, atom.b);
  }
}

}  // namespace

std::optional<Sym> exact_div(const Sym& a, const Sym& b) {
  if (b.is(1)) return a;
  if (b.is(0)) return std::nullopt;
  if (a == b) return Sym(1);
  // The divisor as one term: k, or k * atoms.
  if (b.terms() != nullptr && b.terms()->size() != 1) return std::nullopt;
  static const std::vector<AtomPtr> no_atoms;
  const std::vector<AtomPtr>& divisor = b.is_const() ? no_atoms : b.terms()->front().atoms;
  const std::int64_t k = b.is_const() ? b.value() : b.terms()->front().coefficient;
  Sym quotient = 0;
  if (a.terms() != nullptr)
    for (const Term& t : *a.terms()) {
      if (floor_mod(t.coefficient, k) != 0) return std::nullopt;
      std::vector<AtomPtr> left = t.atoms;
      for (const AtomPtr& atom : divisor) {
        auto it = std::find_if(left.begin(), left.end(),
                               [&](const AtomPtr& p) { return compare(*p, *atom) == 0; });
        if (it == left.end()) return std::nullopt;
        left.erase(it);
      }
      Sym product = floor_div(t.coefficient, k);
      for (const AtomPtr& atom : left) product = product * of_atom(*atom);
      quotient = quotient + product;
    }
  const Sym rest = a - quotient * b;  // the constant part of a, unless b has one too
  if (rest.is(0)) return quotient;
  if (b.is_const() && rest.is_const() && floor_mod(rest.value(), k) == 0)
    return quotient + floor_div(rest.value(), k);
  return std::nullopt;
}

Sym floordiv(const Sym& a, const Sym& b) {
  if (a.is_const() && b.is_const()) return floor_div(a.value(), b.value());
  if (auto q = exact_div(a, b)) return *q;
  return Sym::function('/', a, b);
}

Sym mod(const Sym& a, const Sym& b) {
  if (a.is_const() && b.is_const()) return floor_mod(a.value(), b.value());
  if (exact_div(a, b)) return 0;
  return Sym::function('%', a, b);
}

Sym min(const Sym& a, const Sym& b) {
  const Sym d = a - b;
  if (d.is_const()) return d.value() <= 0 ? a : b;
  return a < b ? Sym::function('m', a, b) : Sym::function('m', b, a);
}

Sym max(const Sym& a, const Sym& b) {
  const Sym d = a - b;
  if (d.is_const()) return d.value() >= 0 ? a : b;
  return a < b ? Sym::function('M', a, b) : Sym::function('M', b, a);
}

namespace {

// Recursive descent over: sum := product (('+'|'-') product)*; product := unary ('*' unary)*;
// unary := '-' unary | number | name | name '(' sum ',' sum ')' | '(' sum ')'.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Sym all() {
    Sym s = sum(0);
    space();
    if (at_ != text_.size()) wrong("the end");
    return s;
  }

 private:
  static constexpr int max_depth = 64;

  [[noreturn]] void wrong(std::string_view expected) const {
    throw UserError(
        "TK0302", cat("'", text_.substr(0, 200), "' is not a symbolic integer: expected ", expected,
                      " at position ", at_));
  }
  static bool is_name(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.';
  }
  void space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    space();
    if (at_ < text_.size() && text_[at_] == c) {
      ++at_;
      return true;
    }
    return false;
  }
  void need(char c) {
    if (!take(c)) wrong(std::string_view(&c, 1));
  }
  Sym sum(int depth) {
    if (depth > max_depth) wrong("less nesting");
    Sym s = product(depth, false);
    for (;;) {
      if (take('+')) {
        s = s + product(depth, false);
      } else if (take('-')) {
        s = s + product(depth, true);
      } else {
        return s;
      }
    }
  }
  // The minus sign travels down to the number: the smallest one has no positive counterpart.
  Sym product(int depth, bool negative) {
    Sym s = unary(depth, negative);
    while (take('*')) s = s * unary(depth, false);
    return s;
  }
  Sym unary(int depth, bool negative) {
    if (depth > max_depth) wrong("less nesting");
    if (take('-')) return unary(depth + 1, !negative);
    if (take('(')) {
      Sym s = sum(depth + 1);
      need(')');
      return negative ? Sym(0) - s : s;
    }
    space();
    std::size_t end = at_;
    while (end < text_.size() && is_name(text_[end])) ++end;
    if (end == at_ || text_[at_] == '.') wrong("a number or a name");
    const std::string_view word = text_.substr(at_, end - at_);
    if (word[0] >= '0' && word[0] <= '9') {
      const std::string digits = cat(negative ? "-" : "", word);
      const char* last = digits.data() + digits.size();
      std::int64_t v = 0;
      auto [p, error] = std::from_chars(digits.data(), last, v);
      if (error != std::errc() || p != last) wrong("a 64-bit number");
      at_ = end;
      return v;
    }
    const Sym s = call_or_symbol(word, depth, end);
    return negative ? Sym(0) - s : s;
  }
  Sym call_or_symbol(std::string_view word, int depth, std::size_t end) {
    at_ = end;
    if (word == "floordiv" || word == "mod" || word == "min" || word == "max") {
      need('(');
      Sym a = sum(depth + 1);
      need(',');
      Sym b = sum(depth + 1);
      need(')');
      if ((word == "floordiv" || word == "mod") && b.is(0)) wrong("a divisor that is not zero");
      if (word == "floordiv") return floordiv(a, b);
      if (word == "mod") return mod(a, b);
      return word == "min" ? min(a, b) : max(a, b);
    }
    return Sym::symbol(word);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Sym Sym::parse(std::string_view text) { return Parser(text).all(); }

}  // namespace tk

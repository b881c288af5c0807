// Symbolic integers: polynomials with integer coefficients over symbols ("B", "s70") and over
// floordiv, mod, min and max of such polynomials. Equal polynomials have one normal form, so ==
// is structural; it is sound (equal means equal for all values), not complete.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tk {

using SymEnv = std::map<std::string, std::int64_t, std::less<>>;

class Sym {
 public:
  Sym(std::int64_t value = 0) : constant_(value) {}  // NOLINT: an int is a Sym
  static Sym symbol(std::string_view name);
  // The inverse of str(). Throws TK0302 with the position.
  static Sym parse(std::string_view text);

  bool is_const() const { return terms_ == nullptr; }
  std::int64_t value() const;  // of a constant; internal error otherwise
  std::optional<std::int64_t> constant() const;
  std::int64_t constant_part() const { return constant_; }  // 4 of 2*S + 4
  bool is(std::int64_t v) const { return is_const() && constant_ == v; }
  // Throws TK0303 when a symbol has no value, TK0304 on overflow and on division by zero.
  std::int64_t eval(const SymEnv& env) const;
  Sym subst(const std::map<std::string, Sym, std::less<>>& env) const;
  void collect_symbols(std::set<std::string, std::less<>>* out) const;
  bool mentions(std::string_view symbol) const;
  std::string str() const;

  friend Sym operator+(const Sym& a, const Sym& b);
  friend Sym operator-(const Sym& a, const Sym& b);
  friend Sym operator*(const Sym& a, const Sym& b);
  friend bool operator==(const Sym& a, const Sym& b);
  friend bool operator<(const Sym& a, const Sym& b);  // a total order, for maps

  // An atom is a symbol or a function of two Syms; a term is coefficient * product of atoms.
  struct Atom;
  using AtomPtr = std::shared_ptr<const Atom>;
  struct Term {
    std::vector<AtomPtr> atoms;  // sorted, with repetition
    std::int64_t coefficient;
  };
  using Terms = std::vector<Term>;  // sorted by atoms, no zero coefficients

  // For division: the non-constant terms, or null for a constant.
  const Terms* terms() const { return terms_.get(); }

 private:
  friend Sym floordiv(const Sym& a, const Sym& b);
  friend Sym mod(const Sym& a, const Sym& b);
  friend Sym min(const Sym& a, const Sym& b);
  friend Sym max(const Sym& a, const Sym& b);
  static Sym make(Terms terms, std::int64_t constant);
  static Sym function(char kind, const Sym& a, const Sym& b);

  std::int64_t constant_;  // the constant part
  std::shared_ptr<const Terms> terms_;
};

// As Python's // and %. Exact divisions are simplified: (4*S) // 2 is 2*S.
Sym floordiv(const Sym& a, const Sym& b);
Sym mod(const Sym& a, const Sym& b);
Sym min(const Sym& a, const Sym& b);
Sym max(const Sym& a, const Sym& b);
// a / b when b divides a exactly as polynomials (monomial or equal b), else nothing.
std::optional<Sym> exact_div(const Sym& a, const Sym& b);

}  // namespace tk

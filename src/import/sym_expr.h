// Sizes as torch.export writes them: sympy's srepr of an integer expression, such as
//   Mul(Integer(256), Symbol('s70', positive=True, integer=True))
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/sym.h"

namespace tk {

// Parses and remembers: a graph repeats a few dozen expressions thousands of times.
class SymExprs {
 public:
  // What symbols stand for; one that is absent stands for itself. Names that the text form reserves
  // get an underscore.
  using Names = std::map<std::string, Sym, std::less<>>;
  explicit SymExprs(Names names = {}) : names_(std::move(names)) {}

  // Throws TK0203: not an expression, a function that has no counterpart in Sym, not an integer.
  // Symbols are taken as positive, as torch.export declares those of sizes.
  const Sym& parse(std::string_view srepr);

 private:
  Names names_;
  std::unordered_map<std::string, Sym> known_;
};

// The name as the text form can hold it: letters, digits and _; not one of its own words.
std::string symbol_name(std::string_view name);

}  // namespace tk

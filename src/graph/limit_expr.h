// The language of Limit::expr and Symbol::expr: expressions of Python, without calls of methods.
//   literals     3, 1e-06, "TND", True, None, (1, 2), [1, 2]
//   operators    or, and, not, == != < <= > >= (chained), in, not in, is, is not, + - * / // %,
//                a if c else b, unary -
//   access       x.dtype, x.shape[-1], x.shape[:-1], t[0]
//   functions    graph/limits.cpp has their list
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tk {

struct LimitExpr {
  enum class Kind : unsigned char {
    number,     // text: the literal
    string,     // text: without quotes
    name,       // text
    attribute,  // args[0].text
    subscript,  // args[0][args[1]]
    slice,      // args[0][args[1]:args[2]]; an absent bound is of kind none
    call,       // text(args...)
    list,       // args
    unary,      // text: "-" or "not"
    binary,     // text: "+", "//", ...
    compare,    // args[0] ops[0] args[1] ops[1] ...
    logical,    // text: "and" or "or"; args
    condition,  // args[0] if args[1] else args[2]
    none
  };
  Kind kind = Kind::none;
  std::string text;
  std::vector<std::string> ops;
  std::vector<LimitExpr> args;
  std::string_view source;  // of the whole expression: as it is shown to people

  // A name with attributes and constant subscripts: what a reader wants to see the value of.
  bool is_path() const;
};

// Throws InternalError with the position: expressions are ours. `text` must outlive the result.
LimitExpr parse_limit(std::string_view text);

}  // namespace tk

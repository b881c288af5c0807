// The symbolic sizes of a capture: their names, ranges and equalities.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "import/json.h"
#include "import/sym_expr.h"

namespace tk {

// A tensor's entry as the file has it; sizes are parsed when the symbols are known.
struct TensorMeta {
  std::string_view name;
  json::Value value;
};

class Pt2Symbols {
 public:
  // `root` is the whole file; `inputs` are the tensors that the caller passes, in order. Symbols
  // that the guards make equal become one; the first two symbolic dims of the first input are
  // called B and S unless other symbols have those names. Throws TK0111, TK0203, TK0204.
  Pt2Symbols(const json::Value& root, const std::vector<TensorMeta>& inputs);

  // An as_int / as_expr object, or the SymInt of sym_int_values.
  Sym size(const json::Value& value);
  // dtype and sizes of a tensor's entry. Throws TK0204: a negative or huge size, more than 8 axes,
  // or an element type that is not supported.
  Type type(const json::Value& meta);

  // Equal, or at least at all of several sizes within the ranges: torch may spell one size in
  // another way than our inference does.
  bool agree(const Type& a, const Type& b) const;

  const std::map<std::string, Range, std::less<>>& ranges() const { return ranges_; }

 private:
  void read_guards(const json::Value& root, const std::vector<TensorMeta>& inputs);
  void name_first_input(const std::vector<TensorMeta>& inputs);
  void read_ranges(const json::Value& root);
  void unify(const Sym& a, const Sym& b);
  void narrow(std::string_view symbol, Range range);
  bool agree(const Sym& a, const Sym& b) const;

  SymExprs::Names names_;  // every symbol that is replaced
  SymExprs exprs_;
  std::map<std::string, Range, std::less<>> ranges_;
};

// torch.export's numbers of element types. Throws TK0204.
DType pt2_dtype(const json::Value& value);

}  // namespace tk

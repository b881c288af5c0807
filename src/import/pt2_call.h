// One node of a capture as a call of one of our operators.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "graph/graph.h"
#include "import/json.h"
#include "import/pt2_symbols.h"

namespace tk {

// "torch.ops.aten.add_.Tensor", resolved.
struct Target {
  std::string_view name;  // as in the file
  enum Kind {
    op,       // one of ours
    getitem,  // picks one of a list of tensors
    number,   // computes a size; its value stands in the file's tables
    check,    // an assertion: dropped
    inlined,  // calls a graph inside the file
    unknown,
  } kind = unknown;
  const OpDef* def = nullptr;
  bool in_place = false;   // its first tensor receives the result
  bool is_copy = false;    // copy_: `def` is the cast
  std::string short_name;  // "aten.add_.Tensor"
};
Target resolve_target(std::string_view name);

// A number that the capture computes from sizes: known as a Sym or a constant, or not at all.
using Number = std::variant<std::monostate, Sym, double, bool>;
using Numbers = std::unordered_map<std::string_view, Number>;

struct Argument {
  enum Kind { none, tensor, tensors, attr, graph, ignored } kind = none;
  std::vector<std::string_view> names;  // of tensors; empty for an absent one
  Attr value = false;
};
// Throws TK0205 (a number that is not defined) and TK0212 (a kind of argument that is not
// supported, a number that is not known).
Argument read_argument(const json::Value& arg, const Numbers& numbers);

// A call: the names of its tensors in the order of the schema, and the attributes.
struct Call {
  std::vector<std::string_view> tensors;
  Attrs attrs;
};
// Why the operator cannot take the node's arguments; "" when it can.
std::string why_not(const OpDef& def, const json::Value& node);
// Throws as read_argument, and TK0205 when an argument is missing or twice there.
Call read_call(const OpDef& def, const json::Value& node, const Numbers& numbers);

// The names of a node's results, in order; empty for one that is None.
struct Results {
  std::vector<std::string_view> tensors, numbers;
};
Results read_results(const json::Value& node);

}  // namespace tk

// What a rule is, and the list of all rules.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace tk::canonical {

// What replaces the results of a node, in order (null for one that is unused). Empty: the rule does
// not apply.
using Replacement = std::vector<Value*>;

struct Rule {
  std::string_view op;    // the operator it looks at
  std::string_view name;  // for messages
  // Builds before the node, with its location.
  Replacement (*apply)(Builder& b, const Node& n);
};

#define TK_RULE(op, function) Replacement function(Builder& b, const Node& n);
#include "moves/canonical/rules.def"
#undef TK_RULE

// Helpers of the rules.

// The attribute `name` as an axis from 0; the schema's default counts.
int axis(const Node& n, std::string_view name, int rank);
inline const Type& type(const Node& n, int input = 0) { return n.in(input)->type; }
Value* reshape(Builder& b, Value* v, const SymDims& shape);
Value* slice(Builder& b, Value* v, int dim, const Sym& start, const Sym& end, const Sym& step = 1);
// True for weights, and for nodes that depend on weights alone (and at least one).
bool is_from_weights(const Value* v);
// The node that makes `v`, when it is that operator.
const Node* made_by(const Value* v, std::string_view op);
// The dtype holds every value of the other one exactly.
bool holds(DType wide, DType narrow);
// The number that all elements of `v` are, when an aten.full makes it.
std::optional<Attr> filled_with(const Value* v);
bool is_number(const Attr& a, double value);

// Merges nodes that are equal: operator, inputs, attributes. Returns how many were dropped.
std::size_t dedup(Graph& graph);

}  // namespace tk::canonical

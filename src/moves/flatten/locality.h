// The proof that a captured graph is token-local: for every value, which axes run over sequences
// and tokens, and for every operator, that it does not mix tokens. Only attention may
// (tk.attention). Routed experts are local by meaning: sorting tokens by expert, multiplying in
// groups and putting them back is followed through as a permutation.
#pragma once

#include <unordered_map>

#include "graph/graph.h"
#include "moves/flatten/layout.h"

namespace tk {

// What an integer value is, beyond its shape.
enum class Meaning : std::uint8_t {
  none,
  iota,     // its own flat index along its tagged axis
  rows,     // the number of the token (0 .. B*S) that each element belongs to
  perm,     // the indices of a sort over tokens (and their top-k copies)
  inverse,  // the inverse of such a permutation
  counts,   // tokens per expert, or their running totals: mixes tokens, for grouped matmul only
};

struct TokenFacts {
  Layout layout;
  Meaning meaning = Meaning::none;
  const Node* sort = nullptr;  // of perm, inverse
};

struct Locality {
  TokenSymbols symbols;
  std::unordered_map<const Value*, TokenFacts> facts;
  const TokenFacts& of(const Value* v) const { return facts.at(v); }
  // The axis that a sort permuted, as it was before.
  std::unordered_map<const Node*, Axis> sorted_axis;
};

// Throws TK0401 naming the nodes that mix tokens, with module path and file:line.
Locality prove_token_locality(const Graph& graph, const TokenSymbols& symbols);

// How flatten rewrites a node (also the classes of the proof).
enum class TokenRule : std::uint8_t {
  unknown,
  elementwise,  // broadcasting from the right
  along,        // acts along `dim` (or `dims`), which must hold no tokens
  reshape,      // same elements in the same order: view, unsqueeze, squeeze, flatten
  permute,
  expand,
  create,  // from sizes or "like": zeros, arange
  cat,
  linear,
  matmul,
  grouped_matmul,
  einsum,
  index,
  embedding,
  index_select,
  index_put,
  index_add,
  gather,
  sort,
  count,  // histc, bincount
  attention,
};
TokenRule token_rule(std::string_view op_name);

// The `dim`, `dims` or `dim0`, `dim1` of a node, made non-negative; all axes when it has none.
std::vector<int> axes_of(const Node& node);

// The order of axes that a permuting node makes: result axis i is input axis order[i].
std::vector<int> axis_order(const Node& node);

}  // namespace tk

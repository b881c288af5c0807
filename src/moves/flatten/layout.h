// Which axis of a value runs over sequences and which over tokens. An axis is a product of
// factors, outermost first: [B*S, H] of a flattened batch is {{batch, token}, {plain H}}.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/sym.h"
#include "graph/graph.h"

namespace tk {

// permuted: tokens (with their top-k copies) in an order given by a sort, as routed experts have
// them; `sort` says which one. Values with permuted axes are per token all the same.
enum class Tag : std::uint8_t { plain, batch, token, permuted };

struct Factor {
  Tag tag = Tag::plain;
  Sym size;
  const Node* sort = nullptr;  // of permuted
  friend bool operator==(const Factor&, const Factor&) = default;
};

using Axis = std::vector<Factor>;  // empty for size 1
using Layout = std::vector<Axis>;

// The symbols of the captured graph's two dynamic dims.
struct TokenSymbols {
  std::string batch = "B", token = "S";
};

bool carries_tokens(const Axis& axis);  // token or permuted
bool carries_batch(const Axis& axis);
bool carries_tokens(const Layout& layout);
bool is_tagged(const Layout& layout);  // any factor that is not plain
Sym size_of_axis(const Axis& axis);
Axis merged(Axis axis);                 // neighbouring plain factors are one
std::string str(const Layout& layout);  // "[batch, token, 576]"

// The layout of a value made from sizes alone (zeros, arange): a factor that is the batch symbol
// or the token symbol is tagged so.
Layout layout_of_sizes(const SymDims& shape, const TokenSymbols& symbols);

// Regroups the factors for a new shape of the same number of elements; plain factors are split
// where needed. Nothing when a token or batch factor would have to be split.
std::optional<Layout> reshaped(const Layout& layout, const SymDims& shape);

// Elementwise with broadcasting; nothing when two axes disagree.
std::optional<Layout> broadcast(const std::vector<const Layout*>& layouts);

// Without batch factors, tokens being T: the shape in the token-flat graph. An axis that was batch
// alone is dropped: `dropped[i]`.
struct FlatShape {
  SymDims shape;
  std::vector<bool> dropped;
};
FlatShape flat_shape(const Layout& layout, const TokenSymbols& symbols);

}  // namespace tk

// What a mask is, found by evaluating it: the sub-graph that makes it is run for small sizes and
// compared with the known masks. What it is built from does not matter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/weights.h"
#include "moves/flatten/layout.h"

namespace tk {

struct MaskFacts {
  std::string kind;         // causal, window, chunk or full, as tk.paged_attention has it
  std::int64_t window = 0;  // keys of a sliding window, or the chunk size
  friend bool operator==(const MaskFacts&, const MaskFacts&) = default;
};

// `mask` (null: none) of the attention node. Throws TK0402 for a mask that is none of the known
// ones, TK0403 when it needs weights that are not there.
MaskFacts classify_mask(const Graph& graph, const Node& attention, const TokenSymbols& symbols,
                        const Weights* weights);

// Of all attention sites in order. The masks themselves are then cut off, since they do compare
// tokens with tokens. Throws also TK0404, for attention that sees later tokens.
std::vector<MaskFacts> take_masks(Graph* graph, const TokenSymbols& symbols,
                                  const Weights* weights);

}  // namespace tk

// Attention sites of a captured graph, whichever way they are written, as tk.attention.
#pragma once

#include "graph/graph.h"

namespace tk {

// Rewrites every scaled_dot_product_attention and every eager softmax(Q K^T) V into tk.attention,
// with the key and value heads not repeated. Returns how many there are. What is no attention is
// left alone: the token-locality proof names it.
std::size_t recognise_attention(Graph& graph);

}  // namespace tk

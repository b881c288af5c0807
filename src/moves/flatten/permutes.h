// Permutes move towards the inputs until they meet their opposite and vanish.
#pragma once

#include "graph/graph.h"

namespace tk {

// A permute after operators that act element by element (or along axes it does not disturb) is done
// on their inputs instead; a permute of a permute is one, and an identity is none. Returns how many
// permutes were moved or removed.
std::size_t sink_permutes(Graph& graph);

}  // namespace tk

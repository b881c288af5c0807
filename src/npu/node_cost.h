// What one call of an operator moves and computes, in concrete sizes: bytes and operations, no
// time.
#pragma once

#include <unordered_set>

#include "graph/graph.h"

namespace tk {

// Weights and what follows from them alone, in sizes that are numbers: computed once, when the
// model is loaded.
std::unordered_set<const Value*> known_at_load(const Graph& graph);

// The cost of one call with concrete sizes: the operator's own rule or the default. Load says what
// sizes do not. A size that env lacks is an error (TK0303).
Cost cost_of(const Node& node, const SymEnv& env, const Load& load);

}  // namespace tk

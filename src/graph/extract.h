// A part of a graph as a graph of its own.
#pragma once

#include <span>
#include <unordered_map>

#include "graph/graph.h"

namespace tk {

// The nodes that `outputs` need, with the inputs, weights and states they use; the outputs in that
// order. `map` receives old value -> new value.
Graph extract(const Graph& graph, std::span<Value* const> outputs,
              std::unordered_map<const Value*, Value*>* map = nullptr);

}  // namespace tk

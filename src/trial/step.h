// One packed step of a cached graph outside of a Runner: the inputs by hand, for recording values
// and for checks by the interpreter.
#pragma once

#include <string>
#include <vector>

#include "base/tensor.h"
#include "graph/graph.h"
#include "graph/weights.h"
#include "ops/interpret.h"

namespace tk {

// The inputs of a cached graph (in its order) for one sequence of `ids` from position 0, in
// block 1. At most block_size ids.
std::vector<Tensor> step_inputs(const Graph& graph, const std::vector<std::int64_t>& ids);
// Empty caches of two blocks for it.
States step_states(const Graph& graph);

// Values of the graph for such a step, by the interpreter. Only what they need is evaluated.
std::vector<Tensor> record(const Graph& graph, const std::vector<Value*>& values,
                           const Weights& weights, const std::vector<std::int64_t>& ids);

}  // namespace tk

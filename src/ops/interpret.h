// The reference interpreter: a Graph run node by node with each operator's own eval. Right and
// plain; every faster way to run a graph is compared with it.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/weights.h"

namespace tk {

using States = std::map<std::string, Tensor, std::less<>>;

struct InterpretOptions {
  // Called after each node with its results.
  std::function<void(const Node&, std::span<const TensorView>)> on_node;
};

// The graph's outputs; they may be views of each other, of weights and of states, of any strides.
// States are read and changed in place; each must be there. Throws TK0502 for inputs or states that
// don't fit the graph, TK0503 for a missing weight, TK0504 for one of another shape or dtype, and
// what the operators throw (TK0500, TK0501, TK0505), with the node's place.
std::vector<Tensor> interpret(const Graph& graph, std::span<const Tensor> inputs,
                              const Weights& weights, States* states = nullptr,
                              const InterpretOptions& options = {});

// The values of the graph's symbols, from the shapes of its inputs and states. Checks both
// (TK0502).
SymEnv bind_symbols(const Graph& graph, std::span<const Tensor> inputs,
                    const States* states = nullptr);

// The weight of that value; checks shape and dtype (TK0503, TK0504).
const Tensor& find_weight(const Weights& weights, const Value& weight);

// One operator on concrete tensors: infers the result types, checks the call, runs view or eval.
// Absent inputs are tensors with data == nullptr. Results may be views of inputs (which share their
// owner). Symbols in attributes are looked up in env.
std::vector<Tensor> evaluate(const OpDef& op, std::span<const Tensor> inputs,
                             const Attrs& attrs = {}, const SymEnv& env = {});

}  // namespace tk

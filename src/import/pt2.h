// torch.export's graph (model.json of a .pt2, schema 8) as a Graph: functional, with symbolic
// sizes, and with the module and the line of the model's code on each node.
#pragma once

#include <string>

#include "graph/graph.h"
#include "import/json.h"

namespace tk {

struct ImportOptions {
  // Operators that are not known become tk.opaque nodes: for looking at a graph, not for running
  // it.
  bool allow_unknown = false;
  // The name of the result that holds the logits; empty: the only result with three axes.
  std::string output;
};

struct Pt2Graph {
  Graph graph;
  // "model." when the model was captured inside a wrapper that fixes its arguments. Module paths
  // are without it, names of weights keep it.
  std::string wrapper;
};

// Inputs are those of the captured forward, weights are named as in the checkpoint (wrapper
// included), the one output is the logits.
// Throws TK0202 (schema version), TK0203, TK0204 (sizes and types), TK0205 (a graph that
// contradicts itself), TK0206 (kinds of inputs and outputs), TK0207 (which output), TK0210 (unknown
// operators, all of them), TK0212 (arguments), TK0213 (a type is not what the file says), TK0220,
// TK0221 (changes in place), TK0312 (an operator's own demands) and the errors of JSON.
Pt2Graph import_pt2(const json::Value& root, const ImportOptions& options = {});

}  // namespace tk

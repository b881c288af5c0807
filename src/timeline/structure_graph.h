// Module paths from a captured model at hand (BD-51): the kernels that its graph would run, in
// order, against those that ran.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "timeline/roles.h"
#include "timeline/step_ops.h"

namespace tk {

// A kernel as the model's lowering makes it.
struct GraphKernel {
  std::string type, in_shapes, module;
};
// Reads a model (a .pt2, or a folder that optimize made) for a stage. Given by the command line, as
// a Timeline knows nothing of graphs. Throws UserError.
using GraphReader = std::function<std::vector<GraphKernel>(const std::string& path, bool prefill)>;

struct GraphAlignment {
  std::size_t compute = 0,
              aligned = 0;  // kernels with a meaning of their own, not copies and casts
  std::size_t graph_layers = 0, layers = 0;
  double coverage() const {
    return compute ? static_cast<double>(aligned) / static_cast<double>(compute) : 0;
  }
};

// Gives the step's kernels the module paths of `graph`: the longest common subsequence per stream,
// the fullest stream first, of kernels that are for the same; products by the size of their weights
// where that reaches 90 %. Copies and casts between go with the kernel before, or with one
// behind them that is in no layer. Below 90 % nothing is changed.
GraphAlignment align_graph(Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                           const std::vector<GraphKernel>& graph);

}  // namespace tk

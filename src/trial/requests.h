// Operators worth asking for (FU-50): chains that no operator of torch_npu computes, where one
// kernel instead of several would clearly pay.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "npu/clock.h"

namespace tk {

// One chain, the same in `places` parts of the model. Sizes and times are of a step of `tokens`.
struct OperatorRequest {
  std::string name;                  // "mul_tanh_mul": its operators
  std::string phase, module;         // "decode", "model.layers.*.self_attn"
  std::string where;                 // "modeling_gemma.py:42"; empty: not known
  std::string chain;                 // the graph of one place, in text form
  std::vector<std::string> refused;  // sites of the tree there, with why not
  std::int64_t places = 0;
  std::int64_t tokens = 0;
  int kernels = 0;      // of one place, as it is
  double bytes = 0;     // of one place: moved now, and not by one kernel
  double before_s = 0;  // all places
  double after_s = 0;   // all places: one kernel each
  double step_s = 0;    // the whole step
  double gain_s() const { return before_s - after_s; }
};

// What makes a gain clear: this part of a step, or so long.
constexpr double clear_part = 0.02;
constexpr double clear_seconds = 20e-6;

// Those of a fused graph, the largest gain first. A chain is what is connected, has no product and
// no operator of torch_npu in it, and could be one kernel: nothing leaves it and comes back.
std::vector<OperatorRequest> operator_requests(const Graph& graph, const std::string& phase,
                                               const NpuClock& clock, const StepShape& shape);

}  // namespace tk

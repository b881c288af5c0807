// The virtual NPU as the clock of trials: a graph is lowered and simulated, and two of them are
// compared as far as the model can tell them apart.
#pragma once

#include <cstdint>
#include <string_view>

#include "npu/lower_graph.h"
#include "npu/simulation.h"

namespace tk {

class NpuClock {
 public:
  // The default variant of the target ("a2", "a3"), its default costs, one graph a step.
  explicit NpuClock(std::string_view target);
  // The second of two steps, as `tokamak simulate` has it. Throws what lower_graph throws.
  Simulation step(const Graph& graph, const StepShape& shape,
                  sim::Mode mode = sim::Mode::ge_graph) const;
  Simulation step(const Step& work, const StepShape& shape,
                  sim::Mode mode = sim::Mode::ge_graph) const;
  const DeviceFile& device() const { return device_; }

 private:
  DeviceFile device_;
};

// after / before, and the interval that the model's error leaves to it. Kernels that are in both
// steps err alike and their error cancels; of those in one of them the kernels alike (type, shapes)
// err together and the others by themselves, each by what 9 of 10 published kernels were off at
// most. The band of published ratios of whole steps bounds it (VN-111).
struct Difference {
  double ratio = 1, low = 1, high = 1;
  double changed_ms = 0;  // kernels in one step only, of both steps
};
Difference difference(const Simulation& before, const Simulation& after);

}  // namespace tk

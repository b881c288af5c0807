// Core limits, SuperKernel scopes and prefetches of a step, and what each of them gains.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "npu/simulation.h"

namespace tk {

struct StepMoves {
  PlanOptions plan;
  std::string superkernel;  // a scope of superkernel.h; empty: none
  bool prefetch = false;
  bool prefetch_stays = false;  // the step is shown with them
  // --freq-drop (VN-36): the clock, by time since the start of the two steps.
  std::vector<std::pair<sim::Ps, std::int32_t>> mhz_from;
};

// "8:16" of all streams, "2=8:16" of stream 2: cube and vector cores. TK1451.
CoreLimit parse_core_limit(std::string_view text);

// The step as it runs with them, and what each gains: a bound, pending until it is measured. So
// what was to be chosen (prefetches, the scope `auto`) is left out of the step again; a scope that
// was asked for by name and prefetches that are to stay are in it. TK1453 for SuperKernel in eager
// mode.
Simulation simulate_step(const Step& step, const DeviceFile& device, const CostFile& costs,
                         sim::Mode mode, Scene scene, std::uint32_t without,
                         const StepMoves& moves);

}  // namespace tk

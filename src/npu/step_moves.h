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
  // --freq-drop (VN-36): the clock, by time since the start of the two steps.
  std::vector<std::pair<sim::Ps, std::int32_t>> mhz_from;
};

// "8:16" of all streams, "2=8:16" of stream 2: cube and vector cores. TK1451.
CoreLimit parse_core_limit(std::string_view text);

// The step as it runs with them. Prefetches, and scopes chosen by `auto`, are left out again where
// they gain nothing (of SuperKernel: 1 %) or where the gain is gone within the guesses behind it. A
// scope that was asked for by name stays. TK1453 for SuperKernel in eager mode.
Simulation simulate_step(const Step& step, const DeviceFile& device, const CostFile& costs,
                         sim::Mode mode, Scene scene, std::uint32_t without,
                         const StepMoves& moves);

}  // namespace tk

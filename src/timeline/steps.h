// The steps of a profile, and which one is typical (BD-17, BD-18).
#pragma once

#include <string>
#include <vector>

#include "timeline/step_ops.h"

namespace tk {

// Times by the profiler's own definitions (step_trace_time.csv), from the kernels; ns.
struct StepSummary {
  std::string name;
  std::size_t kernels = 0;
  Ns first = 0, last = 0;  // first start, last end
  Ns kernel_sum = 0;
  Ns computing = 0, communication = 0, exposed = 0, overlapped = 0, free = 0, stage = 0, bubble = 0;
  Ns preparing = -1;      // -1: the host's step range is unknown
  std::size_t group = 0;  // steps of equal kernel counts by type
  bool flagged = false;   // kernel sum more than 30 % off its group's median
};

struct StepChoice {
  std::size_t step = 0;
  std::string origin;  // user, auto:only, auto:nearest_median
  std::vector<std::string> warnings;
};

std::vector<StepSummary> summarize_steps(const Timeline& t,
                                         const std::vector<std::vector<std::uint32_t>>& by_step);

// wanted: "auto" or a Step Id. Throws TK0912 for an unknown step, and for strict with unequal
// steps.
StepChoice choose_step(const Timeline& t, const std::vector<std::vector<std::uint32_t>>& by_step,
                       const std::vector<StepSummary>& steps, const std::string& wanted,
                       bool strict);

}  // namespace tk

// The same kernel in every step (BD §16.3): what deviates in one layer always, and what only once.
#pragma once

#include <string>
#include <vector>

#include "timeline/step_ops.h"
#include "timeline/steps.h"

namespace tk {

struct StepAlignment {
  std::vector<std::string> steps;    // that were aligned, with the chosen one
  std::vector<std::string> skipped;  // of the same counts, with another order on a stream
  std::vector<Ns> median;            // duration per op of the chosen step, over the steps
  bool enough() const { return steps.size() >= 3; }
};

// Steps with the kernel counts of the chosen one are joined kernel by kernel: the n-th on a stream
// is the n-th on that stream, if its types are the same there.
StepAlignment align_steps(const Timeline& t, const std::vector<std::vector<std::uint32_t>>& by_step,
                          const std::vector<StepSummary>& steps, std::size_t chosen,
                          const StepOps& ops);

}  // namespace tk

#include "timeline/steps_align.h"

#include <algorithm>

#include "timeline/structure.h"

namespace tk {

StepAlignment align_steps(const Timeline& t, const std::vector<std::vector<std::uint32_t>>& by_step,
                          const std::vector<StepSummary>& steps, std::size_t chosen,
                          const StepOps& ops) {
  StepAlignment out;
  const auto mine = ops_by_stream(t, ops);
  std::vector<std::vector<Ns>> durations(ops.size());
  auto type_of = [&](const StepOps& s, std::uint32_t op) { return t.kernels[s.ops[op]].type; };
  for (std::size_t step = 0; step < steps.size(); ++step) {
    if (steps[step].group != steps[chosen].group || steps[step].kernels == 0) continue;
    const StepOps other = step_ops(t, static_cast<std::int32_t>(step), by_step[step]);
    const auto theirs = ops_by_stream(t, other);
    const bool same =
        mine.size() == theirs.size() &&
        std::equal(mine.begin(), mine.end(), theirs.begin(), [&](const auto& a, const auto& b) {
          return a.first == b.first &&
                 std::equal(a.second.begin(), a.second.end(), b.second.begin(), b.second.end(),
                            [&](std::uint32_t x, std::uint32_t y) {
                              return type_of(ops, x) == type_of(other, y);
                            });
        });
    (same ? out.steps : out.skipped).push_back(steps[step].name);
    if (!same) continue;
    for (auto a = mine.begin(), b = theirs.begin(); a != mine.end(); ++a, ++b)
      for (std::size_t i = 0; i < a->second.size(); ++i)
        durations[a->second[i]].push_back(t.kernels[other.ops[b->second[i]]].duration);
  }
  out.median.reserve(ops.size());
  for (std::vector<Ns>& d : durations) {
    std::sort(d.begin(), d.end());
    out.median.push_back(d.empty() ? 0 : d[(d.size() - 1) / 2]);
  }
  return out;
}

}  // namespace tk

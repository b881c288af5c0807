// The operators of one step as the analysis sees them: AI CPU out, collectives counted once.
#pragma once

#include <string>
#include <vector>

#include "timeline/timeline.h"

namespace tk {

// `index` of an operator is its place in `ops`; everything downstream uses it (BD §1, row domains).
struct StepOps {
  std::int32_t step = 0;
  std::vector<std::uint32_t> ops;        // indices into Timeline::kernels, by row
  std::vector<std::int32_t> streams;     // per op: the hardware stream, or below 0: a group's own
  std::vector<std::string> group_names;  // of stream -1-i: "comm:<group>"
  std::size_t ai_cpu_dropped = 0, fragments_dropped = 0, summaries = 0, duplicates_dropped = 0;

  std::size_t size() const { return ops.size(); }
  std::string stream_name(std::int32_t stream) const;
};

// Kernels of every step, by row (BD-14: rows in no step are left out).
std::vector<std::vector<std::uint32_t>> kernels_by_step(const Timeline& t);

// hcom_allReduce__586_0_1 -> 586: the number behind the double underscore names the group. Empty:
// the name has none.
std::string collective_group(std::string_view name);

StepOps step_ops(const Timeline& t, std::int32_t step, const std::vector<std::uint32_t>& kernels,
                 bool keep_ai_cpu = false);

}  // namespace tk

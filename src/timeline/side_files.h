// The small files of a profile beside the kernel table and the trace.
#pragma once

#include <filesystem>
#include <vector>

#include "timeline/timeline.h"

namespace tk {

// Each throws TK0911 for a file that is not what its name says, with the missing column or key.
std::vector<StepTime> read_step_trace(const std::filesystem::path& path);
std::vector<CollectiveTime> read_communication(const std::filesystem::path& path);
ProfilerInfo read_profiler_info(const std::filesystem::path& info,
                                const std::filesystem::path& metadata);

struct OpStatistic {
  std::string type, core;
  std::int64_t count = 0;
  double total_us = 0, min_us = 0, avg_us = 0, max_us = 0;
};
std::vector<OpStatistic> read_op_statistic(const std::filesystem::path& path);

}  // namespace tk

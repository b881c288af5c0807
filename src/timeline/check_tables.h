// Cross-checks of tables that were read whole (PF-37, PF-40, PF-41, PF-42).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "timeline/check.h"
#include "timeline/find.h"
#include "timeline/steps.h"

namespace tk {

// Kernels of one rank by type, without collectives, for PF-39.
struct RankCounts {
  std::string name;
  std::vector<std::string> steps;
  std::map<std::string, std::size_t> types;
  void fill(const Timeline& t);
  std::string difference(const RankCounts& other) const;  // empty: equal
};

// Cells with the time of an engine, in up to 20,000 rows from all over the table, and how many are
// longer than their kernel: the engines work inside it.
struct EngineCells {
  std::size_t timed = 0, longer = 0;
  bool disagree() const { return longer * 100 > timed; }
};
EngineCells engine_cells(const Timeline& t);

std::vector<CheckItem> check_tables(const ProfileFiles& files, const Timeline& t,
                                    const std::vector<StepSummary>& steps,
                                    const std::vector<StepTime>& times, double latency_ms);

}  // namespace tk

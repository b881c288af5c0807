// The profiler's step counting (profiling.md §3), once, for emission, checks and tests.
#pragma once

#include <string>
#include <vector>

namespace tk {

enum class ProfilerAction { none, warmup, record, record_and_save };

struct Schedule {
  int wait = 0, warmup = 0, active = 1, repeat = 1, skip_first = 0, skip_first_wait = 0;
};

// Negative values become 0, active below 1 becomes 1; each with a line in `warnings`.
Schedule legal_schedule(Schedule s, std::vector<std::string>& warnings);

// The state after `steps` calls of step() (0: before the first).
ProfilerAction action_at(const Schedule& s, int steps);

// Calls of step() after which one window is complete and saved: skip_first + wait + warmup +
// active.
int steps_needed(const Schedule& s);

// What is left on disk if the context is left after `steps` calls.
struct ScheduleOutcome {
  bool saved = false, complete = false, deleted = false;
  std::string message;  // the profiler's own words, or empty
};
ScheduleOutcome leave_after(const Schedule& s, int steps);

}  // namespace tk

#include "timeline/schedule.h"

#include "base/error.h"

namespace tk {

Schedule legal_schedule(Schedule s, std::vector<std::string>& warnings) {
  auto at_least = [&](int& value, int least, const char* name) {
    if (value >= least) return;
    warnings.push_back(cat(name, " ", value, " is not legal; ", least, " is used"));
    value = least;
  };
  at_least(s.wait, 0, "wait");
  at_least(s.warmup, 0, "warmup");
  at_least(s.active, 1, "active");
  at_least(s.repeat, 0, "repeat");
  at_least(s.skip_first, 0, "skip_first");
  return s;
}

ProfilerAction action_at(const Schedule& s, int steps) {
  if (steps < s.skip_first) return ProfilerAction::none;
  long at = steps - s.skip_first;
  if (s.skip_first_wait != 0) at += s.wait;
  const long cycle = static_cast<long>(s.wait) + s.warmup + s.active;
  if (s.repeat > 0 && at / cycle >= s.repeat) return ProfilerAction::none;
  const long m = at % cycle;
  if (m < s.wait) return ProfilerAction::none;
  if (m < s.wait + s.warmup) return ProfilerAction::warmup;
  return m == cycle - 1 ? ProfilerAction::record_and_save : ProfilerAction::record;
}

int steps_needed(const Schedule& s) {
  return s.skip_first + (s.skip_first_wait != 0 ? 0 : s.wait) + s.warmup + s.active;
}

ScheduleOutcome leave_after(const Schedule& s, int steps) {
  ScheduleOutcome out;
  out.complete = steps >= steps_needed(s);
  switch (action_at(s, steps)) {
    case ProfilerAction::none:
      out.saved = out.complete;
      break;
    case ProfilerAction::warmup:
      out.deleted = true;
      out.message = "Profiler is stopped in WARMUP: will result in empty parsed data";
      break;
    case ProfilerAction::record:
      out.saved = true;
      out.complete = false;
      out.message =
          "Incorrect schedule: Stop profiler while current state is RECORD which may result in "
          "incomplete parsed data";
      break;
    case ProfilerAction::record_and_save:
      out.saved = true;
      out.complete = true;
      out.message = "the profiler warns about the cycle; the window is whole";
      break;
  }
  return out;
}

}  // namespace tk

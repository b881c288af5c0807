// `tokamak emit profiling`: code that collects a usable profile (PF-03, PF-05, PF-10..19).
#pragma once

#include <string>

#include "timeline/schedule.h"

namespace tk {

struct ProfilingPlan {
  std::string stage = "both";                           // prefill, decode, both, timeline
  int decode_steps = 10, prefill_steps = 1, skip = -1;  // -1: decode 3, prefill 0
  std::string level = "Level1", metrics = "PipeUtilization";
  bool shapes = true, stack = false, memory = false;
  std::string out = "prof";
};

// Throws TK0921 for what cannot work: metrics without a level that has them, unknown names.
void check_plan(const ProfilingPlan& plan);
Schedule plan_schedule(const ProfilingPlan& plan, bool decode);
std::string profiling_script(const ProfilingPlan& plan);

// The command. Exit codes as profile_command.
int emit_profiling_command(int argc, char** argv);

}  // namespace tk

// What every profile gets (the "overview"): time by type, stream and core, the profiler's
// own step figures recomputed, gaps and their classes, slowest kernels, waiting.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "timeline/bubbles.h"
#include "timeline/steps.h"

namespace tk {

struct TimeShare {
  std::string name, core;
  std::size_t count = 0;
  Ns sum = 0, low = 0, high = 0;  // durations
  Ns busy = 0;                    // streams: union
};

struct StepCheck {  // a figure of step_trace_time.csv against ours, ns
  std::string step, name;
  double file = 0, ours = 0;
  bool equal = false;  // within 0.1 % of the stage
};

struct HostStretch {
  Ns from = 0, to = 0, idle = 0;
  std::size_t kernels = 0;
  std::uint32_t first = 0;  // kernel
};

struct RankWait {  // one collective (multi-rank: see ranks.h)
  std::string name;
  Ns elapse = 0, transit = 0, wait = 0;
};

struct Overview {
  std::vector<StepSummary> steps;
  std::size_t step = 0;                                // chosen
  std::vector<TimeShare> by_type, by_stream, by_core;  // of the chosen step, by time
  std::vector<std::uint32_t> slowest;                  // kernels
  std::vector<Gap> gaps;                               // of the chosen step, by time
  std::array<Ns, bubble_classes> gap_time{};
  std::array<std::size_t, bubble_classes> gap_count{};
  std::vector<HostStretch> host_bound;  // by idle time
  bool has_flows = false;
  std::vector<StepCheck> checks;
  std::size_t wait_rows = 0, wait_differs = 0;  // Wait Time as written against the formula
  Ns wait_total = 0, wait_worst = 0;
  std::vector<RankWait> collectives;
};

Overview make_overview(const Timeline& t, const std::vector<StepSummary>& steps, std::size_t step,
                       const StepOps& ops, const GapFinder& finder);
nlohmann::json overview_json(const Timeline& t, const Overview& o);
std::string overview_text(const Timeline& t, const Overview& o);

// max(0, start - end of the row before it on the device), all streams, by start (KD "Wait Time").
// Per kernel of the Timeline.
std::vector<Ns> wait_times(const Timeline& t);

}  // namespace tk

// Measured durations in simulated order: how much of a measured step gaps, events and order explain
// (VN-105).
#pragma once

#include <string>

#include "npu/device_file.h"
#include "timeline/timeline.h"

namespace tk {

struct Replay {
  std::size_t kernels = 0, streams = 0, edges = 0;  // edges: waits across streams, inferred
  double measured_us = 0, replayed_us = 0;          // first start to last end
  double busy_us = 0;                               // sum of durations
  double start_error_us = 0;                        // median of |replayed - measured| of starts
  double unexplained_us = 0;  // gaps of 5 us and more: a host that was late, or another job
};

// One step of the profile (the first when `step` is empty). A kernel that starts within 5 us of the
// end of one on another stream, later than its own stream would let it, is taken to wait for it.
// Throws TK1433 for a step that is none, or one with fewer than 2 kernels.
Replay replay(const Timeline& t, const std::string& step, const DeviceFile& device,
              const CostFile& costs);
std::string replay_text(const Replay& r);

}  // namespace tk

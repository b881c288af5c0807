// All ranks of a deployment at once, each with its own lengths and routing: who comes late to a
// collective, and who waits (VN-72).
#pragma once

#include <string>
#include <vector>

#include "npu/simulation.h"

namespace tk {

// One Plan of Plans of single ranks. `of_rank[r]` is the Plan of rank r, an index into `plans`;
// their groups are those of rank 0 of each (devices 0 .. size - 1), and rank r's group of that size
// is the one that it lies in. An exchange of ranks that send different amounts gets the matrix of
// all.
sim::Plan join_ranks(const std::vector<sim::Plan>& plans, const std::vector<int>& of_rank);

struct RankTime {
  double computing_us = 0;       // kernels that are no collectives
  double transfer_us = 0;        // in collectives, once all are there
  double waiting_us = 0;         // in collectives, for those that are not there yet
  int came_last = 0;             // collectives that others waited for it at
  std::vector<sim::Span> spans;  // of the second step, by start
};

struct RanksSimulation {
  Scene scene;
  std::string device, cost_id;
  sim::Plan plan;
  sim::DeviceParams params;
  sim::Result result;           // of two steps
  sim::Ps begin = 0, step = 0;  // of the second one
  Band band;
  std::vector<RankTime> ranks;

  double step_ms() const { return static_cast<double>(step) / 1e9; }
  double waiting_share() const;  // of the time of all ranks in collectives
};

// Throws TK1402 and TK1403 for ranks that wait for each other for ever.
RanksSimulation simulate_ranks(sim::Plan plan, const DeviceFile& device, const CostFile& costs,
                               Scene scene, const sim::SimOptions& options);

std::string ranks_text(const RanksSimulation& s);
std::string to_json(const RanksSimulation& s);

}  // namespace tk

// What simulate writes beside simulation.json: the profiler's files, and a sweep as a page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu/simulation.h"

namespace tk::cli {

// One rank's launches as they ran, for the profiler's files.
struct SimulatedRun {
  const sim::Plan* plan = nullptr;
  const sim::DeviceParams* params = nullptr;
  const std::vector<sim::Span>* spans = nullptr;  // by start
  sim::Ps begin = 0;                              // of the step
  std::string producer;
  int rank = 0, world_size = 0;  // of all ranks
  bool knows_peers = false;      // all ranks ran: waiting is told from transfer
  std::vector<std::pair<sim::Ps, std::int32_t>> mhz_from;  // the clock, by time
};
std::string producer_of(const std::string& device, const Scene& scene, const std::string& cost_id);

// DIR/*_ascend_pt, marked as simulated by its producer (VN-141); returns that folder.
std::string write_simulated_profile(const SimulatedRun& run, const std::string& folder);

struct SweepPoint {
  std::int64_t batch = 0, tokens = 0;
  double step_ms = 0, bytes = 0;  // bytes: weights and caches of the rank
  double tokens_per_second() const { return static_cast<double>(tokens) * 1e3 / step_ms; }
};

std::string sweep_json(const std::vector<SweepPoint>& points, const std::string& model,
                       const std::string& device, const std::string& mode, const std::string& phase,
                       const Band& band, double memory);
// Throughput against latency, an SVG in a page that needs nothing from a network.
std::string sweep_html(const std::vector<SweepPoint>& points, const std::string& model,
                       const std::string& device, const std::string& mode, const std::string& phase,
                       const Band& band, double memory);

}  // namespace tk::cli

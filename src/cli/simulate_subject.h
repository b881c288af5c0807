// What simulate times: the command's flags, the model, and its step as kernels.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "npu/ranks.h"
#include "npu/step_moves.h"
#include "trial/optimize.h"

namespace tk::cli {

struct SimulateFlags {
  std::string model, out, target, device, phase = "decode", mode = "ge_graph", without, explain,
                                          sweep, costs, cases, configs, unknown_op, replay, ranks,
                                          lengths, superkernel, prefetch, plan, write_plan, buckets,
                                          on_miss = "eager", faults;
  std::vector<std::string> compare, calibrate, core_limits;
  std::int64_t batch = 1, kv = 4096, tp = 1, ep = 1, block_size = 128;
  std::optional<std::int64_t> tokens;  // none: by the phase
  double zipf = 0;
  double warm_up_s = 0;
  bool modes = false;
  bool device_info = false, streams = false, no_fuse = false, json = false, quiet = false;
  bool dynamic = false;
};

// A graph of the phase, or a config.
struct SimulateSubject {
  std::string name;
  std::optional<Graph> graph;
  std::string config, file;
};

SimulateSubject open_subject(const SimulateFlags& f, Target target);

struct Npu {
  DeviceFile file;
  CostFile costs;
  sim::Mode mode;
};

// Sequences of one rank, and which rank it is of those that share the experts.
struct RankShape {
  std::int64_t batch = 1, kv = 0;     // kv: tokens in the cache of each, of lengths the mean
  std::vector<std::int64_t> lengths;  // empty: all have kv
  std::int64_t rank = 0, all_tokens = 0;
};
// `mhz_from` and `stalled` come from faults that are emulated.
struct Disturbance {
  std::vector<std::pair<sim::Ps, std::int32_t>> mhz_from;
  bool stalled = false;  // an AI CPU operator of 5 ms in the middle of the step
};
std::int64_t new_tokens(const SimulateFlags& f);  // of each sequence
Step lower(const SimulateSubject& s, const SimulateFlags& f, const RankShape& shape);

Scene scene_of(const SimulateSubject& s, const SimulateFlags& f, std::int64_t batch);
// Without what an eager step cannot have.
StepMoves moves_of(const SimulateFlags& f, sim::Mode mode);

// One rank with symmetric peers. With --buckets the batch is padded, or misses (VN-52).
Simulation simulate_batch(const SimulateSubject& s, const SimulateFlags& f, const Npu& d,
                          std::int64_t batch, const Disturbance& disturbance = {});

// Each rank with its own lengths and experts (VN-72). TK1450 for lengths or degrees that do not fit
// together, TK1456 for what is not told apart by rank.
RanksSimulation simulate_all_ranks(const SimulateSubject& s, const SimulateFlags& f, const Npu& d,
                                   const Disturbance& disturbance = {});

}  // namespace tk::cli

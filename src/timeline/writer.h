// Writes a Timeline as the profiler's own files (PF-50..53), so that every tool that reads a real
// profile reads a run on this CPU or a simulation.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "timeline/timeline.h"

namespace tk {

// Pipe counters of one kernel (VN-29), us; below 0: not modelled, written as N/A.
struct PipeCounters {
  double aicore = -1, mac = -1, aic_mte2 = -1;
  double aiv = -1, vec = -1, aiv_mte2 = -1, aiv_mte3 = -1;
  double mhz = 0;
  int cubes = 0, vectors = 0;  // that the kernel ran on
  int cubes_of_device = 0;     // for cube_utilization
  bool collected() const { return aicore >= 0 || aiv >= 0; }
};

struct WriteOptions {
  std::string producer;  // "tokamak run", "tokamak simulate a3 ..."; never empty
  int rank = 0;
  std::string level = "Level1";
  std::vector<PipeCounters> counters = {};  // of Timeline::kernels, in order; empty: none
  int world_size = 0;                       // ranks of the run; 0: nothing is said of it
};

// Makes DIR/<host>_<pid>_<time>_ascend_pt/ASCEND_PROFILER_OUTPUT/{kernel_details.csv,
// trace_view.json, op_statistic.csv, step_trace_time.csv, operator_details.csv, and
// communication.json if there are collectives} and profiler_info, profiler_metadata; returns that
// folder. What was not modelled is N/A. read(write(T)) equals T to the ns. Module
// paths are a column "Module" behind the profiler's own. Throws TK0103.
std::filesystem::path write_profile(const Timeline& t, const std::filesystem::path& folder,
                                    const WriteOptions& options);

// For those who make Timelines: one kernel, with texts put into the pool.
struct KernelText {
  Ns start = 0, duration = 0;
  std::string name, type,
      core;  // core as the profiler spells it: AI_CORE ...; "CPU" on this machine
  std::string in_shapes, out_shapes, in_types, module;
  std::int32_t stream = 0;
  int step = 0;
  std::uint32_t blocks = 0;
};
// Kernels may come in any order; step texts are the numbers. base_ns: absolute ns of start 0.
Timeline make_timeline(const std::vector<KernelText>& kernels, Ns base_ns);

}  // namespace tk

// --trace DIR: the runs of an engine as a Timeline, written as the profiler's own files.
#pragma once

#include <string>
#include <vector>

#include "cpu/runner.h"
#include "timeline/writer.h"

namespace tk::cli {

// One step per run, one kernel per launch, with the module path of its node. A launch's time is
// that of its slowest thread; what a profiler of an NPU counts and a CPU has not is N/A (PF-51).
class TraceRecorder {
 public:
  // Records from now on; one at a time per runner.
  void attach(Runner* runner);
  // Writes DIR/*_ascend_pt and returns that folder. Throws TK0103.
  std::string write(const std::string& folder, const std::string& command) const;

 private:
  void add(const Bound& bound, const LaunchTimes& times);
  std::vector<KernelText> kernels_;
  std::int64_t base_steady_ns_ = 0, base_system_ns_ = 0;
  int step_ = 0;
  std::uint32_t threads_ = 1;
};

}  // namespace tk::cli

// `tokamak emit microbench`: a torch_npu script that times kernels on a real NPU, and its results
// as samples for calibration.
#pragma once

#include <string>

#include "npu/calibrate/samples.h"

namespace tk {

std::string microbench_script();

struct Microbench {
  ProfileSamples samples;
  double host_eager_us = 0, graph_launch_us = 0;  // 0: not measured
};
// Throws TK1430 for a file that is none, that an emulation wrote, or that has no rows.
Microbench read_microbench(const std::string& json, const std::string& file, double l2_bytes);

// The command. Exit codes as `tokamak profile`.
int emit_microbench_command(int argc, char** argv);

}  // namespace tk

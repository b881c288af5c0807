// `tokamak simulate --calibrate` and `--replay`: measured profiles and the virtual NPU.
#pragma once

#include <string>
#include <vector>

#include "npu/device_file.h"

namespace tk::cli {

// Fits the cost file to the profiles in `folders` and writes it to `out`; prints what moved and the
// error over shapes held out. Returns the exit code.
int calibrate_from(const std::vector<std::string>& folders, const std::string& out,
                   DeviceFile device, const CostFile& costs);
int replay_of(const std::string& folder, const DeviceFile& device, const CostFile& costs);

}  // namespace tk::cli

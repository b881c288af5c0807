// Constants of the cost file from samples of a measured profile (VN-101, VN-102).
#pragma once

#include <string>
#include <vector>

#include "npu/calibrate/samples.h"

namespace tk {

struct FittedConstant {
  std::string name, unit;
  double was = 0, value = 0;
  double relative_error = 0;  // standard error, as a share of the value
  int shapes = 0;             // samples that depend on it
  std::string range;          // of their times: "1.1 to 171.9 us"
};

struct FitError {
  std::size_t shapes = 0;
  double median = 0, p90 = 0;  // |predicted / measured - 1|, each shape once
  double kernel_median = 0;    // each shape as often as it was seen
};

struct Calibration {
  std::vector<FittedConstant> constants;
  std::vector<std::string> refused;  // no better than before on shapes left out (VN-102)
  CostFile costs;                    // with them
  FitError before, after, held_out;  // held out: half of the shapes from the other half
  double lowest = 0, highest = 0;    // median held out of the random halvings
  std::vector<std::pair<std::string, FitError>> by_type;  // held out
};

// The time of a sample's kernel alone on the device.
double predicted_us(const Sample& s, const DeviceFile& device, const CostFile& costs);

// Least squares on log residuals; constants are pulled towards what they were, so that few samples
// move little. A constant that does no better than before on shapes left out one at a time stays as
// it was. What constants leave unsaid of each kernel is kept with it (near.h). Throws TK1432 for
// fewer than 4 samples.
Calibration calibrate(const std::vector<Sample>& samples, const DeviceFile& device,
                      const CostFile& start);

// A whole cost file, for --costs.
std::string cost_json(const Calibration& c, const std::string& source);
std::string calibration_text(const Calibration& c, const ProfileSamples& samples);

}  // namespace tk

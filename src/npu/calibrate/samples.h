// A measured profile as samples for calibration: kernels of one type and shape, their median time,
// and the work that the cost model takes them for (VN-100).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "npu/work.h"
#include "timeline/timeline.h"

namespace tk {

// Kernels alike. Bytes of `work.operands` refer to no tensor.
struct Sample {
  std::string type, shapes, core;
  KernelWork work;
  Moved moved;
  double us = 0;  // median
  int count = 0;  // kernels, without the first of each step and outliers
};

struct ProfileSamples {
  std::vector<Sample> samples;  // by type, then shapes
  std::size_t kernels = 0;      // in the profile
  std::size_t first = 0, outliers = 0;
  std::map<std::string, std::size_t> left_out;  // type -> kernels without a rule
  std::uint32_t cubes = 0;                      // most blocks of a kernel with cube cores
  double mhz = 0;                               // from the frequency track; 0: not collected
};

// A kernel in the profiler's words. Formats may be empty.
struct KernelRow {
  std::string type, in_shapes, in_types, out_shapes, out_types, in_formats, out_formats;
};
// The work and the bytes of a sample; false where they cannot be told. `core` may be unknown.
// `cold` says for each input whether it comes from HBM; empty: the weight of a product and the
// cache of attention do, all else is in L2. What is more than half of L2 never is.
bool work_of(const KernelRow& row, Core core, double l2_bytes, const std::vector<char>& cold,
             Sample* sample);

// Throws TK1430 for a profile without shapes or types (Level0), of this CPU, that a simulation
// wrote, or with fewer than 50 kernels.
ProfileSamples samples_of(const Timeline& t, const std::string& where, double l2_bytes);

// Samples of several profiles of one kind of device; TK1431 when they are not.
ProfileSamples joined_samples(std::vector<ProfileSamples> all,
                              const std::vector<std::string>& where);

}  // namespace tk

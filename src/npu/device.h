// What a device can do, as data: one entry a device, every number with its source.
#pragma once

#include <string_view>

namespace tk {

struct Device {
  std::string_view name;  // as targets are called: "a2", "a3"
  std::string_view part;  // what is meant by it
  double cube_flops;      // bf16 per second, matrix units of one die
  double vector_flops;    // f32 per second
  double memory_rate;     // bytes per second from HBM, as kernels reach it
  double vector_floor_s;  // the shortest kernel of the vector units
  double cube_floor_s;    // the shortest kernel with matrix units
};

// Null when there is none of that name.
const Device* find_device(std::string_view name);

}  // namespace tk

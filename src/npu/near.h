// What the constants of the cost file leave unsaid of a kernel: kernels near to it in type and size
// were measured, and took so many times what the constants say (VN-101, VN-103). One rule for all
// types: the weighted median of the factors of what a calibration has seen, nearest first. A median
// and not a mean, as kernels seen once are often far off (cold caches, a clock that changed).
#pragma once

#include <array>
#include <string>
#include <vector>

namespace tk {

// A kernel as a point; a measured one has a factor. Empty texts are not known and differ from none.
struct NearKernel {
  std::string type;             // "MatMulV2"
  std::string family;           // "matmul"
  std::string dtype, layout;    // of the first operand; which operands are transposed or blocked
  bool cube = false;            // multiplies matrices
  double alone_us = 0;          // by the constants
  double read = 0, write = 0;   // bytes
  std::array<double, 3> mnk{};  // of products, 0 for others
  double factor = 1;            // measured over alone_us
  double count = 0;             // kernels behind it
};

// 1 where nothing near was measured.
double near_factor(const NearKernel& k, const std::vector<NearKernel>& measured);

}  // namespace tk

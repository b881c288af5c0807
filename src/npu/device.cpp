#include "npu/device.h"

namespace tk {
namespace {

// Matrix and vector rates: Ascend/msmodeling tensor_cast/device.py (nominal).
// Memory: 1.29 to 1.56 TB/s measured on a matrix product of 212 MB of weights, and the floors (the
// shortest Scatter and MatMul kernels): kernel_details of lukaIvanic/paddle_ocr_vl_npu on a 910B2.
// An A3 die is taken to be as an A2 there: the nominal figures of both are equal.
constexpr Device devices[] = {
    {"a2", "Atlas A2, 910B2, one device", 353.9e12, 11.0e12, 1.4e12, 1.0e-6, 4.7e-6},
    {"a3", "Atlas A3, one die", 353.9e12, 11.0e12, 1.4e12, 1.0e-6, 4.7e-6},
};

}  // namespace

const Device* find_device(std::string_view name) {
  for (const Device& d : devices)
    if (d.name == name) return &d;
  return nullptr;
}

}  // namespace tk

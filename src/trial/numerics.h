// How far two sets of logits (or site outputs) are apart, and what is allowed.
#pragma once

#include <cstdint>
#include <string>

#include "base/tensor.h"

namespace tk {

// One table of tolerances for everything that is compared (OP-74).
struct Tolerance {
  double relative = 0;  // of the largest absolute reference value
  std::string_view why;
};
// Of whole-model logits: f32 2e-4; 16-bit types are judged by ErrorStats against an f32 reference.
Tolerance logits_tolerance(DType dtype);
// Of one site's outputs: f32 1e-5, bf16 and f16 by their rounding (2^-7 and 2^-10).
Tolerance site_tolerance(DType dtype);
// A 16-bit result may be this much further from the f32 reference than the captured model itself.
constexpr double allowed_error_ratio = 1.5;

struct ErrorStats {
  std::int64_t compared = 0;    // elements
  std::int64_t not_finite = 0;  // NaN or infinity on one side only
  double max_abs = 0, max_reference = 0;
  double sum_squares = 0;
  std::int64_t worst = -1;                // element with max_abs
  std::int64_t rows = 0, top1_equal = 0;  // rows: the last axis

  double relative() const { return max_reference > 0 ? max_abs / max_reference : max_abs; }
  double rms() const;
  double top1_agreement() const {
    return rows > 0 ? static_cast<double>(top1_equal) / static_cast<double>(rows) : 1;
  }
  void merge(const ErrorStats& other);
};

// Same shape, any dtypes and strides.
ErrorStats compare(const TensorView& got, const TensorView& reference);

std::int64_t argmax(const TensorView& row);  // of a rank-1 view; NaN never wins

}  // namespace tk

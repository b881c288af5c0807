#include "trial/numerics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tk {

Tolerance logits_tolerance(DType dtype) {
  if (dtype == DType::f32 || dtype == DType::f64)
    return {2e-4, "f32: sums in another order, over all layers"};
  if (dtype == DType::f16) return {2e-2, "f16: roundings of all layers"};
  return {8e-2, "bf16: roundings of all layers"};
}

Tolerance site_tolerance(DType dtype) {
  if (dtype == DType::f32 || dtype == DType::f64) return {1e-5, "f32: sums in another order"};
  if (dtype == DType::f16) return {1.0 / 512, "f16: two roundings"};
  return {1.0 / 64, "bf16: two roundings"};
}

double ErrorStats::rms() const {
  return compared > 0 ? std::sqrt(sum_squares / static_cast<double>(compared)) : 0;
}

void ErrorStats::merge(const ErrorStats& o) {
  if (o.max_abs > max_abs) worst = o.worst;
  compared += o.compared;
  not_finite += o.not_finite;
  max_abs = std::max(max_abs, o.max_abs);
  max_reference = std::max(max_reference, o.max_reference);
  sum_squares += o.sum_squares;
  rows += o.rows;
  top1_equal += o.top1_equal;
}

ErrorStats compare(const TensorView& got_any, const TensorView& reference_any) {
  TK_CHECK(got_any.shape == reference_any.shape, got_any.shape.str(), " against ",
           reference_any.shape.str());
  const Tensor got = to_dtype(got_any, DType::f32);
  const Tensor reference = to_dtype(reference_any, DType::f32);
  ErrorStats s;
  const std::int64_t n = got.numel();
  const std::int64_t width = got.rank() == 0 ? 1 : got.shape.back();
  s.compared = n;
  const float* a = got.as<float>();
  const float* b = reference.as<float>();
  for (std::int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
      const bool same = (std::isnan(a[i]) && std::isnan(b[i])) || a[i] == b[i];
      s.not_finite += same ? 0 : 1;
      continue;
    }
    const double d = std::abs(static_cast<double>(a[i]) - b[i]);
    s.sum_squares += d * d;
    s.max_reference = std::max(s.max_reference, std::abs(static_cast<double>(b[i])));
    if (d > s.max_abs || s.worst < 0) {
      s.max_abs = d;
      s.worst = i;
    }
  }
  if (width > 0)
    for (std::int64_t r = 0; r < n / width; ++r) {
      ++s.rows;
      const auto top = [&](const float* p) {
        return std::max_element(p + r * width, p + (r + 1) * width) - (p + r * width);
      };
      s.top1_equal += top(a) == top(b) ? 1 : 0;
    }
  return s;
}

std::int64_t argmax(const TensorView& row) {
  std::int64_t best = 0;
  double top = -INFINITY;
  for (std::int64_t i = 0; i < row.numel(); ++i)
    if (const double v = element(row, i); v > top) {
      top = v;
      best = i;
    }
  return best;
}

}  // namespace tk

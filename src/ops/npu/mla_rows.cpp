#include "ops/npu/mla_rows.h"

#include <cmath>

#include "graph/graph.h"

namespace tk::ops {

std::vector<float> floats(const TensorView& t) {
  const Tensor f = to_dtype(t, DType::f32);
  return {f.as<float>(), f.as<float>() + f.numel()};
}

void rms_norm(std::vector<float>* x, const std::vector<float>& weight, float eps) {
  double squares = 0;
  for (const float v : *x) squares += static_cast<double>(v) * static_cast<double>(v);
  const auto factor = static_cast<float>(
      1 / std::sqrt(squares / static_cast<double>(x->size()) + static_cast<double>(eps)));
  for (std::size_t i = 0; i < x->size(); ++i) (*x)[i] *= factor * weight[i];
}

void rotate_half(std::vector<float>* x, const float* cos, const float* sin) {
  const std::vector<float> was = *x;
  const std::size_t half = x->size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    (*x)[i] = was[i] * cos[i] - was[half + i] * sin[i];
    (*x)[half + i] = was[half + i] * cos[half + i] + was[i] * sin[half + i];
  }
}

void rotate_pairs(std::vector<float>* x, const float* cos, const float* sin) {
  const std::vector<float> was = *x;
  const std::size_t half = x->size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    (*x)[i] = was[2 * i];
    (*x)[half + i] = was[2 * i + 1];
  }
  rotate_half(x, cos, sin);
}

void scale_by(std::vector<float>* x, const std::vector<float>& factor) {
  if (factor.empty()) return;
  for (std::size_t i = 0; i < x->size(); ++i) (*x)[i] *= factor[factor.size() == 1 ? 0 : i];
}

void round_to(std::vector<float>* x, DType dtype) {
  if (dtype == DType::bf16)
    for (float& v : *x) v = to_float(to_bf16(v));
  if (dtype == DType::f16)
    for (float& v : *x) v = to_float(to_f16(v));
}

}  // namespace tk::ops

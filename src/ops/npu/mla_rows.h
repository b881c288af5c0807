// Rows of MLA and of other norms that are rotated: in f32, one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/op.h"

namespace tk::ops {

// All elements, row-major, as f32.
std::vector<float> floats(const TensorView& t);
// x = x / sqrt(mean(x * x) + eps) * weight.
void rms_norm(std::vector<float>* x, const std::vector<float>& weight, float eps);
// x = x * cos + rotate_half(x) * sin, where rotate_half(x) is (-second half, first half).
void rotate_half(std::vector<float>* x, const float* cos, const float* sin);
// The same after its even lanes were moved to the front half, the odd ones behind.
void rotate_pairs(std::vector<float>* x, const float* cos, const float* sin);
// x *= factor: one, or one an element; nothing where there is none.
void scale_by(std::vector<float>* x, const std::vector<float>& factor);
// As the dtype holds it, and back.
void round_to(std::vector<float>* x, DType dtype);

}  // namespace tk::ops

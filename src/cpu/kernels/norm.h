// RMSNorm and LayerNorm over the last axis; optionally of a sum, which is kept too.
// Rows are [rows, heads]; heads > 1 serves q/k norms on a [T, H, D] view.
#pragma once

#include "cpu/kernels/common.h"

namespace tk::kernels {

// s = x (+ residual);  y = s / sqrt(mean(s^2) + eps) * (weight + weight_offset)
// s is rounded to its storage dtype first when sum is given, so that both outputs agree.
struct RmsNormArgs {
  const void* x = nullptr;
  const void* residual = nullptr;  // optional, x's dtype, strides residual_*
  void* sum = nullptr;             // optional, x's dtype: x + residual; may be x or residual
  const void* weight = nullptr;    // optional, [d]
  void* y = nullptr;               // may be x
  DType dtype = DType::f32;        // x, residual, sum
  DType weight_dtype = DType::f32, y_dtype = DType::f32;
  std::int64_t rows = 0, heads = 1, d = 0;
  std::int64_t x_stride = 0, x_head_stride = 0;
  std::int64_t residual_stride = 0, residual_head_stride = 0;
  std::int64_t sum_stride = 0, sum_head_stride = 0;
  std::int64_t y_stride = 0, y_head_stride = 0;
  float eps = 1e-6F;
  float weight_offset = 0.0F;  // 1 for Gemma's 1 + w
};
void rms_norm(const RmsNormArgs& args, int thread, int n_threads);

// y = (s - mean) / sqrt(var + eps) * weight + bias, var without Bessel's correction.
struct LayerNormArgs {
  RmsNormArgs norm;            // weight_offset as there
  const void* bias = nullptr;  // optional, [d], weight_dtype
};
void layer_norm(const LayerNormArgs& args, int thread, int n_threads);

}  // namespace tk::kernels

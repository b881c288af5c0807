// Root-mean-square norms as torch_npu's operators share them.
#pragma once

#include <functional>

#include "graph/op.h"

namespace tk::ops {

// gamma spans the trailing axes of x. Returns the type of rstd: f32, those axes being 1. Fails
// (TK0312) where gamma doesn't, or the types don't fit.
Type rstd_type(const Args& args, int x, int gamma);

// y = x / sqrt(mean(x^2) + epsilon) * (gamma + offset) + beta over gamma's axes, in f32; `row` gets
// each row of y, with its rstd. beta is absent where data is null.
struct RmsNorm {
  TensorView x, gamma, beta;
  float epsilon = 0, offset = 0;
};
void rms_norm(const RmsNorm& norm,
              const std::function<void(std::int64_t i, std::vector<float>& y, float rstd)>& row);

// sum = a + b, rounded; sum may be one of them.
void add_rows(const TensorView& a, const TensorView& b, const TensorView& sum);
void need_same_type(const Args& args, int a, int b);

}  // namespace tk::ops

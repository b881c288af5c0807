// The matrix product of the references.
#pragma once

#include "base/tensor.h"

namespace tk::ops {

// out [m, n] = alpha * a [m, k] * b [k, n] + beta * c, of one dtype, any strides; c broadcasts to
// [m, n] and is absent where data is null. 16-bit floats are widened, summed in f32 and rounded
// once. Out is written through its strides.
void gemm(const TensorView& a, const TensorView& b, const TensorView& out, double alpha = 1,
          double beta = 0, const TensorView& c = {});

// The same for each matrix of operands of rank 2 or more, whose batch axes broadcast to out's.
void batched_gemm(TensorView a, TensorView b, const TensorView& out, double alpha = 1,
                  double beta = 0, const TensorView& c = {});

}  // namespace tk::ops

// The operands of a matrix product as its kernel wants them.
#pragma once

#include "base/tensor.h"
#include "cpu/kernels/linear.h"

namespace tk {

// The last two axes of a weight: its layout, and the distance of the rows that lie in memory.
struct WeightView {
  kernels::WeightLayout layout;
  std::int64_t n, k, stride;
};

// `n_k`: the last axes are [N, K], else [K, N]. False when neither of them is contiguous.
inline bool weight_view(const TensorView& w, bool n_k, WeightView* out) {
  const int row = w.rank() - 2;
  if (row < 0) return false;
  const std::int64_t n = w.shape[n_k ? row : row + 1];
  const std::int64_t k = w.shape[n_k ? row + 1 : row];
  // The same memory is [N, K] to one and the transpose of [K, N] to the other.
  if (w.strides[row + 1] == 1 || w.shape[row + 1] == 1) {
    *out = {n_k ? kernels::WeightLayout::n_k : kernels::WeightLayout::k_n, n, k, w.strides[row]};
    return true;
  }
  if (w.strides[row] == 1 || w.shape[row] == 1) {
    *out = {n_k ? kernels::WeightLayout::k_n : kernels::WeightLayout::n_k, n, k,
            w.strides[row + 1]};
    return true;
  }
  return false;
}

// y = x w (+ bias) (through the gated unit). The number of rows and the strides of x and y are left
// to the caller, who knows which axes are rows.
inline kernels::LinearArgs product_args(const TensorView& x, const TensorView& w,
                                        const WeightView& view, const TensorView& y,
                                        const TensorView* bias = nullptr,
                                        const kernels::Glu* glu = nullptr) {
  kernels::LinearArgs a;
  a.x = x.data;
  a.w = w.data;
  a.y = y.data;
  a.x_dtype = x.dtype;
  a.w_dtype = w.dtype;
  a.y_dtype = y.dtype;
  a.layout = view.layout;
  a.n = view.n;
  a.k = view.k;
  a.w_stride = view.stride;
  if (bias != nullptr) {
    a.bias = bias->data;
    a.bias_dtype = bias->dtype;
  }
  if (glu != nullptr) {
    a.gated = true;
    a.glu = *glu;
  }
  return a;
}

}  // namespace tk

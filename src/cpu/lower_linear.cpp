// Matrix products with a weight: aten.linear, mm, addmm, and matmul by a matrix.
#include "cpu/glu.h"
#include "cpu/kernels/linear.h"
#include "cpu/prepare.h"
#include "cpu/rows.h"

namespace tk {
namespace {

// How the kernel sees w, whose rows are the outputs when `n_k`.
struct WeightView {
  kernels::WeightLayout layout;
  std::int64_t n, k, stride;
};

bool weight_view(const TensorView& w, bool n_k, WeightView* out) {
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

const char* linear(Prepare& p, const TensorView& x, const TensorView& w, bool n_k,
                   const TensorView* bias, const kernels::Glu* glu = nullptr) {
  const TensorView& y = p.out();
  if (!kernel_float(x.dtype) || !kernel_float(w.dtype) || !kernel_float(y.dtype))
    return "dtypes other than f32, bf16, f16";
  if (w.rank() != 2) return "the weight is no matrix";
  WeightView v;
  if (!weight_view(w, n_k, &v)) return "the weight's strides";
  Matrix mx;
  Matrix my;
  if (!as_matrix(x, &mx) || !as_matrix(y, &my)) return "the input's strides";
  if (bias != nullptr && (!kernel_float(bias->dtype) || bias->rank() != 1 || !bias->contiguous() ||
                          bias->shape[0] != v.n))
    return "the bias is no contiguous vector";
  if (mx.rows == 0 || v.n == 0 || v.k == 0) return "an empty operand";
  auto& a = p.launch<kernels::linear>("linear", x.bytes() + w.bytes() + y.bytes());
  a.x = x.data;
  a.w = w.data;
  a.y = y.data;
  a.x_dtype = x.dtype;
  a.w_dtype = w.dtype;
  a.y_dtype = y.dtype;
  if (bias != nullptr) {
    a.bias = bias->data;
    a.bias_dtype = bias->dtype;
  }
  if (glu != nullptr) {
    a.gated = true;
    a.glu = *glu;
  }
  a.layout = v.layout;
  a.m = mx.rows;
  a.n = v.n;
  a.k = v.k;
  a.x_stride = mx.stride;
  a.w_stride = v.stride;
  a.y_stride = my.stride;
  p.scratch(&a.scratch, kernels::linear_scratch_bytes(a, p.n_threads));
  if (p.constant(1)) p.streams(&a.next_w, &a.next_bytes, w);
  return nullptr;
}

}  // namespace

const char* prepare_linear(Prepare& p) {
  return linear(p, p.in(0), p.in(1), true, p.has(2) ? &p.in(2) : nullptr);
}

const char* prepare_linear_glu(Prepare& p) {
  const kernels::Glu glu = glu_of(p.args);
  return linear(p, p.in(0), p.in(1), true, p.has(2) ? &p.in(2) : nullptr, &glu);
}

const char* prepare_mm(Prepare& p) { return linear(p, p.in(0), p.in(1), false, nullptr); }

const char* prepare_matmul(Prepare& p) {
  if (p.in(1).rank() != 2 || p.in(0).rank() < 2) return "not a product with one matrix";
  return linear(p, p.in(0), p.in(1), false, nullptr);
}

const char* prepare_addmm(Prepare& p) {
  if (p.args.f64("beta") != 1 || p.args.f64("alpha") != 1) return "scaled operands";
  return linear(p, p.in(1), p.in(2), false, &p.in(0));
}

}  // namespace tk

// Matrix products with a weight: aten.linear, mm, addmm, and matmul by a matrix.
#include "cpu/glu.h"
#include "cpu/kernels/linear.h"
#include "cpu/prepare.h"
#include "cpu/product.h"
#include "cpu/rows.h"

namespace tk {
namespace {

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
  a = product_args(x, w, v, y, bias, glu);
  a.m = mx.rows;
  a.x_stride = mx.stride;
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

// Matrix products with a weight: aten.linear, mm, addmm, and matmul by a matrix.
#include "cpu/glu.h"
#include "cpu/kernels/linear.h"
#include "cpu/library_gemm.h"
#include "cpu/prepare.h"
#include "cpu/product.h"
#include "cpu/rows.h"

namespace tk {
namespace {

// W is input `at`.
const char* linear(Prepare& p, const TensorView& x, int at, bool n_k, const TensorView* bias,
                   const kernels::Glu* glu = nullptr) {
  const TensorView& w = p.in(at);
  const TensorView& y = p.out();
  if (!kernel_float(x.dtype) || !kernel_float(w.dtype) || !kernel_float(y.dtype))
    return "dtypes other than f32, bf16, f16";
  if (w.rank() != 2) return "the weight is no matrix";
  WeightView v;
  if (!weight_view(w, n_k, &v)) return "the weight's strides";
  if (p.packed(at)) v.layout = kernels::WeightLayout::packed;
  Matrix mx;
  Matrix my;
  if (!as_matrix(x, &mx) || !as_matrix(y, &my)) return "the input's strides";
  if (bias != nullptr && (!kernel_float(bias->dtype) || bias->rank() != 1 || !bias->contiguous() ||
                          bias->shape[0] != v.n))
    return "the bias is no contiguous vector";
  if (mx.rows == 0 || v.n == 0 || v.k == 0) return "an empty operand";
  kernels::LinearArgs args = product_args(x, w, v, y, bias, glu);
  args.m = mx.rows;
  args.x_stride = mx.stride;
  args.y_stride = my.stride;
  const std::int64_t bytes = x.bytes() + w.bytes() + y.bytes();
  if (library_takes(args, p.n_threads)) {
    auto& l = p.launch<library_linear>("linear_onednn", bytes);
    p.last().serial = false;
    l.linear = args;
    p.scratch(&l.linear.scratch, library_scratch_bytes(args, p.n_threads));
    return nullptr;
  }
  auto& a = p.launch<kernels::linear>("linear", bytes);
  a = args;
  p.scratch(&a.scratch, kernels::linear_scratch_bytes(a, p.n_threads));
  if (p.constant(at)) p.streams(&a.next_w, &a.next_bytes, w);
  return nullptr;
}

}  // namespace

const char* prepare_linear(Prepare& p) {
  return linear(p, p.in(0), 1, true, p.has(2) ? &p.in(2) : nullptr);
}

const char* prepare_linear_glu(Prepare& p) {
  const kernels::Glu glu = glu_of(p.args);
  return linear(p, p.in(0), 1, true, p.has(2) ? &p.in(2) : nullptr, &glu);
}

const char* prepare_mm(Prepare& p) { return linear(p, p.in(0), 1, false, nullptr); }

const char* prepare_matmul(Prepare& p) {
  if (p.in(1).rank() != 2 || p.in(0).rank() < 2) return "not a product with one matrix";
  return linear(p, p.in(0), 1, false, nullptr);
}

const char* prepare_addmm(Prepare& p) {
  if (p.args.f64("beta") != 1 || p.args.f64("alpha") != 1) return "scaled operands";
  return linear(p, p.in(1), 2, false, &p.in(0));
}

}  // namespace tk

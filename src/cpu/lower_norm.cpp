// Norms over the last axis, alone or of a sum.
#include "cpu/kernels/norm.h"
#include "cpu/prepare.h"
#include "cpu/rows.h"

namespace tk {
namespace {

bool vector(const TensorView& t, std::int64_t d) {
  return kernel_float(t.dtype) && t.contiguous() && t.numel() == d && t.rank() == 1;
}

// The part that RMSNorm and LayerNorm share.
const char* fill(const TensorView& x, const TensorView* residual, const TensorView* sum,
                 const TensorView* weight, const TensorView& y, double eps,
                 kernels::RmsNormArgs* a) {
  Heads hx, hy;
  if (!kernel_float(x.dtype) || !kernel_float(y.dtype)) return "dtypes";
  if (!as_heads(x, &hx) || !as_heads(y, &hy)) return "strides";
  if (hx.d == 0 || hx.rows == 0) return "an empty operand";
  // y is contiguous, so it can be seen with x's heads.
  if (hy.heads != 1) return "the result's strides";
  a->y_head_stride = hx.heads == 1 ? 0 : hx.d;
  a->y_stride = hx.heads * hx.d;
  if (weight != nullptr && !vector(*weight, hx.d)) return "the weight is no vector of one row";
  if (residual != nullptr) {
    Heads hr;
    if (residual->dtype != x.dtype || !as_heads(*residual, &hr)) return "the residual's strides";
    if (hr.heads != hx.heads) {
      if (hr.heads != 1) return "the residual's strides";
      hr.row_stride *= hx.heads;
      hr.head_stride = hr.row_stride / hx.heads;
    }
    a->residual = residual->data;
    a->residual_stride = hr.row_stride;
    a->residual_head_stride = hr.head_stride;
  }
  if (sum != nullptr) {
    a->sum = sum->data;
    a->sum_stride = a->y_stride;
    a->sum_head_stride = a->y_head_stride;
  }
  a->x = x.data;
  a->weight = weight != nullptr ? weight->data : nullptr;
  a->y = y.data;
  a->dtype = x.dtype;
  a->weight_dtype = weight != nullptr ? weight->dtype : DType::f32;
  a->y_dtype = y.dtype;
  a->rows = hx.rows;
  a->heads = hx.heads;
  a->d = hx.d;
  a->x_stride = hx.row_stride;
  a->x_head_stride = hx.head_stride;
  a->eps = static_cast<float>(eps);
  return nullptr;
}

const char* rms_norm(Prepare& p, const TensorView* residual, const TensorView* sum, int weight,
                     float offset) {
  if (!p.unused(1)) return "rstd is used";
  kernels::RmsNormArgs a;
  if (const char* no =
          fill(p.in(0), residual, sum, &p.in(weight), p.out(), p.args.f64("epsilon"), &a))
    return no;
  a.weight_offset = offset;
  const std::int64_t each = p.in(0).bytes();
  p.launch<kernels::rms_norm>("rms_norm", (residual != nullptr ? 4 : 2) * each) = a;
  return nullptr;
}

const char* layer_norm(Prepare& p, std::int64_t normalized_axes) {
  if (normalized_axes != 1) return "more than the last axis";
  kernels::LayerNormArgs a;
  const TensorView* weight = p.has(1) ? &p.in(1) : nullptr;
  if (const char* no = fill(p.in(0), nullptr, nullptr, weight, p.out(), p.args.f64("eps"), &a.norm))
    return no;
  if (p.has(2)) {
    if (!vector(p.in(2), a.norm.d)) return "the bias is no vector of one row";
    if (weight != nullptr && p.in(2).dtype != a.norm.weight_dtype) return "the bias's dtype";
    a.norm.weight_dtype = p.in(2).dtype;
    a.bias = p.in(2).data;
  }
  p.launch<kernels::layer_norm>("layer_norm", 2 * p.in(0).bytes()) = a;
  return nullptr;
}

}  // namespace

const char* prepare_rms_norm(Prepare& p) { return rms_norm(p, nullptr, nullptr, 1, 0.0F); }
const char* prepare_gemma_rms_norm(Prepare& p) { return rms_norm(p, nullptr, nullptr, 1, 1.0F); }
const char* prepare_add_rms_norm(Prepare& p) { return rms_norm(p, &p.in(1), &p.out(2), 2, 0.0F); }
const char* prepare_layer_norm(Prepare& p) {
  return layer_norm(p, p.args.ints("normalized_shape").size());
}

}  // namespace tk

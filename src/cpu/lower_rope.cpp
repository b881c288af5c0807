// Rotary position embedding.
#include "cpu/kernels/rope.h"
#include "cpu/prepare.h"
#include "cpu/rows.h"

namespace tk {
namespace {

// Strides of `t` over x's shape: 0 where it repeats.
Dims repeated(const TensorView& t, const TensorView& x) {
  Dims s;
  for (int i = 0; i < x.rank(); ++i) {
    const int k = i - (x.rank() - t.rank());
    s.push_back(k < 0 || (t.shape[k] == 1 && x.shape[i] != 1) ? 0 : t.strides[k]);
  }
  return s;
}

// x with two axes swapped: rotation is per head, whatever the order of heads and tokens.
TensorView swapped(TensorView t, int a, int b) {
  std::swap(t.shape[a], t.shape[b]);
  std::swap(t.strides[a], t.strides[b]);
  return t;
}

// Adds nothing unless it returns nullptr.
const char* fill(TensorView x, TensorView y, const TensorView& cos, const TensorView& sin,
                 kernels::RopeStyle style, kernels::RopeArgs* a) {
  if (!kernel_float(x.dtype) || y.dtype != x.dtype || !kernel_float(cos.dtype) ||
      cos.dtype != sin.dtype)
    return "dtypes";
  if (x.rank() < 2) return "no head axis";
  const int last = x.rank() - 1;
  TensorView table = x;  // the tables over x's shape
  table.strides = repeated(cos, x);
  if (!(repeated(sin, x) == table.strides)) return "cos and sin lie differently";
  if (table.strides[last] != 1) return "the tables' strides";
  // Heads are the axis along which the tables repeat: the last but one, or in [.., H, S, D] the one
  // before.
  if (table.strides[last - 1] != 0 && x.shape[last - 1] != 1) {
    if (x.rank() < 3 || (table.strides[last - 2] != 0 && x.shape[last - 2] != 1))
      return "the tables differ between heads";
    x = swapped(x, last - 1, last - 2);
    y = swapped(y, last - 1, last - 2);
    table = swapped(table, last - 1, last - 2);
  }
  Heads hx, hy;
  Levels rows;
  if (!as_token_heads(x, &hx) || !as_token_heads(y, &hy) ||
      !merge_axes(table, 0, last - 1, 1, &rows))
    return "strides";
  if (hx.rows == 0 || hx.heads == 0) return "an empty operand";
  a->x = x.data;
  a->y = y.data;
  a->cos = cos.data;
  a->sin = sin.data;
  a->dtype = x.dtype;
  a->table_dtype = cos.dtype;
  a->style = style;
  a->table_full = true;
  a->tokens = hx.rows;
  a->heads = hx.heads;
  a->d = hx.d;
  a->d_rot = hx.d;
  a->x_stride = hx.row_stride;
  a->x_head_stride = hx.head_stride;
  a->y_stride = hy.row_stride;
  a->y_head_stride = hy.head_stride;
  a->table_stride = rows.stride[0];
  return nullptr;
}

const char* rope(Prepare& p, kernels::RopeStyle style) {
  kernels::RopeArgs a;
  if (const char* no = fill(p.in(0), p.out(), p.in(1), p.in(2), style, &a)) return no;
  p.launch<kernels::rope>("rope", 2 * p.in(0).bytes()) = a;
  return nullptr;
}

kernels::RopeStyle style_of(const Prepare& p) {
  return p.args.text("rotary_mode") == "half" ? kernels::RopeStyle::half
                                              : kernels::RopeStyle::interleaved;
}

}  // namespace

const char* prepare_rotary_mul(Prepare& p) {
  if (p.has(3)) return "a matrix turns";
  return rope(p, style_of(p));
}
const char* prepare_interleave_rope(Prepare& p) {
  return rope(p, kernels::RopeStyle::interleaved_to_half);
}
const char* prepare_apply_rotary(Prepare& p) {
  kernels::RopeArgs q, k;
  if (const char* no = fill(p.in(0), p.out(0), p.in(2), p.in(3), style_of(p), &q)) return no;
  if (const char* no = fill(p.in(1), p.out(1), p.in(2), p.in(3), style_of(p), &k)) return no;
  p.launch<kernels::rope>("rope", 2 * p.in(0).bytes()) = q;
  p.launch<kernels::rope>("rope", 2 * p.in(1).bytes()) = k;
  return nullptr;
}

}  // namespace tk

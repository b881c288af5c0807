// Seeing tensors as kernels want them: rows with one stride, or rows of heads with two.
#pragma once

#include "base/tensor.h"

namespace tk {

inline bool kernel_float(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16; }

// Axes [begin, end) of t as `levels` nested axes with one stride each, outermost first; missing
// outer ones have size 1. False when the strides do not allow it.
struct Levels {
  std::int64_t size[2] = {1, 1};
  std::int64_t stride[2] = {0, 0};
};
inline bool merge_axes(const TensorView& t, int begin, int end, int levels, Levels* out) {
  *out = {};
  int used = 0;  // levels filled, from the innermost
  for (int i = end - 1; i >= begin; --i) {
    if (t.shape[i] == 1) continue;
    if (used > 0) {
      const int k = levels - used;
      if (t.strides[i] == out->stride[k] * out->size[k]) {
        out->size[k] *= t.shape[i];
        continue;
      }
    }
    if (used == levels) return false;
    ++used;
    out->size[levels - used] = t.shape[i];
    out->stride[levels - used] = t.strides[i];
  }
  return true;
}

// t as [rows, cols], the last axis contiguous.
struct Matrix {
  std::int64_t rows = 0, cols = 0, stride = 0;
};
inline bool as_matrix(const TensorView& t, Matrix* m) {
  const int last = t.rank() - 1;
  if (last < 0 || (t.strides[last] != 1 && t.shape[last] != 1)) return false;
  Levels l;
  if (!merge_axes(t, 0, last, 1, &l)) return false;
  *m = {l.size[0], t.shape[last], l.stride[0]};
  // One row: the stride is not used, but kernels may step over it.
  if (m->rows == 1) m->stride = m->cols;
  return true;
}

// t as [rows, heads, d], the last axis contiguous. `heads` is 1 when two levels are not needed.
struct Heads {
  std::int64_t rows = 0, heads = 1, d = 0, row_stride = 0, head_stride = 0;
};
inline bool as_heads(const TensorView& t, Heads* h) {
  const int last = t.rank() - 1;
  if (last < 0 || (t.strides[last] != 1 && t.shape[last] != 1)) return false;
  Levels l;
  if (!merge_axes(t, 0, last, 2, &l)) return false;
  if (l.size[0] == 1) {
    *h = {l.size[1], 1, t.shape[last], l.stride[1], 0};
  } else {
    *h = {l.size[0], l.size[1], t.shape[last], l.stride[0], l.stride[1]};
  }
  return true;
}

// t [.., H, D] with exactly its own last two axes as heads, the others merged into rows.
inline bool as_token_heads(const TensorView& t, Heads* h) {
  const int last = t.rank() - 1;
  if (last < 1 || (t.strides[last] != 1 && t.shape[last] != 1)) return false;
  Levels l;
  if (!merge_axes(t, 0, last - 1, 1, &l)) return false;
  *h = {l.size[0], t.shape[last - 1], t.shape[last], l.stride[0], t.strides[last - 1]};
  return true;
}

}  // namespace tk

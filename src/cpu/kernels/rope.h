// Rotary position embedding of [T, H, D], the whole head or a part of it, in place or not, and
// straight into a paged cache.
#pragma once

#include "cpu/kernels/common.h"

namespace tk::kernels {

enum class RopeStyle : std::uint8_t {
  half,                 // pairs (j, j + r/2): rotate_half
  interleaved,          // pairs (2j, 2j + 1), stored back as pairs
  interleaved_to_half,  // reads (2j, 2j + 1), stores to (j, j + r/2); not in place
};

// With r = d_rot, o = rot_offset: y[o .. o+r) = rotation of x[o .. o+r); the other dims are copied
// (not at all when y == x). For the pair (a, b):  a' = a cos_a - b sin_a,  b' = b cos_b + a sin_b.
// Tables [n, r/2]: cos_a = cos_b = cos[j]. Tables [n, r] (table_full): by the place of the output
// element for half and interleaved_to_half (j, j + r/2), by 2j, 2j + 1 for interleaved.
struct RopeArgs {
  const void* x = nullptr;
  void* y = nullptr;  // x itself, or no overlap
  const void* cos = nullptr;
  const void* sin = nullptr;
  DType dtype = DType::f32;        // x and y: f32, bf16, f16
  DType table_dtype = DType::f32;  // f32, bf16, f16
  RopeStyle style = RopeStyle::half;
  bool table_full = false;
  std::int64_t tokens = 0, heads = 0, d = 0, d_rot = 0, rot_offset = 0;
  std::int64_t x_stride = 0, x_head_stride = 0;
  std::int64_t y_stride = 0, y_head_stride = 0;
  std::int64_t table_stride = 0;
  // Optional, i32 or i64 [T]: token t uses table row positions[t]; otherwise row t.
  const void* positions = nullptr;
  DType positions_dtype = DType::i64;
  // Optional, i32 or i64 [T]: token t is written to row slots[t] of y, and not at all when it is
  // outside [0, n_slots) (padding).
  const void* slots = nullptr;
  DType slots_dtype = DType::i64;
  std::int64_t n_slots = 0;
};
void rope(const RopeArgs& args, int thread, int n_threads);

}  // namespace tk::kernels

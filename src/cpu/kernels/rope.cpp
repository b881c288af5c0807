#include "cpu/kernels/rope.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/rope.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/kernels/indices.h"
#include "cpu/kernels/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

constexpr std::int64_t chunk_pairs = 256;

// The angles of up to chunk_pairs pairs of one token, for the first and the second of each pair.
struct Angles {
  HWY_ALIGN float cos_a[chunk_pairs], sin_a[chunk_pairs], cos_b[chunk_pairs], sin_b[chunk_pairs];
};

template <class C>
void load_angles(const RopeArgs& a, std::int64_t table_row, std::int64_t j0, std::int64_t n,
                 Angles* out) {
  const C* cos = static_cast<const C*>(a.cos) + table_row * a.table_stride;
  const C* sin = static_cast<const C*>(a.sin) + table_row * a.table_stride;
  const std::int64_t half = a.d_rot / 2;
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t first = j0 + i, second = j0 + i;
    if (a.table_full) {
      const bool pairs = a.style == RopeStyle::interleaved;
      first = pairs ? 2 * (j0 + i) : j0 + i;
      second = pairs ? first + 1 : first + half;
    }
    out->cos_a[i] = as_float(cos[first]);
    out->sin_a[i] = as_float(sin[first]);
    out->cos_b[i] = as_float(cos[second]);
    out->sin_b[i] = as_float(sin[second]);
  }
}

struct Pair {
  VF a, b;
};
HWY_INLINE Pair rotate(VF a, VF b, const Angles& t, std::int64_t i) {
  return {hn::NegMulAdd(b, load(t.sin_a + i), hn::Mul(a, load(t.cos_a + i))),
          hn::MulAdd(a, load(t.sin_b + i), hn::Mul(b, load(t.cos_b + i)))};
}

// Rotates pairs [j0, j0 + n) of one head; x and y point at the rotated part.
template <class T>
void rotate_head(RopeStyle style, std::int64_t half, const T* x, T* y, std::int64_t j0,
                 std::int64_t n, const Angles& t) {
  const bool pairs_in = style != RopeStyle::half, pairs_out = style == RopeStyle::interleaved;
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  HWY_ALIGN float buffer[2 * HWY_LANES(float)];
  for (; i + n_lanes <= n; i += n_lanes) {
    const std::int64_t j = j0 + i;
    Pair v;
    if (pairs_in) {
      const VF lo = load(x + 2 * j), hi = load(x + 2 * j + n_lanes);
      v = rotate(hn::ConcatEven(DF(), hi, lo), hn::ConcatOdd(DF(), hi, lo), t, i);
    } else {
      v = rotate(load(x + j), load(x + half + j), t, i);
    }
    if (pairs_out) {
      hn::StoreInterleaved2(v.a, v.b, DF(), buffer);
      store(load(buffer), y + 2 * j);
      store(load(buffer + n_lanes), y + 2 * j + n_lanes);
    } else {
      store(v.a, y + j);
      store(v.b, y + half + j);
    }
  }
#endif
  for (; i < n; ++i) {
    const std::int64_t j = j0 + i;
    const float a = as_float(x[pairs_in ? 2 * j : j]);
    const float b = as_float(x[pairs_in ? 2 * j + 1 : half + j]);
    y[pairs_out ? 2 * j : j] = from_float<T>(a * t.cos_a[i] - b * t.sin_a[i]);
    y[pairs_out ? 2 * j + 1 : half + j] = from_float<T>(b * t.cos_b[i] + a * t.sin_b[i]);
  }
}

template <class T>
void rope_of(const RopeArgs& a, int thread, int n_threads) {
  const std::int64_t half = a.d_rot / 2;
  const Range part = share(a.tokens * a.heads, 1, thread, n_threads);
  Angles angles;
  for (std::int64_t u = part.begin; u < part.end;) {
    const std::int64_t t = u / a.heads;
    const std::int64_t h0 = u % a.heads, h1 = std::min(a.heads, h0 + part.end - u);
    u += h1 - h0;
    const std::int64_t row = a.slots == nullptr ? t : index_at(a.slots, a.slots_dtype, t);
    if (a.slots != nullptr && (row < 0 || row >= a.n_slots)) continue;
    const T* x = static_cast<const T*>(a.x) + t * a.x_stride;
    T* y = static_cast<T*>(a.y) + row * a.y_stride;
    const std::int64_t table_row =
        a.positions == nullptr ? t : index_at(a.positions, a.positions_dtype, t);
    for (std::int64_t j = 0; j < half; j += chunk_pairs) {
      const std::int64_t n = std::min(chunk_pairs, half - j);
      with_float(a.table_dtype,
                 [&](auto c) HWY_ATTR { load_angles<decltype(c)>(a, table_row, j, n, &angles); });
      for (std::int64_t h = h0; h < h1; ++h)
        rotate_head(a.style, half, x + h * a.x_head_stride + a.rot_offset,
                    y + h * a.y_head_stride + a.rot_offset, j, n, angles);
    }
    if (a.x == a.y) continue;
    const std::int64_t after = a.rot_offset + a.d_rot;
    for (std::int64_t h = h0; h < h1; ++h) {
      const T* xh = x + h * a.x_head_stride;
      T* yh = y + h * a.y_head_stride;
      std::memcpy(yh, xh, static_cast<std::size_t>(a.rot_offset) * sizeof(T));
      std::memcpy(yh + after, xh + after, static_cast<std::size_t>(a.d - after) * sizeof(T));
    }
  }
}

void rope(const RopeArgs& a, int thread, int n_threads) {
  with_float(a.dtype, [&](auto t) HWY_ATTR { rope_of<decltype(t)>(a, thread, n_threads); });
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tk::kernels {

HWY_EXPORT(rope);

void rope(const RopeArgs& a, int thread, int n_threads) {
  HWY_DYNAMIC_DISPATCH(rope)(a, thread, n_threads);
}

}  // namespace tk::kernels
#endif

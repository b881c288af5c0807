// Products of a few rows of x with W as it lies in memory; W is read once.
#include <type_traits>

#include "cpu/kernels/linear_impl.h"
#include "cpu/kernels/simd-inl.h"
#include "hwy/cache_control.h"

#if defined(TK_KERNELS_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TK_KERNELS_STREAM_INL_H_
#undef TK_KERNELS_STREAM_INL_H_
#else
#define TK_KERNELS_STREAM_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

// sums[i * ld + j] = x[i] . w[j] for MT rows of x and R rows of W. One chain of f32 sums per pair,
// so that a row's result is the same in every tile. `ahead`: elements from a load of W to its
// prefetch.
template <int MT, int R, class X, class W>
HWY_INLINE void dot_tile(const X* const* x, const W* w, std::int64_t w_stride, std::int64_t k,
                         std::int64_t ahead, float* sums, std::int64_t ld) {
  VF acc[MT][R];
  for (int i = 0; i < MT; ++i)
    for (int j = 0; j < R; ++j) acc[i][j] = hn::Zero(DF());
  std::int64_t p = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<X, bf16> && std::is_same_v<W, bf16>) {
    // A pair of bf16 in a 32-bit lane: the high one is an f32 with noise below, which is masked
    // off.
    const hn::RebindToUnsigned<DF> du;
    const auto high = hn::Set(du, 0xffff0000U);
    const auto pairs = [&](const bf16* q) HWY_ATTR {
      return hn::BitCast(du, hn::LoadU(hn::Repartition<std::uint16_t, DF>(),
                                       reinterpret_cast<const std::uint16_t*>(q)));
    };
    for (; p + 2 * n_lanes <= k; p += 2 * n_lanes) {
      VF xe[MT], xo[MT];
      for (int i = 0; i < MT; ++i) {
        const auto v = pairs(x[i] + p);
        xe[i] = hn::BitCast(DF(), hn::ShiftLeft<16>(v));
        xo[i] = hn::BitCast(DF(), hn::And(v, high));
      }
      for (int j = 0; j < R; ++j) {
        const bf16* q = w + j * w_stride + p;
        hwy::Prefetch(q + ahead);
        const auto v = pairs(q);
        const VF we = hn::BitCast(DF(), hn::ShiftLeft<16>(v));
        const VF wo = hn::BitCast(DF(), hn::And(v, high));
        for (int i = 0; i < MT; ++i)
          acc[i][j] = hn::MulAdd(xo[i], wo, hn::MulAdd(xe[i], we, acc[i][j]));
      }
    }
  }
#endif
  for (; p + n_lanes <= k; p += n_lanes) {
    VF xv[MT];
    for (int i = 0; i < MT; ++i) xv[i] = load(x[i] + p);
    for (int j = 0; j < R; ++j) {
      const W* q = w + j * w_stride + p;
      hwy::Prefetch(q + ahead);
      const VF wv = load(q);
      for (int i = 0; i < MT; ++i) acc[i][j] = hn::MulAdd(xv[i], wv, acc[i][j]);
    }
  }
  if (p < k) {
    for (int j = 0; j < R; ++j) {
      const VF wv = load_tail(w + j * w_stride + p, k - p);
      for (int i = 0; i < MT; ++i)
        acc[i][j] = hn::MulAdd(load_tail(x[i] + p, k - p), wv, acc[i][j]);
    }
  }
  for (int i = 0; i < MT; ++i)
    for (int j = 0; j < R; ++j) sums[i * ld + j] = sum(acc[i][j]);
}

template <int R, class X, class W>
HWY_INLINE void dot_rows(const X* const* x, std::int64_t m, const W* w, std::int64_t w_stride,
                         std::int64_t k, std::int64_t ahead, float* sums, std::int64_t ld) {
  std::int64_t i = 0;
  if constexpr (HWY_CAP_GE512)
    for (; i + 4 <= m; i += 4) dot_tile<4, R>(x + i, w, w_stride, k, ahead, sums + i * ld, ld);
  for (; i + 2 <= m; i += 2) dot_tile<2, R>(x + i, w, w_stride, k, ahead, sums + i * ld, ld);
  if (i < m) dot_tile<1, R>(x + i, w, w_stride, k, ahead, sums + i * ld, ld);
}

// sums[i * ld + j] of m rows of x and n rows of W, [N, K].
template <class X, class W>
HWY_NOINLINE void stream_rows(const X* const* x, std::int64_t m, const W* w, std::int64_t w_stride,
                              std::int64_t n, std::int64_t k, float* sums, std::int64_t ld) {
  std::int64_t j = 0;
  const std::int64_t ahead = stream_ahead(w_stride, sizeof(W));
  for (; j + 4 <= n; j += 4) dot_rows<4>(x, m, w + j * w_stride, w_stride, k, ahead, sums + j, ld);
  for (; j < n; ++j) dot_rows<1>(x, m, w + j * w_stride, w_stride, k, ahead, sums + j, ld);
}

// The same for W [K, N], where column j is contiguous over n: rows of W are added up, four at a
// time.
template <class X, class W>
HWY_NOINLINE void stream_columns(const X* const* x, std::int64_t m, const W* w,
                                 std::int64_t w_stride, std::int64_t n, std::int64_t k, float* sums,
                                 std::int64_t ld) {
  const std::int64_t whole = n / n_lanes * n_lanes;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; j += n_lanes) store(hn::Zero(DF()), sums + i * ld + j);
  std::int64_t p = 0;
  for (; p + 4 <= k; p += 4) {
    const W* r = w + p * w_stride;
    for (std::int64_t j = 0; j < whole; j += n_lanes) {
      const VF w0 = load(r + j), w1 = load(r + w_stride + j);
      const VF w2 = load(r + 2 * w_stride + j), w3 = load(r + 3 * w_stride + j);
      hwy::Prefetch(r + 4 * w_stride + j);
      hwy::Prefetch(r + 5 * w_stride + j);
      hwy::Prefetch(r + 6 * w_stride + j);
      hwy::Prefetch(r + 7 * w_stride + j);
      for (std::int64_t i = 0; i < m; ++i) {
        const X* q = x[i] + p;
        float* s = sums + i * ld + j;
        VF v = hn::MulAdd(set(as_float(q[0])), w0, load(s));
        v = hn::MulAdd(set(as_float(q[1])), w1, v);
        v = hn::MulAdd(set(as_float(q[2])), w2, v);
        store(hn::MulAdd(set(as_float(q[3])), w3, v), s);
      }
    }
  }
  const auto add_row = [&](std::int64_t row, std::int64_t begin) HWY_ATTR {
    for (std::int64_t j = begin; j < n; j += n_lanes) {
      const W* r = w + row * w_stride + j;
      const VF v = j + n_lanes <= n ? load(r) : load_tail(r, n - j);
      for (std::int64_t i = 0; i < m; ++i) {
        float* s = sums + i * ld + j;
        store(hn::MulAdd(set(as_float(x[i][row])), v, load(s)), s);
      }
    }
  };
  for (std::int64_t row = 0; whole < n && row < p; ++row) add_row(row, whole);
  for (; p < k; ++p) add_row(p, 0);
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

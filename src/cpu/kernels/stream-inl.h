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

// sums[i * ld + j * step] = x[i] . w[j] for MT rows of x and four rows of W, which lie in four
// places far apart (see stream_product): four long streams are what the prefetchers of memory
// follow best. One chain of f32 sums per pair, so that a row's result is the same in every tile.
// `first`: W comes from memory, and is fetched ahead; later tiles find it in L1.
template <int MT, bool first, class X, class W>
HWY_INLINE void dot_tile(const X* const* x, const W* const* w, std::int64_t k, float* sums,
                         std::int64_t ld, std::int64_t step) {
  constexpr int R = 4;
  constexpr std::int64_t ahead = stream_ahead_bytes / static_cast<std::int64_t>(sizeof(W));
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
        const bf16* q = w[j] + p;
        if constexpr (first) hwy::Prefetch(q + ahead);
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
      const W* q = w[j] + p;
      if constexpr (first) hwy::Prefetch(q + ahead);
      const VF wv = load(q);
      for (int i = 0; i < MT; ++i) acc[i][j] = hn::MulAdd(xv[i], wv, acc[i][j]);
    }
  }
  if (p < k) {
    for (int j = 0; j < R; ++j) {
      const VF wv = load_tail(w[j] + p, k - p);
      for (int i = 0; i < MT; ++i)
        acc[i][j] = hn::MulAdd(load_tail(x[i] + p, k - p), wv, acc[i][j]);
    }
  }
  for (int i = 0; i < MT; ++i)
    for (int j = 0; j < R; ++j) sums[i * ld + j * step] = sum(acc[i][j]);
}

// sums[i * ld + j * step] of m rows of x and the four rows w[j].
template <class X, class W>
HWY_NOINLINE void stream_rows(const X* const* x, std::int64_t m, const W* const* w, std::int64_t k,
                              float* sums, std::int64_t ld, std::int64_t step) {
  constexpr int mt = HWY_CAP_GE512 ? 4 : 2;
  std::int64_t i = 0;
  if (m >= mt) {
    dot_tile<mt, true>(x, w, k, sums, ld, step);
    for (i = mt; i + mt <= m; i += mt) dot_tile<mt, false>(x + i, w, k, sums + i * ld, ld, step);
  } else {
    dot_tile<1, true>(x, w, k, sums, ld, step);
    i = 1;
  }
  for (; i < m; ++i) dot_tile<1, false>(x + i, w, k, sums + i * ld, ld, step);
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

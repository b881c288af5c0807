#include "cpu/kernels/bf16_dot.h"

// GCC 12 takes its own _mm512_undefined_ps for an uninitialised variable (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <cstring>

#include "cpu/kernels/linear_impl.h"

// Everything above is compiled for any x86-64; only what follows may use the instructions.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi2")

namespace tk::kernels {
namespace {

using V = __m512;

inline __m512i raw(const bf16* p) { return _mm512_loadu_si512(p); }
inline __m512i raw_tail(const bf16* p, std::int64_t n) {
  return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1U << n) - 1U), p);
}
inline V dot(V acc, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// The sums of the lanes of four vectors.
inline __m128 sum4(V a, V b, V c, V d) {
  const V ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const V cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512d abd = _mm512_castps_pd(ab), cdd = _mm512_castps_pd(cd);
  const V all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(abd, cdd)),
                              _mm512_castpd_ps(_mm512_unpackhi_pd(abd, cdd)));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// sums[i * ld + j * step] = x[i] . w[j] for MT rows of x and four rows of W; see stream-inl.h.
// Meanwhile rows [0, n_fetch) of `fetch` are fetched into L1; with n_fetch 4 that is W itself, some
// way ahead (as a constant: four more pointers in the loop of one row of x cost a quarter of its
// speed).
template <int MT, int n_fetch>
inline void dot_tile(const bf16* const* x, const bf16* const* w, const bf16* const* fetch,
                     std::int64_t k, float* sums, std::int64_t ld, std::int64_t step) {
  V acc[MT][4];
  for (int i = 0; i < MT; ++i)
    for (int j = 0; j < 4; ++j) acc[i][j] = _mm512_setzero_ps();
  std::int64_t p = 0;
  for (; p + 32 <= k; p += 32) {
    __m512i xv[MT];
    for (int i = 0; i < MT; ++i) xv[i] = raw(x[i] + p);
    for (int j = 0; j < 4; ++j) {
      if constexpr (n_fetch == 4)
        _mm_prefetch(
            reinterpret_cast<const char*>(w[j] + p) + (MT == 1 ? 1 : 2) * stream_ahead_bytes,
            _MM_HINT_T0);
      else if (j < n_fetch)
        _mm_prefetch(reinterpret_cast<const char*>(fetch[j] + p), _MM_HINT_T0);
      const __m512i wv = raw(w[j] + p);
      for (int i = 0; i < MT; ++i) acc[i][j] = dot(acc[i][j], xv[i], wv);
    }
  }
  if (p < k) {
    __m512i xv[MT];
    for (int i = 0; i < MT; ++i) xv[i] = raw_tail(x[i] + p, k - p);
    for (int j = 0; j < 4; ++j) {
      const __m512i wv = raw_tail(w[j] + p, k - p);
      for (int i = 0; i < MT; ++i) acc[i][j] = dot(acc[i][j], xv[i], wv);
    }
  }
  for (int i = 0; i < MT; ++i) {
    alignas(16) float s[4];
    _mm_store_ps(s, sum4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]));
    for (int j = 0; j < 4; ++j) sums[i * ld + j * step] = s[j];
  }
}

template <int n_fetch>
inline void dot_tile_any(std::int64_t mt, const bf16* const* x, const bf16* const* w,
                         const bf16* const* fetch, std::int64_t k, float* sums, std::int64_t ld,
                         std::int64_t step) {
  switch (mt) {
    case 1:
      return dot_tile<1, n_fetch>(x, w, fetch, k, sums, ld, step);
    case 2:
      return dot_tile<2, n_fetch>(x, w, fetch, k, sums, ld, step);
    case 3:
      return dot_tile<3, n_fetch>(x, w, fetch, k, sums, ld, step);
    default:
      return dot_tile<4, n_fetch>(x, w, fetch, k, sums, ld, step);
  }
}

}  // namespace

void stream_rows_bf16_dot(const bf16* const* x, std::int64_t m, const bf16* const* w,
                          std::int64_t k, float* sums, std::int64_t ld, std::int64_t step) {
  if (m == 1) return dot_tile<1, 4>(x, w, nullptr, k, sums, ld, step);
  if (m <= 4) return dot_tile_any<4>(m, x, w, nullptr, k, sums, ld, step);
  constexpr std::int64_t ahead = stream_ahead_bytes;  // in elements: twice as far as for one row
  const bf16* const fetch[4] = {w[0] + ahead, w[1] + ahead, w[2] + ahead, w[3] + ahead};
  // Each tile of x fetches its part of the four rows, so that memory is busy all the time.
  for (std::int64_t i = 0; i < m; i += 4) {
    float* s = sums + i * ld;
    if (m <= 8)
      dot_tile_any<2>(m - i, x + i, w, fetch + i / 2, k, s, ld, step);
    else if (i < 16)
      dot_tile_any<1>(m - i, x + i, w, fetch + i / 4, k, s, ld, step);
    else
      dot_tile_any<0>(m - i, x + i, w, fetch, k, s, ld, step);
  }
}

// ---- panels ----

namespace {

// 16 rows of 16 words become 16 columns: row i of the result holds word i of every row.
inline void transpose16(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now r[4 g + c] holds, in 128-bit lane l, word 4 l + c of rows 4 g .. 4 g + 3.
  for (int c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
    const __m512i d = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    const __m512i e = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    t[c] = _mm512_shuffle_i32x4(a, d, 0x88);
    t[8 + c] = _mm512_shuffle_i32x4(a, d, 0xdd);
    t[4 + c] = _mm512_shuffle_i32x4(b, e, 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(b, e, 0xdd);
  }
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

}  // namespace

void pack_rows_bf16_dot(const bf16* const* rows, std::int64_t n, std::int64_t depth, bf16* panel) {
  for (std::int64_t p = 0; p < depth; p += 32)
    for (std::int64_t half = 0; half < 2; ++half) {
      __m512i r[16];
      for (std::int64_t j = 0; j < 16; ++j) {
        const std::int64_t row = half * 16 + j;
        if (row >= n)
          r[j] = _mm512_setzero_si512();
        else
          r[j] = p + 32 <= depth ? raw(rows[row] + p) : raw_tail(rows[row] + p, depth - p);
      }
      transpose16(r);
      const std::int64_t pairs = std::min<std::int64_t>(16, (depth - p + 1) / 2);
      for (std::int64_t i = 0; i < pairs; ++i)
        _mm512_storeu_si512(panel + ((p / 2 + i) * panel_width + half * 16) * 2, r[i]);
    }
}

void pack_columns_bf16_dot(const bf16* const* rows, std::int64_t n, std::int64_t depth,
                           bf16* panel) {
  const auto mask = static_cast<__mmask32>(n >= 32 ? ~0U : (1U << n) - 1U);
  // Two rows of W, word by word: 0 1 2 .. 15 and 16 .. 31 of both.
  alignas(64) static constexpr std::uint16_t order[2][32] = {
      {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
       8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
      {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
       24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
  const __m512i lo = _mm512_load_si512(order[0]), hi = _mm512_load_si512(order[1]);
  for (std::int64_t p = 0; p < depth; p += 2) {
    const __m512i a = _mm512_maskz_loadu_epi16(mask, rows[p]);
    const __m512i b =
        p + 1 < depth ? _mm512_maskz_loadu_epi16(mask, rows[p + 1]) : _mm512_setzero_si512();
    bf16* out = panel + p * panel_width;
    _mm512_storeu_si512(out, _mm512_permutex2var_epi16(a, lo, b));
    _mm512_storeu_si512(out + 32, _mm512_permutex2var_epi16(a, hi, b));
  }
}

void pack_panel_bf16_dot(const bf16* w, std::int64_t w_stride, WeightLayout layout, std::int64_t n0,
                         std::int64_t n, std::int64_t p0, std::int64_t depth, bf16* panel) {
  const bf16* rows[panel_width];
  if (layout == WeightLayout::n_k) {
    for (std::int64_t j = 0; j < n; ++j) rows[j] = w + (n0 + j) * w_stride + p0;
    return pack_rows_bf16_dot(rows, n, depth, panel);
  }
  for (std::int64_t p = 0; p < depth; p += panel_width) {
    const std::int64_t run = std::min(panel_width, depth - p);
    for (std::int64_t i = 0; i < run; ++i) rows[i] = w + (p0 + p + i) * w_stride + n0;
    pack_columns_bf16_dot(rows, n, run, panel + p * panel_width);
  }
}

namespace {

template <int MT>
void panel_tile(const bf16* const* x, std::int64_t depth, const bf16* panel, bool add, float* sums,
                std::int64_t ld) {
  V acc[MT][2];
  for (int i = 0; i < MT; ++i)
    for (int v = 0; v < 2; ++v)
      acc[i][v] = add ? _mm512_loadu_ps(sums + i * ld + v * 16) : _mm512_setzero_ps();
  const bf16* b = panel;
  std::int64_t p = 0;
  for (; p + 2 <= depth; p += 2, b += 2 * panel_width) {
    const __m512i w0 = raw(b), w1 = raw(b + 32);
    for (int i = 0; i < MT; ++i) {
      int pair;
      std::memcpy(&pair, x[i] + p, sizeof(pair));
      const __m512i xv = _mm512_set1_epi32(pair);
      acc[i][0] = dot(acc[i][0], xv, w0);
      acc[i][1] = dot(acc[i][1], xv, w1);
    }
  }
  if (p < depth) {
    const __m512i w0 = raw(b), w1 = raw(b + 32);
    for (int i = 0; i < MT; ++i) {
      const __m512i xv = _mm512_set1_epi32(x[i][p].bits);
      acc[i][0] = dot(acc[i][0], xv, w0);
      acc[i][1] = dot(acc[i][1], xv, w1);
    }
  }
  for (int i = 0; i < MT; ++i)
    for (int v = 0; v < 2; ++v) _mm512_storeu_ps(sums + i * ld + v * 16, acc[i][v]);
}

}  // namespace

void panel_tile_bf16_dot(int mt, const bf16* const* x, std::int64_t depth, const bf16* panel,
                         bool add, float* sums, std::int64_t ld) {
  switch (mt) {
    case 1:
      return panel_tile<1>(x, depth, panel, add, sums, ld);
    case 2:
      return panel_tile<2>(x, depth, panel, add, sums, ld);
    case 3:
      return panel_tile<3>(x, depth, panel, add, sums, ld);
    case 4:
      return panel_tile<4>(x, depth, panel, add, sums, ld);
    case 5:
      return panel_tile<5>(x, depth, panel, add, sums, ld);
    case 6:
      return panel_tile<6>(x, depth, panel, add, sums, ld);
    case 7:
      return panel_tile<7>(x, depth, panel, add, sums, ld);
    case 8:
      return panel_tile<8>(x, depth, panel, add, sums, ld);
    case 9:
      return panel_tile<9>(x, depth, panel, add, sums, ld);
    case 10:
      return panel_tile<10>(x, depth, panel, add, sums, ld);
    case 11:
      return panel_tile<11>(x, depth, panel, add, sums, ld);
    case 12:
      return panel_tile<12>(x, depth, panel, add, sums, ld);
    default:
      return;
  }
}

// ---- packed weights ----

namespace {

// sums[s][i * 32 + c] (+)= x[i] . panels[s][:, c] for MT rows and S panels, which lie far apart.
template <int MT, int S>
void packed_tile(const bf16* const* x, const bf16* const* panels, std::int64_t depth, bool add,
                 float* const* sums) {
  V acc[MT][S][2];
  for (int i = 0; i < MT; ++i)
    for (int s = 0; s < S; ++s)
      for (int v = 0; v < 2; ++v)
        acc[i][s][v] =
            add ? _mm512_loadu_ps(sums[s] + i * panel_width + v * 16) : _mm512_setzero_ps();
  for (std::int64_t p = 0; p < depth; p += 2)
    for (int s = 0; s < S; ++s) {
      const bf16* b = panels[s] + p * panel_width;
      const char* ahead = reinterpret_cast<const char*>(b) + packed_ahead_bytes;
      _mm_prefetch(ahead, _MM_HINT_T0);
      _mm_prefetch(ahead + 64, _MM_HINT_T0);
      const __m512i w0 = raw(b), w1 = raw(b + 32);
      for (int i = 0; i < MT; ++i) {
        int pair;
        std::memcpy(&pair, x[i] + p, sizeof(pair));
        const __m512i xv = _mm512_set1_epi32(pair);
        acc[i][s][0] = dot(acc[i][s][0], xv, w0);
        acc[i][s][1] = dot(acc[i][s][1], xv, w1);
      }
    }
  for (int i = 0; i < MT; ++i)
    for (int s = 0; s < S; ++s)
      for (int v = 0; v < 2; ++v)
        _mm512_storeu_ps(sums[s] + i * panel_width + v * 16, acc[i][s][v]);
}

template <int S, int MT = packed_few_tile_bf16_dot>
void packed_tile_any(int mt, const bf16* const* x, const bf16* const* panels, std::int64_t depth,
                     bool add, float* const* sums) {
  if constexpr (MT > 0) {
    if (mt == MT) return packed_tile<MT, S>(x, panels, depth, add, sums);
    packed_tile_any<S, MT - 1>(mt, x, panels, depth, add, sums);
  }
}

}  // namespace

void packed_row_bf16_dot(const bf16* x, const bf16* const* panels, int n, std::int64_t depth,
                         float* const* sums) {
  if (n == 4) return packed_tile<1, 4>(&x, panels, depth, false, sums);
  if (n == 3) return packed_tile<1, 3>(&x, panels, depth, false, sums);
  if (n == 2) return packed_tile<1, 2>(&x, panels, depth, false, sums);
  packed_tile<1, 1>(&x, panels, depth, false, sums);
}

void packed_few_bf16_dot(int mt, const bf16* const* x, const bf16* const* panels, int n,
                         std::int64_t depth, bool add, float* const* sums) {
  if (n == 2) return packed_tile_any<2>(mt, x, panels, depth, add, sums);
  packed_tile_any<1>(mt, x, panels, depth, add, sums);
}

}  // namespace tk::kernels

#pragma GCC pop_options

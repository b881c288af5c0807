#include "cpu/kernels/attention_bf16_dot.h"

// GCC 12 takes its own _mm512_undefined_ps for an uninitialised variable (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <limits>

#include "cpu/kernels/bf16_dot.h"
#include "cpu/kernels/linear_impl.h"

// Everything above is compiled for any x86-64; only what follows may use the instructions.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi2")

namespace tk::kernels {
namespace {

constexpr std::int64_t tile = 64;

void scores_by_dots(const bf16* const* q, std::int64_t rows, const bf16* const* k, std::int64_t n,
                    std::int64_t d, bool add, float* scores, std::int64_t ld, const bf16* const* v,
                    std::int64_t dv) {
  for (std::int64_t j = 0; j < n; j += 4) {
    // Past the end the last key is repeated; its scores are not looked at.
    const bf16* four[4];
    for (std::int64_t l = 0; l < 4; ++l) {
      const std::int64_t at = std::min(j + l, n - 1);
      four[l] = k[at];
      for (std::int64_t c = 0; c < dv; c += 32)
        _mm_prefetch(reinterpret_cast<const char*>(v[at] + c), _MM_HINT_T0);
    }
    if (!add) {
      stream_rows_bf16_dot(q, rows, four, d, scores + j, ld, 1);
      continue;
    }
    float more[min_packed_rows * 4];
    stream_rows_bf16_dot(q, rows, four, d, more, 4, 1);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t l = 0; l < 4; ++l) scores[r * ld + j + l] += more[r * 4 + l];
  }
}

// 2^t for t <= 0 (any t: overflow is infinity, NaN stays): relative error 2e-7.
inline __m512 exp2(__m512 t) {
  const __m512 bounded = _mm512_max_ps(_mm512_set1_ps(-200.0F), t);
  const __m512 n = _mm512_roundscale_ps(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(bounded, n);
  __m512 p = _mm512_set1_ps(0.00132764605F);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.00967554124F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.0555071331F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.240221197F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.693146967F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.00000007F));
  return _mm512_scalef_ps(p, n);
}

}  // namespace

void scores_bf16_dot(const bf16* const* q, std::int64_t rows, const bf16* const* k, std::int64_t n,
                     std::int64_t d, bool add, bf16* panel, float* scores, std::int64_t ld,
                     const bf16* const* v, std::int64_t dv) {
  if (rows < min_packed_rows) return scores_by_dots(q, rows, k, n, d, add, scores, ld, v, dv);
  for (std::int64_t j = 0; j < n; j += panel_width) {
    pack_rows_bf16_dot(k + j, std::min(panel_width, n - j), d, panel);
    for (std::int64_t r = 0; r < rows; r += panel_tile_rows_bf16_dot) {
      const auto mt = static_cast<int>(std::min<std::int64_t>(panel_tile_rows_bf16_dot, rows - r));
      panel_tile_bf16_dot(mt, q + r, d, panel, add, scores + r * ld + j, ld);
    }
  }
}

float softmax_step_bf16_dot(float scale, float* s, std::int64_t n, Range seen, float* max,
                            float* total) {
  // In powers of two: exp(scale * s - max) = 2^(s * factor - top).
  const __m512 factor = _mm512_set1_ps(scale * 1.44269504F);
  const float none = -std::numeric_limits<float>::infinity();
  const std::uint64_t below_end = seen.end >= 64 ? ~0ULL : (1ULL << seen.end) - 1;
  const std::uint64_t mask = seen.begin >= 64 ? 0 : below_end & ~((1ULL << seen.begin) - 1);
  __m512 v[tile / 16];
  __m512 top = _mm512_set1_ps(*max);
  for (std::int64_t j = 0; j < n / 16; ++j) {
    v[j] = _mm512_mask_mul_ps(_mm512_set1_ps(none), static_cast<__mmask16>(mask >> (16 * j)),
                              _mm512_loadu_ps(s + 16 * j), factor);
    top = _mm512_max_ps(top, v[j]);
  }
  const float new_max = _mm512_reduce_max_ps(top);
  const __m512 base = _mm512_set1_ps(new_max == none ? 0.0F : new_max);
  __m512 added = _mm512_setzero_ps();
  for (std::int64_t j = 0; j < n / 16; ++j) {
    const __m512 p = exp2(_mm512_sub_ps(v[j], base));
    _mm512_storeu_ps(s + 16 * j, p);
    added = _mm512_add_ps(added, p);
  }
  const float alpha =
      new_max == *max ? 1.0F : _mm512_cvtss_f32(exp2(_mm512_sub_ps(_mm512_set1_ps(*max), base)));
  *total = *total * alpha + _mm512_reduce_add_ps(added);
  *max = new_max;
  return alpha;
}

void values_bf16_dot(float* p, std::int64_t ld, std::int64_t rows, const bf16* const* v,
                     std::int64_t n, std::int64_t dv, bf16* panel, float* out, std::int64_t ldo) {
  // The weights are rounded where they stand: half as wide, so never ahead of what is still read.
  bf16* weights = reinterpret_cast<bf16*>(p);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < tile; j += 16) {
      const __m256bh half = _mm512_cvtneps_pbh(_mm512_loadu_ps(p + r * ld + j));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + r * 2 * ld + j),
                          reinterpret_cast<__m256i>(half));
    }
  for (std::int64_t c = 0; c < dv; c += panel_width) {
    const bf16* columns[tile];
    for (std::int64_t j = 0; j < n; ++j) columns[j] = v[j] + c;
    pack_columns_bf16_dot(columns, std::min(panel_width, dv - c), n, panel);
    for (std::int64_t r = 0; r < rows; r += panel_tile_rows_bf16_dot) {
      const bf16* x[panel_tile_rows_bf16_dot];
      const auto mt = static_cast<int>(std::min<std::int64_t>(panel_tile_rows_bf16_dot, rows - r));
      for (int i = 0; i < mt; ++i) x[i] = weights + (r + i) * 2 * ld;
      panel_tile_bf16_dot(mt, x, n, panel, true, out + r * ldo + c, ldo);
    }
  }
}

}  // namespace tk::kernels

#pragma GCC pop_options

// The three steps of attention over a tile of keys for bf16 queries and bf16 caches, with the
// instructions of AVX512-BF16. Call only when use_bf16_dot(). What attention.cpp does in f32 for
// all others; here the weights are rounded to bf16 before they meet the values.
#pragma once

#include "cpu/kernels/common.h"

namespace tk::kernels {

// From so many rows on, keys and values are packed, and serve all rows.
constexpr std::int64_t min_packed_rows = 8;

// scores[r * ld + j] (+)= q[r] . k[j] over d elements, for n <= 64 keys. `panel`: room for 64 * (d
// + 1) elements. Scores up to the next multiple of 32 are overwritten, too. Few rows are bound by
// memory: meanwhile `dv` elements of each of the rows `v` are fetched, which are needed next.
void scores_bf16_dot(const bf16* const* q, std::int64_t rows, const bf16* const* k, std::int64_t n,
                     std::int64_t d, bool add, bf16* panel, float* scores, std::int64_t ld,
                     const bf16* const* v, std::int64_t dv);

// One step of the online softmax of a row: s becomes exp(scale * s - new max) for the n keys in
// [begin, end), 0 elsewhere below n; n is a multiple of 16, at most 64. Returns what the sum so far
// was scaled by.
float softmax_step_bf16_dot(float scale, float* s, std::int64_t n, Range seen, float* max,
                            float* total);

// out[r * ldo + c] += sum_j p[r * ld + j] v[j][c] for c < dv, many rows (min_packed_rows). p is
// destroyed. `panel`: room for 64 * 32 elements. Columns up to the next multiple of 32 are written.
void values_bf16_dot(float* p, std::int64_t ld, std::int64_t rows, const bf16* const* v,
                     std::int64_t n, std::int64_t dv, bf16* panel, float* out, std::int64_t ldo);

}  // namespace tk::kernels

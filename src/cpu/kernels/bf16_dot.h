// Products of bf16 with the dot product instruction of AVX512-BF16 (vdpbf16ps), which Highway 1.0.3
// does not know. Call only when use_bf16_dot(). Denormal inputs count as zero, and each pair of
// products is added to the f32 sum with the instruction's own rounding.
#pragma once

#include "cpu/kernels/linear.h"

namespace tk::kernels {

// As stream_rows of stream-inl.h.
void stream_rows_bf16_dot(const bf16* const* x, std::int64_t m, const bf16* const* w,
                          std::int64_t k, float* sums, std::int64_t ld, std::int64_t step);

// A panel of pairs: panel[(p / 2 * 32 + j) * 2 + p % 2] = W(j, p) for n <= 32 columns j and `depth`
// values p; zero beyond. From n rows of W, which hold one column each, or from `depth` rows, which
// hold one p each.
void pack_rows_bf16_dot(const bf16* const* rows, std::int64_t n, std::int64_t depth, bf16* panel);
void pack_columns_bf16_dot(const bf16* const* rows, std::int64_t n, std::int64_t depth,
                           bf16* panel);
void pack_panel_bf16_dot(const bf16* w, std::int64_t w_stride, WeightLayout layout, std::int64_t n0,
                         std::int64_t n, std::int64_t p0, std::int64_t depth, bf16* panel);

// sums[i * ld + j] (+)= x[i][0 .. depth) . panel[:, j] for mt <= panel_tile_rows_bf16_dot rows and
// 32 columns.
constexpr int panel_tile_rows_bf16_dot = 12;
void panel_tile_bf16_dot(int mt, const bf16* const* x, std::int64_t depth, const bf16* panel,
                         bool add, float* sums, std::int64_t ld);

// sums[s][c] = x[0 .. depth) . panels[s][:, c] for one row and n <= 4 packed panels, which are read
// side by side; depth is even.
void packed_row_bf16_dot(const bf16* x, const bf16* const* panels, int n, std::int64_t depth,
                         float* const* sums);
// sums[s][i * 32 + c] (+)= x[i] . panels[s][:, c] for mt <= packed_few_tile_bf16_dot rows and one
// or two packed panels.
constexpr int packed_few_tile_bf16_dot = 6;
void packed_few_bf16_dot(int mt, const bf16* const* x, const bf16* const* panels, int n,
                         std::int64_t depth, bool add, float* const* sums);

}  // namespace tk::kernels

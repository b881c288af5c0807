// What linear.cpp, packed_linear.cpp, grouped_linear.cpp and the native bf16 kernels share: one
// product of a block of rows.
#pragma once

#include "cpu/kernels/linear.h"

namespace tk::kernels {

// Rows of x (and y) that one product works on: row i of it is row first + i of y, and of x, or row
// x_rows[first + i] / divisor of x.
struct RowSet {
  std::int64_t first = 0, count = 0;
  const std::int32_t* x_rows = nullptr;
  std::int64_t divisor = 1;

  std::int64_t x_row(std::int64_t i) const {
    return x_rows == nullptr ? first + i : x_rows[first + i] / divisor;
  }
  RowSet part(std::int64_t begin, std::int64_t end) const {
    return {first + begin, end - begin, x_rows, divisor};
  }
};

// At most so many rows are done by streaming W (linear_stream); more by packed panels. Measured on
// Zen 5 with 2 threads: see bench/micro/README.md.
constexpr std::int64_t max_stream_rows = 48;

// How far ahead of a load of W its cache line is fetched.
constexpr std::int64_t stream_ahead_bytes = 1024;

// Output columns per panel, and the longest run of K that a packed panel holds.
constexpr std::int64_t panel_width = 32;
constexpr std::int64_t panel_depth = 2048;
// Rows whose partial sums are kept while K is walked in several runs.
constexpr std::int64_t panel_rows = 512;

inline std::int64_t output_columns(const LinearArgs& a) { return a.gated ? a.n / 2 : a.n; }

// Scratch of one thread in the packed path: two panels (gate and up), the sums of panel_rows rows
// of both, and a block of x as f32.
constexpr std::int64_t panel_bytes = panel_depth * panel_width * 4;
constexpr std::int64_t sums_bytes = panel_rows * panel_width * 4;
// Rows of the block are a little longer than a panel is deep: at a multiple of 4 KiB all of them
// would meet in the same set of L1.
constexpr std::int64_t x_block_stride = panel_depth + 16;
constexpr std::int64_t x_block_bytes = 16 * x_block_stride * 4;
constexpr std::int64_t thread_scratch_bytes = 2 * panel_bytes + 2 * sums_bytes + x_block_bytes;

// Packed weights: rows that are widened once per product and stream their panels; runs of K, and
// panels that more rows work on at a time, so that they stay in L2; how far ahead panels are
// fetched.
constexpr std::int64_t packed_few_rows = 16;
constexpr std::int64_t packed_few_depth = 2048, packed_depth = 512;
constexpr std::int64_t packed_group = 4;
constexpr std::int64_t packed_ahead_bytes = 1024;
// Panels read side by side for one row, and how far apart: not at a multiple of a large power of
// two, where they would meet in the same bank of memory (a fifth of the speed on Zen 3).
constexpr int packed_streams = 4;
inline std::int64_t packed_span(std::int64_t n, std::int64_t streams) {
  return (n + streams - 1) / streams | 1;
}

// Scratch of one thread: sums of a block of rows, and x as f32.
inline std::int64_t packed_scratch_bytes(const LinearArgs& a) {
  const std::int64_t rows = std::min(a.m, packed_few_rows);
  const std::int64_t x = std::max(rows * a.k, packed_few_rows * packed_depth);
  const std::int64_t sums = std::max(std::min(a.m, panel_rows) * packed_group * panel_width, a.n);
  return (x + sums + 15) / 16 * 16 * static_cast<std::int64_t>(sizeof(float));
}
inline std::int64_t scratch_of_thread(const LinearArgs& a) {
  if (a.layout == WeightLayout::packed) return packed_scratch_bytes(a);
  return a.m <= max_stream_rows ? 0 : thread_scratch_bytes;
}

struct PanelScratch {
  char* panel[2];
  float* sums[2];
  float* x_block;
};
inline PanelScratch panel_scratch(const LinearArgs& a, int thread) {
  char* p = static_cast<char*>(a.scratch) + scratch_of_thread(a) * thread;
  return {{p, p + panel_bytes},
          {reinterpret_cast<float*>(p + 2 * panel_bytes),
           reinterpret_cast<float*>(p + 2 * panel_bytes + sums_bytes)},
          reinterpret_cast<float*>(p + 2 * panel_bytes + 2 * sums_bytes)};
}

// Where threads may cut the output columns.
inline std::int64_t column_grain(const LinearArgs& a) {
  if (a.layout != WeightLayout::packed) return a.m <= max_stream_rows ? 8 : panel_width;
  return a.gated && a.glu.layout == GluLayout::interleaved ? panel_width / 2 : panel_width;
}

// y of `rows` and output columns `cols`: the work of one thread on one weight matrix. Dispatches.
void product(const LinearArgs& a, const RowSet& rows, Range cols, const PanelScratch& scratch);
// The same for packed weights; `product` calls it.
void packed_product(const LinearArgs& a, const RowSet& rows, Range cols,
                    const PanelScratch& scratch);

}  // namespace tk::kernels

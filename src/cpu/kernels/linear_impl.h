// What linear.cpp, grouped.cpp and the native bf16 kernels share: one product of a block of rows.
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

struct PanelScratch {
  char* panel[2];
  float* sums[2];
  float* x_block;
};
inline PanelScratch panel_scratch(void* scratch, int thread) {
  char* p = static_cast<char*>(scratch) + thread_scratch_bytes * thread;
  return {{p, p + panel_bytes},
          {reinterpret_cast<float*>(p + 2 * panel_bytes),
           reinterpret_cast<float*>(p + 2 * panel_bytes + sums_bytes)},
          reinterpret_cast<float*>(p + 2 * panel_bytes + 2 * sums_bytes)};
}

// y of `rows` and output columns `cols`: the work of one thread on one weight matrix. Dispatches.
void product(const LinearArgs& a, const RowSet& rows, Range cols, const PanelScratch& scratch);

}  // namespace tk::kernels

#include "cpu/kernels/linear.h"

#include <cstring>
#include <type_traits>

#include "cpu/kernels/bf16_dot.h"
#include "cpu/kernels/linear_impl.h"
#include "cpu/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/linear.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/kernels/epilogue-inl.h"
#include "cpu/kernels/panel-inl.h"
#include "cpu/kernels/simd-inl.h"
#include "cpu/kernels/stream-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

// ---- few rows ----

// A thread's rows of W are read as four streams far apart, a block of rows of each at a time; the
// sums of a block meet in a buffer before the epilogue runs over them.
constexpr std::int64_t n_streams = 4;
constexpr std::int64_t block_rows = 16;

// Output columns [first[s], first[s] + length) of `used` equal segments. Four rows of W at a time:
// one of each segment; with gate and up in halves, one of each of two segments and their ups; with
// pairs, the gates of each and then the ups. Segments that are not used repeat the last.
struct Segments {
  std::int64_t first[n_streams];
  std::int64_t length, used;
};

// Row of W that stream s reads for place i of its segment (of natural rows).
HWY_INLINE std::int64_t stream_row(const LinearArgs& a, const Segments& g, std::int64_t s,
                                   std::int64_t i) {
  if (!a.gated) return g.first[s] + i;
  if (a.glu.layout == GluLayout::interleaved) return 2 * g.first[s] + i;
  return s < 2 ? g.first[s] + i : a.n / 2 + g.first[s - 2] + i;
}

template <class X, class W>
void stream_segments(const LinearArgs& a, const RowSet& rows, const X* const* x,
                     const Segments& g) {
  const bool pairs = a.gated && a.glu.layout == GluLayout::interleaved;
  const std::int64_t per_column = pairs ? 2 : 1;  // rows of W in one segment
  constexpr std::int64_t ld = n_streams * block_rows;
  HWY_ALIGN float sums[max_stream_rows * ld];
  HWY_ALIGN float split[2][block_rows];
  const W* weights = static_cast<const W*>(a.w);
  for (std::int64_t i = 0; i < g.length * per_column; i += block_rows) {
    const std::int64_t n = std::min(block_rows, g.length * per_column - i);
    for (std::int64_t j = 0; j < n; ++j) {
      const W* w[n_streams];
      for (std::int64_t s = 0; s < n_streams; ++s)
        w[s] = weights + stream_row(a, g, s, i + j) * a.w_stride;
      if constexpr (std::is_same_v<X, bf16> && std::is_same_v<W, bf16>) {
        if (bf16_dot<X, W>()) {
          stream_rows_bf16_dot(x, rows.count, w, a.k, sums + j, ld, block_rows);
          continue;
        }
      }
      stream_rows(x, rows.count, w, a.k, sums + j, ld, block_rows);
    }
    for (std::int64_t r = 0; r < rows.count; ++r) {
      for (std::int64_t s = 0; s < n_streams; ++s)
        add_bias(a, stream_row(a, g, s, i), n, sums + r * ld + s * block_rows);
      for (std::int64_t s = 0; s < g.used; ++s) {
        const float* v = sums + r * ld + s * block_rows;
        const std::int64_t c = g.first[s] + i / per_column;
        if (pairs) {
          split_pairs(v, n / 2, split[0], split[1]);
          finish_row(a, rows.first + r, c, n / 2, split[0], split[1]);
        } else {
          finish_row(a, rows.first + r, c, n, v, v + ld / 2);
        }
      }
    }
  }
}

template <class X, class W>
void stream_by_rows(const LinearArgs& a, const RowSet& rows, const X* const* x, Range cols) {
  const bool halves = a.gated && a.glu.layout == GluLayout::halves;
  const std::int64_t segments = halves ? 2 : n_streams;
  const std::int64_t n = cols.end - cols.begin, length = n / segments;
  Segments g{{}, length, segments};
  for (std::int64_t s = 0; s < segments; ++s) g.first[s] = cols.begin + s * length;
  if (length > 0) stream_segments<X, W>(a, rows, x, g);
  // Fewer columns than segments are left.
  g.used = n - segments * length;
  g.length = 1;
  for (std::int64_t s = 0; s < segments; ++s)
    g.first[s] = std::min(cols.begin + segments * length + s, cols.end - 1);
  if (g.used > 0) stream_segments<X, W>(a, rows, x, g);
}

constexpr std::int64_t chunk_width = 64;

// W [K, N]: columns are contiguous, a chunk of them at a time.
template <class X, class W>
void stream_by_columns(const LinearArgs& a, const RowSet& rows, const X* const* x, Range cols) {
  const W* w = static_cast<const W*>(a.w);
  const bool pairs = a.gated && a.glu.layout == GluLayout::interleaved;
  constexpr std::int64_t ld = 2 * chunk_width;
  HWY_ALIGN float sums[max_stream_rows * ld];
  HWY_ALIGN float split[2][chunk_width];
  const auto part = [&](std::int64_t n0, std::int64_t n, float* out) HWY_ATTR {
    stream_columns(x, rows.count, w + n0, a.w_stride, n, a.k, out, ld);
    for (std::int64_t i = 0; i < rows.count; ++i) add_bias(a, n0, n, out + i * ld);
  };
  for (std::int64_t c = cols.begin; c < cols.end; c += chunk_width) {
    const std::int64_t n = std::min(chunk_width, cols.end - c);
    part(pairs ? 2 * c : c, pairs ? 2 * n : n, sums);
    if (a.gated && !pairs) part(a.n / 2 + c, n, sums + chunk_width);
    for (std::int64_t i = 0; i < rows.count; ++i) {
      const float* s = sums + i * ld;
      if (pairs) {
        split_pairs(s, n, split[0], split[1]);
        finish_row(a, rows.first + i, c, n, split[0], split[1]);
      } else {
        finish_row(a, rows.first + i, c, n, s, s + chunk_width);
      }
    }
  }
}

template <class X, class W>
void stream_product(const LinearArgs& a, const RowSet& rows, Range cols) {
  const X* x[max_stream_rows];
  for (std::int64_t i = 0; i < rows.count; ++i)
    x[i] = static_cast<const X*>(a.x) + rows.x_row(i) * a.x_stride;
  if (a.layout == WeightLayout::n_k)
    stream_by_rows<X, W>(a, rows, x, cols);
  else
    stream_by_columns<X, W>(a, rows, x, cols);
}

// ---- many rows ----

// The epilogue of mt rows of a panel: columns [c, c + n) of y, sums at row i of the scratch.
void finish_panel_rows(const LinearArgs& a, std::int64_t row, int mt, std::int64_t c,
                       std::int64_t n, std::int64_t i, const std::int64_t (&first)[2],
                       const std::int64_t (&count)[2], const PanelScratch& scratch) {
  HWY_ALIGN float split[2][panel_width];
  for (int r = 0; r < mt; ++r) {
    float* s[2] = {scratch.sums[0] + (i + r) * panel_width,
                   scratch.sums[1] + (i + r) * panel_width};
    for (int q = 0; q < (a.gated ? 2 : 1); ++q) add_bias(a, first[q], count[q], s[q]);
    if (a.gated && a.glu.layout == GluLayout::interleaved) {
      split_pairs(s[0], count[0] / 2, split[0], split[1]);
      split_pairs(s[1], count[1] / 2, split[0] + panel_width / 2, split[1] + panel_width / 2);
      finish_row(a, row + r, c, n, split[0], split[1]);
    } else {
      finish_row(a, row + r, c, n, s[0], s[1]);
    }
  }
}

template <class X, class W>
void pack(const LinearArgs& a, std::int64_t n0, std::int64_t n, std::int64_t p, std::int64_t depth,
          char* panel) {
  const W* w = static_cast<const W*>(a.w);
  if constexpr (std::is_same_v<W, bf16>)
    if (bf16_dot<X, W>())
      return pack_panel_bf16_dot(w, a.w_stride, a.layout, n0, n, p, depth,
                                 reinterpret_cast<bf16*>(panel));
  pack_panel(w, a.w_stride, a.layout, n0, n, p, depth, reinterpret_cast<float*>(panel));
}

// Sums of rows [i, i + mt) of the set with each panel, over `depth` elements from p on.
template <class X, class W>
void multiply(const LinearArgs& a, const RowSet& rows, std::int64_t i, int mt, int panels,
              std::int64_t p, std::int64_t depth, const PanelScratch& scratch) {
  const X* x[panel_tile_rows_bf16_dot];
  for (int r = 0; r < mt; ++r)
    x[r] = static_cast<const X*>(a.x) + rows.x_row(i + r) * a.x_stride + p;
  if constexpr (std::is_same_v<X, bf16>)
    if (bf16_dot<X, W>()) {
      for (int q = 0; q < panels; ++q)
        panel_tile_bf16_dot(mt, x, depth, reinterpret_cast<const bf16*>(scratch.panel[q]), p > 0,
                            scratch.sums[q] + i * panel_width, panel_width);
      return;
    }
  for (int r = 0; r < mt; ++r) widen_row(x[r], depth, scratch.x_block + r * x_block_stride);
  for (int q = 0; q < panels; ++q)
    panel_tile_any(mt, scratch.x_block, x_block_stride,
                   reinterpret_cast<const float*>(scratch.panel[q]), depth, p > 0,
                   scratch.sums[q] + i * panel_width);
}

// One panel of columns (two when gated) over all rows.
template <class X, class W>
void panel_product(const LinearArgs& a, const RowSet& rows, std::int64_t c, std::int64_t n,
                   const PanelScratch& scratch) {
  const bool pairs = a.gated && a.glu.layout == GluLayout::interleaved;
  // Natural columns of W that each panel holds.
  const std::int64_t first[2] = {pairs ? 2 * c : c, pairs ? 2 * c + panel_width : a.n / 2 + c};
  const std::int64_t count[2] = {pairs ? std::min(2 * n, panel_width) : n,
                                 pairs ? 2 * n - std::min(2 * n, panel_width) : n};
  const int panels = a.gated ? 2 : 1;
  const int tile = bf16_dot<X, W>() ? panel_tile_rows_bf16_dot : panel_tile_rows;
  for (std::int64_t p = 0; p < a.k || p == 0; p += panel_depth) {
    const std::int64_t depth = std::min(panel_depth, a.k - p);
    const bool last = p + depth == a.k;
    for (int q = 0; q < panels; ++q)
      if (count[q] > 0) pack<X, W>(a, first[q], count[q], p, depth, scratch.panel[q]);
    for (std::int64_t i = 0; i < rows.count; i += tile) {
      const int mt = static_cast<int>(std::min<std::int64_t>(tile, rows.count - i));
      multiply<X, W>(a, rows, i, mt, panels, p, depth, scratch);
      if (last) finish_panel_rows(a, rows.first + i, mt, c, n, i, first, count, scratch);
    }
  }
}

// ---- packed weights ----

template <class X, class W>
void product_of(const LinearArgs& a, const RowSet& rows, Range cols, const PanelScratch& scratch) {
  if (rows.count <= max_stream_rows) return stream_product<X, W>(a, rows, cols);
  for (std::int64_t r = 0; r < rows.count; r += panel_rows) {
    const RowSet part = rows.part(r, std::min(r + panel_rows, rows.count));
    for (std::int64_t c = cols.begin; c < cols.end; c += panel_width)
      panel_product<X, W>(a, part, c, std::min(panel_width, cols.end - c), scratch);
  }
}

void product(const LinearArgs& a, const RowSet& rows, Range cols, const PanelScratch& scratch) {
  with_float(a.x_dtype, [&](auto x) HWY_ATTR {
    with_float(a.w_dtype, [&](auto w) HWY_ATTR {
      product_of<decltype(x), decltype(w)>(a, rows, cols, scratch);
    });
  });
}

void finish_sums(const LinearArgs& a, Range cols, float* sums, float* up) {
  const std::int64_t n = cols.end - cols.begin;
  for (std::int64_t r = 0; r < a.m; ++r, sums += n, up += n) {
    add_bias(a, cols.begin, n, sums);
    if (a.gated) add_bias(a, a.n / 2 + cols.begin, n, up);
    finish_row(a, r, cols.begin, n, sums, up);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tk::kernels {

HWY_EXPORT(product);
HWY_EXPORT(finish_sums);

void finish_sums(const LinearArgs& a, Range cols, float* sums, float* up) {
  HWY_DYNAMIC_DISPATCH(finish_sums)(a, cols, sums, up);
}

void product(const LinearArgs& a, const RowSet& rows, Range cols, const PanelScratch& scratch) {
  if (a.layout == WeightLayout::packed) return packed_product(a, rows, cols, scratch);
  HWY_DYNAMIC_DISPATCH(product)(a, rows, cols, scratch);
}

std::size_t linear_scratch_bytes(const LinearArgs& a, int n_threads) {
  return static_cast<std::size_t>(scratch_of_thread(a)) * static_cast<std::size_t>(n_threads);
}

void linear(const LinearArgs& a, int thread, int n_threads) {
  if (a.m == 0) return;
  const PanelScratch scratch = panel_scratch(a, thread);
  const Range cols = share(output_columns(a), column_grain(a), thread, n_threads);
  if (cols.begin < cols.end) product(a, {0, a.m, nullptr, 1}, cols, scratch);
}

}  // namespace tk::kernels
#endif

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
#include "cpu/kernels/packed-inl.h"
#include "cpu/kernels/panel-inl.h"
#include "cpu/kernels/simd-inl.h"
#include "cpu/kernels/stream-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

// Whether products of these types go through vdpbf16ps. Only the AVX3 code asks at all.
template <class X, class W>
bool bf16_dot() {
  if constexpr (HWY_TARGET == HWY_AVX3 && std::is_same_v<X, bf16> && std::is_same_v<W, bf16>)
    return use_bf16_dot();
  return false;
}

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

// Output columns come in units: a panel, or a panel of gates and the one of ups. With pairs a panel
// gives half as many columns.
struct PackedUnits {
  const LinearArgs& a;
  bool pairs, halves;
  std::int64_t width, first, count;
  int panels;  // of a unit
  PackedUnits(const LinearArgs& args, Range cols) : a(args) {
    pairs = a.gated && a.glu.layout == GluLayout::interleaved;
    halves = a.gated && !pairs;
    width = pairs ? panel_width / 2 : panel_width;
    first = cols.begin / width;
    count = (cols.end - cols.begin + width - 1) / width;
    panels = halves ? 2 : 1;
  }
  // First row of W in panel q of unit u.
  std::int64_t row(std::int64_t u, int q) const {
    return (first + u) * panel_width + q * (a.n / 2);
  }
  const bf16* panel(std::int64_t u, int q) const {
    return static_cast<const bf16*>(a.w) + row(u, q) * a.k;
  }
  // sums[q] of one row become columns of y.
  void finish(std::int64_t u, std::int64_t y_row, float* const* sums) const {
    HWY_ALIGN float split[2][panel_width];
    for (int q = 0; q < panels; ++q) add_bias(a, row(u, q), panel_width, sums[q]);
    const std::int64_t c = (first + u) * width;
    if (pairs) {
      split_pairs(sums[0], width, split[0], split[1]);
      finish_row(a, y_row, c, width, split[0], split[1]);
    } else {
      finish_row(a, y_row, c, width, sums[0], sums[panels - 1]);
    }
  }
};

// Where the sums begin, behind the rows of x as f32.
float* packed_sums(const LinearArgs& a, const PanelScratch& scratch) {
  return reinterpret_cast<float*>(scratch.panel[0]) +
         std::max(std::min(a.m, packed_few_rows) * a.k, packed_few_rows * packed_depth);
}

// One row: the panels of all units are read as four streams; their sums stay in L1 or L2.
template <class X>
void packed_row(const LinearArgs& a, const RowSet& rows, const PackedUnits& units,
                const PanelScratch& scratch) {
  const X* x = static_cast<const X*>(a.x) + rows.x_row(0) * a.x_stride;
  const bool native = bf16_dot<X, bf16>();
  float* const wide = reinterpret_cast<float*>(scratch.panel[0]);
  float* const sums = packed_sums(a, scratch);
  if (!native) widen_row(x, a.k, wide);
  // Panel i is panel i / count of unit i % count.
  const std::int64_t n = units.count * units.panels, span = packed_span(n, packed_streams);
  for (std::int64_t i = 0; i < std::min(span, n); ++i) {
    const bf16* panels[packed_streams];
    float* out[packed_streams];
    int used = 0;
    for (std::int64_t p = i; p < n && used < packed_streams; p += span, ++used) {
      panels[used] = units.panel(p % units.count, static_cast<int>(p / units.count));
      out[used] = sums + p * panel_width;
    }
    if constexpr (std::is_same_v<X, bf16>)
      if (native) packed_row_bf16_dot(x, panels, used, a.k, out);
    if (!native) packed_streams_tile(used, wide, panels, a.k, out);
  }
  for (std::int64_t u = 0; u < units.count; ++u) {
    float* const of_unit[2] = {sums + u * panel_width, sums + (units.count + u) * panel_width};
    units.finish(u, rows.first, of_unit);
  }
}

// Rows [begin, end) of the set, at most panel_rows.
template <class X>
void packed_block(const LinearArgs& a, const RowSet& rows, const PackedUnits& units,
                  const PanelScratch& scratch) {
  const bool native = bf16_dot<X, bf16>();
  const bool few = rows.count <= packed_few_rows;
  const std::int64_t m = rows.count, run = few ? packed_few_depth : packed_depth;
  // Few rows: two units far apart, as two streams; many: units whose panels stay in L2.
  const std::int64_t group = few ? 2 : packed_group / units.panels;
  const std::int64_t span = few ? std::min(packed_span(units.count, 2), units.count) : group;
  // Tiles of equal height.
  const std::int64_t most =
      native ? few ? packed_few_tile_bf16_dot : panel_tile_rows_bf16_dot : packed_rows;
  const std::int64_t n_tiles = (m + most - 1) / most, tile = (m + n_tiles - 1) / n_tiles;
  float* const wide = reinterpret_cast<float*>(scratch.panel[0]);
  const std::int64_t ldx = few ? a.k : packed_depth;
  float* const sums = packed_sums(a, scratch);
  const auto x_at = [&](std::int64_t i, std::int64_t p) {
    return static_cast<const X*>(a.x) + rows.x_row(i) * a.x_stride + p;
  };
  if (few && !native)
    for (std::int64_t i = 0; i < m; ++i) widen_row(x_at(i, 0), a.k, wide + i * ldx);
  const std::int64_t rounds = few ? span : (units.count + group - 1) / group;
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::int64_t unit[packed_group];
    std::int64_t n = 0;
    for (std::int64_t g = 0; g < group; ++g) {
      const std::int64_t u = few ? round + g * span : round * group + g;
      if (u < units.count) unit[n++] = u;
    }
    const auto out = [&](std::int64_t g, int q, std::int64_t i) {
      return sums + ((g * units.panels + q) * m + i) * panel_width;
    };
    for (std::int64_t p = 0; p < a.k; p += run) {
      const std::int64_t depth = std::min(run, a.k - p);
      for (std::int64_t i = 0; i < m; i += tile) {
        const int mt = static_cast<int>(std::min(tile, m - i));
        const X* x[panel_tile_rows_bf16_dot];
        if (native)
          for (int r = 0; r < mt; ++r) x[r] = x_at(i + r, p);
        else if (!few)
          for (int r = 0; r < mt; ++r) widen_row(x_at(i + r, p), depth, wide + r * ldx);
        const float* from = few ? wide + i * ldx + p : wide;
        if constexpr (std::is_same_v<X, bf16>)
          if (native && few) {
            for (int q = 0; q < units.panels; ++q) {
              const bf16* panels[2];
              float* to[2];
              for (std::int64_t g = 0; g < n; ++g) {
                panels[g] = units.panel(unit[g], q) + p * panel_width;
                to[g] = out(g, q, i);
              }
              packed_few_bf16_dot(mt, x, panels, static_cast<int>(n), depth, p > 0, to);
            }
            continue;
          }
        for (std::int64_t g = 0; g < n; ++g)
          for (int q = 0; q < units.panels; ++q) {
            const bf16* panel = units.panel(unit[g], q) + p * panel_width;
            if constexpr (std::is_same_v<X, bf16>)
              if (native) {
                panel_tile_bf16_dot(mt, x, depth, panel, p > 0, out(g, q, i), panel_width);
                continue;
              }
            if (few && i == 0)
              packed_panel<true>(mt, from, ldx, panel, depth, p > 0, out(g, q, i), panel_width);
            else
              packed_panel<false>(mt, from, ldx, panel, depth, p > 0, out(g, q, i), panel_width);
          }
      }
    }
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t g = 0; g < n; ++g) {
        float* const of_row[2] = {out(g, 0, i), out(g, units.panels - 1, i)};
        units.finish(unit[g], rows.first + i, of_row);
      }
  }
}

template <class X>
void packed_product(const LinearArgs& a, const RowSet& rows, Range cols,
                    const PanelScratch& scratch) {
  const PackedUnits units(a, cols);
  if (rows.count == 1) return packed_row<X>(a, rows, units, scratch);
  for (std::int64_t r = 0; r < rows.count; r += panel_rows)
    packed_block<X>(a, rows.part(r, std::min(r + panel_rows, rows.count)), units, scratch);
}

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
    if (a.layout == WeightLayout::packed)
      return packed_product<decltype(x)>(a, rows, cols, scratch);
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
  HWY_DYNAMIC_DISPATCH(product)(a, rows, cols, scratch);
}

std::size_t linear_scratch_bytes(const LinearArgs& a, int n_threads) {
  return static_cast<std::size_t>(scratch_of_thread(a)) * static_cast<std::size_t>(n_threads);
}

void pack_weight(const bf16* w, WeightLayout layout, std::int64_t k, std::int64_t stride,
                 std::int64_t first, std::int64_t last, bf16* packed) {
  constexpr std::int64_t run = 16;  // pairs of a row that are read at a time: a cache line
  for (std::int64_t panel = first; panel < last; ++panel) {
    const std::int64_t n0 = panel * panel_width;
    auto* out = reinterpret_cast<std::uint32_t*>(packed + n0 * k);
    if (layout == WeightLayout::k_n) {
      for (std::int64_t p = 0; p < k / 2; ++p, out += panel_width) {
        const bf16* even = w + 2 * p * stride + n0;
        const bf16* odd = even + stride;
        for (std::int64_t j = 0; j < panel_width; ++j)
          out[j] = even[j].bits | static_cast<std::uint32_t>(odd[j].bits) << 16;
      }
      continue;
    }
    for (std::int64_t p0 = 0; p0 < k / 2; p0 += run)
      for (std::int64_t j = 0; j < panel_width; ++j) {
        const bf16* row = w + (n0 + j) * stride + 2 * p0;
        const std::int64_t n = std::min(run, k / 2 - p0);
        for (std::int64_t p = 0; p < n; ++p)
          std::memcpy(out + (p0 + p) * panel_width + j, row + 2 * p, 4);
      }
  }
}

void linear(const LinearArgs& a, int thread, int n_threads) {
  if (a.m == 0) return;
  const PanelScratch scratch = panel_scratch(a, thread);
  const Range cols = share(output_columns(a), column_grain(a), thread, n_threads);
  if (cols.begin < cols.end) product(a, {0, a.m, nullptr, 1}, cols, scratch);
}

}  // namespace tk::kernels
#endif

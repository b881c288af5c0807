// Products with packed weights; linear.cpp has those with weights as they lie.
#include <cstring>
#include <type_traits>

#include "cpu/kernels/bf16_dot.h"
#include "cpu/kernels/linear_impl.h"
#include "cpu/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/packed_linear.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/kernels/epilogue-inl.h"
#include "cpu/kernels/packed-inl.h"
#include "cpu/kernels/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

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
void packed_product_of(const LinearArgs& a, const RowSet& rows, Range cols,
                       const PanelScratch& scratch) {
  const PackedUnits units(a, cols);
  if (rows.count == 1) return packed_row<X>(a, rows, units, scratch);
  for (std::int64_t r = 0; r < rows.count; r += panel_rows)
    packed_block<X>(a, rows.part(r, std::min(r + panel_rows, rows.count)), units, scratch);
}

void packed_product(const LinearArgs& a, const RowSet& rows, Range cols,
                    const PanelScratch& scratch) {
  with_float(a.x_dtype,
             [&](auto x) HWY_ATTR { packed_product_of<decltype(x)>(a, rows, cols, scratch); });
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tk::kernels {

HWY_EXPORT(packed_product);

void packed_product(const LinearArgs& a, const RowSet& rows, Range cols,
                    const PanelScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(packed_product)(a, rows, cols, scratch);
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

}  // namespace tk::kernels
#endif

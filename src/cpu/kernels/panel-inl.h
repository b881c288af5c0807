// Products of many rows of x: W is repacked, a panel of 32 columns at a time, and the panel serves
// all rows. f32 arithmetic; bf16 with hardware dot products is in bf16_dot-inl.h.
#include "cpu/kernels/linear_impl.h"
#include "cpu/kernels/simd-inl.h"

#if defined(TK_KERNELS_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TK_KERNELS_PANEL_INL_H_
#undef TK_KERNELS_PANEL_INL_H_
#else
#define TK_KERNELS_PANEL_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

// panel[p * 32 + j] = W(n0 + j, p0 + p) as f32; columns from n on are zero.
template <class W>
HWY_NOINLINE void pack_panel(const W* w, std::int64_t w_stride, WeightLayout layout,
                             std::int64_t n0, std::int64_t n, std::int64_t p0, std::int64_t depth,
                             float* panel) {
  if (n < panel_width)
    std::memset(panel, 0, static_cast<std::size_t>(depth * panel_width) * sizeof(float));
  if (layout == WeightLayout::k_n) {
    for (std::int64_t p = 0; p < depth; ++p) {
      const W* row = w + (p0 + p) * w_stride + n0;
      float* out = panel + p * panel_width;
      std::int64_t j = 0;
      for (; j + n_lanes <= n; j += n_lanes) store(load(row + j), out + j);
      for (; j < n; ++j) out[j] = as_float(row[j]);
    }
    return;
  }
  // Four rows of W at a time, so that four columns of the panel are written together.
  HWY_ALIGN float lanes[4 * HWY_LANES(float)];
  std::int64_t j = 0;
  for (; j + 4 <= n; j += 4) {
    const W* row = w + (n0 + j) * w_stride + p0;
    float* out = panel + j;
    std::int64_t p = 0;
    for (; p + n_lanes <= depth; p += n_lanes) {
      hn::StoreInterleaved4(load(row + p), load(row + w_stride + p), load(row + 2 * w_stride + p),
                            load(row + 3 * w_stride + p), DF(), lanes);
      for (std::int64_t l = 0; l < n_lanes; ++l)
        std::memcpy(out + (p + l) * panel_width, lanes + 4 * l, 4 * sizeof(float));
    }
    for (; p < depth; ++p)
      for (std::int64_t i = 0; i < 4; ++i)
        out[p * panel_width + i] = as_float(row[i * w_stride + p]);
  }
  for (; j < n; ++j) {
    const W* row = w + (n0 + j) * w_stride + p0;
    for (std::int64_t p = 0; p < depth; ++p) panel[p * panel_width + j] = as_float(row[p]);
  }
}

constexpr int panel_vectors = static_cast<int>(panel_width / n_lanes);
// Rows of x per tile, so that sums, one row of the panel and x fit the registers.
constexpr int panel_tile_rows = HWY_CAP_GE512 ? 12 : 4;
// Vectors of the panel per tile.
constexpr int panel_tile_vectors = 2;

// sums[i * 32 + j] (+)= x[i] . panel[:, j] for MT rows of x (f32, `x_stride` apart).
template <int MT>
HWY_INLINE void panel_tile(const float* x, std::int64_t x_stride, const float* panel,
                           std::int64_t depth, bool add, float* sums) {
  constexpr int nv = panel_tile_vectors;
  for (int v0 = 0; v0 < panel_vectors; v0 += nv) {
    VF acc[MT][nv];
    for (int i = 0; i < MT; ++i)
      for (int v = 0; v < nv; ++v)
        acc[i][v] = add ? load(sums + i * panel_width + (v0 + v) * n_lanes) : hn::Zero(DF());
    const float* b = panel + v0 * n_lanes;
    for (std::int64_t p = 0; p < depth; ++p, b += panel_width) {
      VF w[nv];
      for (int v = 0; v < nv; ++v) w[v] = load(b + v * n_lanes);
      for (int i = 0; i < MT; ++i) {
        const VF xv = set(x[i * x_stride + p]);
        for (int v = 0; v < nv; ++v) acc[i][v] = hn::MulAdd(xv, w[v], acc[i][v]);
      }
    }
    for (int i = 0; i < MT; ++i)
      for (int v = 0; v < nv; ++v) store(acc[i][v], sums + i * panel_width + (v0 + v) * n_lanes);
  }
}

HWY_NOINLINE void panel_tile_any(int mt, const float* x, std::int64_t x_stride, const float* panel,
                                 std::int64_t depth, bool add, float* sums) {
  switch (mt) {
    case 1:
      return panel_tile<1>(x, x_stride, panel, depth, add, sums);
    case 2:
      return panel_tile<2>(x, x_stride, panel, depth, add, sums);
    case 3:
      return panel_tile<3>(x, x_stride, panel, depth, add, sums);
    case 4:
      return panel_tile<4>(x, x_stride, panel, depth, add, sums);
#if HWY_CAP_GE512
    case 5:
      return panel_tile<5>(x, x_stride, panel, depth, add, sums);
    case 6:
      return panel_tile<6>(x, x_stride, panel, depth, add, sums);
    case 7:
      return panel_tile<7>(x, x_stride, panel, depth, add, sums);
    case 8:
      return panel_tile<8>(x, x_stride, panel, depth, add, sums);
    case 9:
      return panel_tile<9>(x, x_stride, panel, depth, add, sums);
    case 10:
      return panel_tile<10>(x, x_stride, panel, depth, add, sums);
    case 11:
      return panel_tile<11>(x, x_stride, panel, depth, add, sums);
    case 12:
      return panel_tile<12>(x, x_stride, panel, depth, add, sums);
#endif
    default:
      return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

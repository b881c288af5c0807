// Products with packed weights: panels of 32 columns, each a run of pairs along K (see
// pack_weight). One tile serves one row and many: a column's sum is one chain over K in every tile.
#include "cpu/kernels/linear_impl.h"
#include "cpu/kernels/simd-inl.h"
#include "hwy/cache_control.h"

#if defined(TK_KERNELS_PACKED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TK_KERNELS_PACKED_INL_H_
#undef TK_KERNELS_PACKED_INL_H_
#else
#define TK_KERNELS_PACKED_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

// Rows of x that one tile takes; a vector of pairs holds n_lanes columns.
constexpr int packed_rows = HWY_CAP_GE512 ? 12 : HWY_TARGET == HWY_SCALAR ? 4 : 6;
constexpr int packed_vectors = static_cast<int>(panel_width / n_lanes);  // of a whole panel

// sums[s][i * ld + c] (+)= x[i] . panel s [:, c] for MT rows of x (f32, `ldx` apart), S panels and
// NV vectors of columns. With `fetch`, the panels come from memory and are fetched ahead.
template <int MT, int S, int NV, bool fetch>
HWY_INLINE void packed_tile(const float* HWY_RESTRICT x, std::int64_t ldx,
                            const bf16* const* panels, std::int64_t depth, bool add,
                            float* const* sums, std::int64_t ld) {
  const hn::RebindToUnsigned<DF> du;
  const auto high = hn::Set(du, 0xffff0000U);
  VF acc[MT][S][NV];
  const std::uint32_t* w[S];
  for (int s = 0; s < S; ++s) {
    w[s] = reinterpret_cast<const std::uint32_t*>(panels[s]);
    for (int i = 0; i < MT; ++i)
      for (int v = 0; v < NV; ++v)
        acc[i][s][v] = add ? load(sums[s] + i * ld + v * n_lanes) : hn::Zero(DF());
  }
  for (std::int64_t p = 0; p < depth; p += 2) {
    for (int s = 0; s < S; ++s) {
      if constexpr (fetch) {
        const char* ahead = reinterpret_cast<const char*>(w[s]) + packed_ahead_bytes;
        hwy::Prefetch(ahead);
        hwy::Prefetch(ahead + 64);
      }
      VF even[NV];
      for (int v = 0; v < NV; ++v)
        even[v] = hn::BitCast(DF(), hn::ShiftLeft<16>(hn::LoadU(du, w[s] + v * n_lanes)));
      for (int i = 0; i < MT; ++i) {
        const VF xv = set(x[i * ldx + p]);
        for (int v = 0; v < NV; ++v) acc[i][s][v] = hn::MulAdd(xv, even[v], acc[i][s][v]);
      }
      VF odd[NV];
      for (int v = 0; v < NV; ++v)
        odd[v] = hn::BitCast(DF(), hn::And(hn::LoadU(du, w[s] + v * n_lanes), high));
      for (int i = 0; i < MT; ++i) {
        const VF xv = set(x[i * ldx + p + 1]);
        for (int v = 0; v < NV; ++v) acc[i][s][v] = hn::MulAdd(xv, odd[v], acc[i][s][v]);
      }
      w[s] += panel_width;
    }
  }
  for (int i = 0; i < MT; ++i)
    for (int s = 0; s < S; ++s)
      for (int v = 0; v < NV; ++v) store(acc[i][s][v], sums[s] + i * ld + v * n_lanes);
}

// One row of x with 1 to 4 panels side by side.
HWY_NOINLINE void packed_streams_tile(int n, const float* x, const bf16* const* panels,
                                      std::int64_t depth, float* const* sums) {
  constexpr int nv = HWY_TARGET == HWY_SCALAR ? 2 : packed_vectors;
#pragma GCC unroll 1  // what is unrolled takes minutes to compile
  for (int v = 0; v < packed_vectors; v += nv) {
    const bf16* w[packed_streams];
    float* out[packed_streams];
    for (int s = 0; s < n; ++s) {
      w[s] = panels[s] + 2 * v * n_lanes;
      out[s] = sums[s] + v * n_lanes;
    }
    if (n == 4) packed_tile<1, 4, nv, true>(x, 0, w, depth, false, out, 0);
    if (n == 3) packed_tile<1, 3, nv, true>(x, 0, w, depth, false, out, 0);
    if (n == 2) packed_tile<1, 2, nv, true>(x, 0, w, depth, false, out, 0);
    if (n == 1) packed_tile<1, 1, nv, true>(x, 0, w, depth, false, out, 0);
  }
}

// MT rows of x with one whole panel, two vectors of columns at a time; the first pass fetches.
template <int MT, bool fetch>
HWY_NOINLINE void packed_panel_of(const float* x, std::int64_t ldx, const bf16* panel,
                                  std::int64_t depth, bool add, float* sums, std::int64_t ld) {
  // Up to three rows fit the registers with all columns.
  constexpr int nv = MT * packed_vectors <= 12 ? packed_vectors : 2;
#pragma GCC unroll 1  // what is unrolled takes minutes to compile
  for (int v = 0; v < packed_vectors; v += nv) {
    const bf16* w = panel + 2 * v * n_lanes;
    float* out = sums + v * n_lanes;
    if (v == 0)
      packed_tile<MT, 1, nv, fetch>(x, ldx, &w, depth, add, &out, ld);
    else
      packed_tile<MT, 1, nv, false>(x, ldx, &w, depth, add, &out, ld);
  }
}

template <bool fetch, int MT = packed_rows>
void packed_panel(int mt, const float* x, std::int64_t ldx, const bf16* panel, std::int64_t depth,
                  bool add, float* sums, std::int64_t ld) {
  if constexpr (MT > 0) {
    if (mt == MT) return packed_panel_of<MT, fetch>(x, ldx, panel, depth, add, sums, ld);
    packed_panel<fetch, MT - 1>(mt, x, ldx, panel, depth, add, sums, ld);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

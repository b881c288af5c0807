// Both ends of a product: a row of x as f32, and f32 sums of a few columns of one row become y.
#include <type_traits>

#include "cpu/kernels/bf16_dot.h"
#include "cpu/kernels/linear.h"
#include "cpu/kernels/simd-inl.h"

#if defined(TK_KERNELS_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TK_KERNELS_EPILOGUE_INL_H_
#undef TK_KERNELS_EPILOGUE_INL_H_
#else
#define TK_KERNELS_EPILOGUE_INL_H_
#endif

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

// The first `depth` elements of one row of x as f32.
template <class X>
HWY_INLINE void widen_row(const X* x, std::int64_t depth, float* out) {
  std::int64_t p = 0;
  for (; p + n_lanes <= depth; p += n_lanes) store(load(x + p), out + p);
  for (; p < depth; ++p) out[p] = as_float(x[p]);
}

// Adds bias[n0 + i] to sums[i], i < n.
HWY_INLINE void add_bias(const LinearArgs& a, std::int64_t n0, std::int64_t n, float* sums) {
  if (a.bias == nullptr) return;
  std::int64_t i = 0;
  for (; i + n_lanes <= n; i += n_lanes)
    store(hn::Add(load(sums + i), load_any(a.bias_dtype, a.bias, n0 + i)), sums + i);
  if (i < n)
    store_tail(
        hn::Add(load_tail(sums + i, n - i), load_any_tail(a.bias_dtype, a.bias, n0 + i, n - i)),
        sums + i, n - i);
}

// Columns [c0, c0 + n) of y's row, from their sums (bias included), or from gate and up.
// `sums` and `up` have room for whole vectors.
HWY_INLINE void finish_row(const LinearArgs& a, std::int64_t row, std::int64_t c0, std::int64_t n,
                           const float* sums, const float* up) {
  const std::int64_t y0 = row * a.y_stride + c0, r0 = row * a.residual_stride + c0;
  for (std::int64_t i = 0; i < n; i += n_lanes) {
    VF v = load(sums + i);
    v = a.gated ? gate(a.glu, v, load(up + i)) : activate(a.act, v);
    if (i + n_lanes <= n) {
      if (a.residual != nullptr) v = hn::Add(v, load_any(a.y_dtype, a.residual, r0 + i));
      store_any(v, a.y_dtype, a.y, y0 + i);
    } else {
      if (a.residual != nullptr)
        v = hn::Add(v, load_any_tail(a.y_dtype, a.residual, r0 + i, n - i));
      store_any_tail(v, a.y_dtype, a.y, y0 + i, n - i);
    }
  }
}

// g0 u0 g1 u1 ... -> g, u; n gates. Both outputs have room for whole vectors.
HWY_INLINE void split_pairs(const float* sums, std::int64_t n, float* g, float* u) {
  for (std::int64_t i = 0; i < n; ++i) {
    g[i] = sums[2 * i];
    u[i] = sums[2 * i + 1];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

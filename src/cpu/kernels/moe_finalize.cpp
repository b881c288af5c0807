#include "cpu/kernels/moe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/moe_finalize.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/kernels/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

constexpr std::int64_t finalize_piece = 512;

void moe_finalize(const MoeFinalizeArgs& a, int thread, int n_threads) {
  const std::int64_t per_row = (a.d + finalize_piece - 1) / finalize_piece;
  const Range part = share(a.tokens * per_row, 1, thread, n_threads);
  for (std::int64_t u = part.begin; u < part.end; ++u) {
    const std::int64_t t = u / per_row, begin = u % per_row * finalize_piece;
    const std::int64_t end = std::min(begin + finalize_piece, a.d);
    for (std::int64_t c = begin; c < end; c += n_lanes) {
      const std::int64_t n = std::min(n_lanes, end - c);
      VF v = hn::Zero(DF());
      for (std::int64_t j = 0; j < a.top_k; ++j) {
        const std::int32_t place = a.place_of_pair[t * a.top_k + j];
        if (place < 0) continue;
        const std::int64_t at = place * a.x_stride + c;
        const VF x =
            n == n_lanes ? load_any(a.x_dtype, a.x, at) : load_any_tail(a.x_dtype, a.x, at, n);
        v = hn::MulAdd(x, set(a.weights[t * a.top_k + j]), v);
      }
      if (a.residual != nullptr) {
        const std::int64_t at = t * a.residual_stride + c;
        v = hn::Add(v, n == n_lanes ? load_any(a.y_dtype, a.residual, at)
                                    : load_any_tail(a.y_dtype, a.residual, at, n));
      }
      const std::int64_t at = t * a.y_stride + c;
      if (n == n_lanes)
        store_any(v, a.y_dtype, a.y, at);
      else
        store_any_tail(v, a.y_dtype, a.y, at, n);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tk::kernels {

HWY_EXPORT(moe_finalize);

void moe_finalize(const MoeFinalizeArgs& a, int thread, int n_threads) {
  HWY_DYNAMIC_DISPATCH(moe_finalize)(a, thread, n_threads);
}

}  // namespace tk::kernels
#endif

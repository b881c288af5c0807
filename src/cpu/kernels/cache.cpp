#include "cpu/kernels/cache.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/cache.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/kernels/indices.h"
#include "cpu/kernels/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

template <class T>
void convert_row(const T* x, DType y_dtype, void* y, std::int64_t y0, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + n_lanes <= n; i += n_lanes) store_any(load(x + i), y_dtype, y, y0 + i);
  if (i < n) store_any_tail(load_tail(x + i, n - i), y_dtype, y, y0 + i, n - i);
}

void cache_write(const CacheWriteArgs& a, int thread, int n_threads) {
  const Range part = share(a.tokens * a.heads, 1, thread, n_threads);
  const std::size_t size = size_of(a.dtype);
  for (std::int64_t u = part.begin; u < part.end; ++u) {
    const std::int64_t t = u / a.heads, h = u % a.heads;
    const std::int64_t slot = index_at(a.slots, a.slots_dtype, t);
    if (slot < 0 || slot >= a.n_slots) continue;
    const std::int64_t from = t * a.x_stride + h * a.x_head_stride;
    const std::int64_t to = slot * a.slot_stride + h * a.cache_head_stride;
    if (a.dtype == a.cache_dtype) {
      std::memcpy(static_cast<char*>(a.cache) + static_cast<std::size_t>(to) * size,
                  static_cast<const char*>(a.x) + static_cast<std::size_t>(from) * size,
                  static_cast<std::size_t>(a.d) * size);
      continue;
    }
    with_float(a.dtype, [&](auto x) HWY_ATTR {
      convert_row(static_cast<const decltype(x)*>(a.x) + from, a.cache_dtype, a.cache, to, a.d);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tk::kernels {

HWY_EXPORT(cache_write);

void cache_write(const CacheWriteArgs& a, int thread, int n_threads) {
  HWY_DYNAMIC_DISPATCH(cache_write)(a, thread, n_threads);
}

}  // namespace tk::kernels
#endif

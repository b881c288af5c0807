#include "cpu/kernels/norm.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/norm.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/kernels/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

// s = x (+ residual), rounded to T and written to `sum` where there is one.
template <class T>
HWY_INLINE VF summed(const T* x, const T* residual, T* sum, std::int64_t i) {
  VF v = load(x + i);
  if (residual != nullptr) v = hn::Add(v, load(residual + i));
  if (sum != nullptr) {
    store(v, sum + i);
    v = load(sum + i);
  }
  return v;
}
template <class T>
HWY_INLINE VF summed_tail(const T* x, const T* residual, T* sum, std::int64_t i, std::int64_t n) {
  VF v = load_tail(x + i, n);
  if (residual != nullptr) v = hn::Add(v, load_tail(residual + i, n));
  if (sum != nullptr) {
    store_tail(v, sum + i, n);
    v = load_tail(sum + i, n);
  }
  return v;
}

struct Moments {
  float mean, square_sum;  // of s: its mean (0 for RMSNorm), and the sum of (s - mean)^2
};

// Two passes over the row, which lies in L1: the textbook formula, without cancellation.
template <bool centred, class T>
HWY_INLINE Moments moments(const T* x, const T* residual, T* total, std::int64_t d) {
  float mean = 0.0F;
  if constexpr (centred) {
    VF s0 = hn::Zero(DF());
    std::int64_t i = 0;
    for (; i + n_lanes <= d; i += n_lanes) s0 = hn::Add(s0, summed(x, residual, total, i));
    if (i < d) s0 = hn::Add(s0, summed_tail(x, residual, total, i, d - i));
    mean = sum(s0) / static_cast<float>(d);
    if (total != nullptr) x = total, residual = nullptr, total = nullptr;
  }
  const VF m = set(mean);
  VF a = hn::Zero(DF()), b = hn::Zero(DF());
  std::int64_t i = 0;
  for (; i + 2 * n_lanes <= d; i += 2 * n_lanes) {
    const VF v = hn::Sub(summed(x, residual, total, i), m);
    const VF w = hn::Sub(summed(x, residual, total, i + n_lanes), m);
    a = hn::MulAdd(v, v, a);
    b = hn::MulAdd(w, w, b);
  }
  for (; i + n_lanes <= d; i += n_lanes) {
    const VF v = hn::Sub(summed(x, residual, total, i), m);
    a = hn::MulAdd(v, v, a);
  }
  float squares = sum(hn::Add(a, b));
  if (i < d) {
    HWY_ALIGN float lanes[HWY_LANES(float)];
    store(hn::Sub(summed_tail(x, residual, total, i, d - i), m), lanes);
    for (std::int64_t j = 0; j < d - i; ++j) squares += lanes[j] * lanes[j];
  }
  return {mean, squares};
}

// y = (s - mean) * r * (weight + offset) + bias
template <class T>
HWY_INLINE void scale_row(const RmsNormArgs& a, const void* bias, const T* x, const T* residual,
                          Moments m, float r, std::int64_t y0) {
  const VF mean = set(m.mean), rv = set(r), offset = set(a.weight_offset);
  T* const none = nullptr;
  for (std::int64_t i = 0; i < a.d; i += n_lanes) {
    const std::int64_t n = a.d - i;
    if (n >= n_lanes) {
      VF v = hn::Mul(hn::Sub(summed(x, residual, none, i), mean), rv);
      if (a.weight != nullptr)
        v = hn::Mul(v, hn::Add(load_any(a.weight_dtype, a.weight, i), offset));
      if (bias != nullptr) v = hn::Add(v, load_any(a.weight_dtype, bias, i));
      store_any(v, a.y_dtype, a.y, y0 + i);
    } else {
      VF v = hn::Mul(hn::Sub(summed_tail(x, residual, none, i, n), mean), rv);
      if (a.weight != nullptr)
        v = hn::Mul(v, hn::Add(load_any_tail(a.weight_dtype, a.weight, i, n), offset));
      if (bias != nullptr) v = hn::Add(v, load_any_tail(a.weight_dtype, bias, i, n));
      store_any_tail(v, a.y_dtype, a.y, y0 + i, n);
    }
  }
}

template <bool centred, class T>
void norm_rows(const RmsNormArgs& a, const void* bias, int thread, int n_threads) {
  const Range part = share(a.rows * a.heads, 1, thread, n_threads);
  for (std::int64_t u = part.begin; u < part.end; ++u) {
    const std::int64_t row = u / a.heads, head = u % a.heads;
    const T* x = static_cast<const T*>(a.x) + row * a.x_stride + head * a.x_head_stride;
    const T* residual = static_cast<const T*>(a.residual);
    if (residual != nullptr) residual += row * a.residual_stride + head * a.residual_head_stride;
    T* total = static_cast<T*>(a.sum);
    if (total != nullptr) total += row * a.sum_stride + head * a.sum_head_stride;
    const Moments m = moments<centred>(x, residual, total, a.d);
    const float r = 1.0F / std::sqrt(m.square_sum / static_cast<float>(a.d) + a.eps);
    const std::int64_t y0 = row * a.y_stride + head * a.y_head_stride;
    if (total != nullptr)
      scale_row<T>(a, bias, total, nullptr, m, r, y0);
    else
      scale_row<T>(a, bias, x, residual, m, r, y0);
  }
}

void rms_norm(const RmsNormArgs& a, int thread, int n_threads) {
  with_float(a.dtype, [&](auto t) HWY_ATTR {
    norm_rows<false, decltype(t)>(a, nullptr, thread, n_threads);
  });
}

void layer_norm(const LayerNormArgs& a, int thread, int n_threads) {
  with_float(a.norm.dtype, [&](auto t) HWY_ATTR {
    norm_rows<true, decltype(t)>(a.norm, a.bias, thread, n_threads);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tk::kernels {

HWY_EXPORT(rms_norm);
HWY_EXPORT(layer_norm);

void rms_norm(const RmsNormArgs& a, int thread, int n_threads) {
  HWY_DYNAMIC_DISPATCH(rms_norm)(a, thread, n_threads);
}
void layer_norm(const LayerNormArgs& a, int thread, int n_threads) {
  HWY_DYNAMIC_DISPATCH(layer_norm)(a, thread, n_threads);
}

}  // namespace tk::kernels
#endif

// Per-target helpers of the kernels: loads and stores of any float type as f32, and the functions
// of one value. Included once per target (see hwy/foreach_target.h).
#include <cstring>

#include "base/dtype.h"
#include "cpu/kernels/common.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

#if defined(TK_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TK_KERNELS_SIMD_INL_H_
#undef TK_KERNELS_SIMD_INL_H_
#else
#define TK_KERNELS_SIMD_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr std::int64_t n_lanes = static_cast<std::int64_t>(HWY_LANES(float));

// ---- loads and stores: n_lanes elements as f32; unaligned ----

HWY_INLINE VF load(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF load(const bf16* p) {
  const hn::Rebind<std::uint16_t, DF> dh;
  const hn::Rebind<std::uint32_t, DF> du;
  const auto half = hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(du, half)));
}
HWY_INLINE VF load(const f16* p) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(DF(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
}

HWY_INLINE void store(VF v, float* p) { hn::StoreU(v, DF(), p); }
HWY_INLINE void store(VF v, bf16* p) {
  const hn::Rebind<std::uint16_t, DF> dh;
  const hn::Rebind<std::uint32_t, DF> du;
  const hn::Rebind<std::int32_t, DF> di;
  const auto u = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1));
  const auto rounded = hn::Add(u, hn::Add(hn::Set(du, 0x7fff), odd));
  // A NaN must not be carried into infinity: it is cut, and kept quiet.
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  const auto bits = hn::IfThenElse(nan, hn::Or(u, hn::Set(du, 0x400000)), rounded);
  hn::StoreU(hn::DemoteTo(dh, hn::BitCast(di, hn::ShiftRight<16>(bits))), dh,
             reinterpret_cast<std::uint16_t*>(p));
}
HWY_INLINE void store(VF v, f16* p) {
#if HWY_TARGET >= HWY_SSE4  // no F16C: highway's emulation truncates and knows no infinity
  HWY_ALIGN float lanes[HWY_LANES(float)];
  hn::Store(v, DF(), lanes);
  for (std::int64_t i = 0; i < n_lanes; ++i) p[i] = to_f16(lanes[i]);
#else
  const hn::Rebind<hwy::float16_t, DF> dh;
  hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(p));
#endif
}

// The first n < n_lanes elements; the rest reads as zero and is not touched.
template <typename T>
HWY_INLINE VF load_tail(const T* p, std::int64_t n) {
  HWY_ALIGN T buffer[HWY_LANES(float)] = {};
  std::memcpy(buffer, p, static_cast<std::size_t>(n) * sizeof(T));
  return load(buffer);
}
template <typename T>
HWY_INLINE void store_tail(VF v, T* p, std::int64_t n) {
  HWY_ALIGN T buffer[HWY_LANES(float)];
  store(v, buffer);
  std::memcpy(p, buffer, static_cast<std::size_t>(n) * sizeof(T));
}

HWY_INLINE float sum(VF v) { return hn::GetLane(hn::SumOfLanes(DF(), v)); }
HWY_INLINE VF set(float x) { return hn::Set(DF(), x); }

HWY_INLINE float as_float(float x) { return x; }
HWY_INLINE float as_float(bf16 x) { return to_float(x); }
HWY_INLINE float as_float(f16 x) { return to_float(x); }
template <typename T>
HWY_INLINE T from_float(float x);
template <>
HWY_INLINE float from_float<float>(float x) {
  return x;
}
template <>
HWY_INLINE bf16 from_float<bf16>(float x) {
  return to_bf16(x);
}
template <>
HWY_INLINE f16 from_float<f16>(float x) {
  return to_f16(x);
}

// ---- functions ----

// Highway's Exp answers 0 for NaN; a NaN must stay visible.
HWY_INLINE VF exp(VF x) {
  const VF e = hn::Exp(DF(), hn::Min(x, set(88.722839F)));
  return hn::IfThenElse(hn::Eq(x, x), e, x);
}
HWY_INLINE VF sigmoid(VF x) {
  const VF e = exp(hn::Neg(hn::Abs(x)));
  const VF r = hn::Div(set(1.0F), hn::Add(set(1.0F), e));
  return hn::IfThenElse(hn::Ge(x, set(0.0F)), r, hn::Mul(e, r));
}
// Odd polynomial near zero, where 1 - 2 / (e^2x + 1) would cancel.
HWY_INLINE VF tanh(VF x) {
  const VF a = hn::Abs(x);
  const VF e = exp(hn::Mul(set(-2.0F), a));
  const VF far = hn::Div(hn::Sub(set(1.0F), e), hn::Add(set(1.0F), e));
  const VF x2 = hn::Mul(x, x);
  VF p = hn::MulAdd(x2, set(-0.00886323553F), set(0.0218694885F));
  p = hn::MulAdd(x2, p, set(-0.0539682540F));
  p = hn::MulAdd(x2, p, set(0.133333333F));
  p = hn::MulAdd(x2, p, set(-0.333333333F));
  const VF near = hn::MulAdd(hn::Mul(x2, p), x, x);
  return hn::IfThenElse(hn::Lt(a, set(0.3F)), near, hn::CopySign(far, x));
}
// x * Phi(x) = 0.5 x erfc(-x / sqrt(2)), with erfc(z) = t exp(-z^2 + P(t)), t = 1 / (1 + z / 2),
// for z >= 0. P was fitted to log(erfc(z) exp(z^2) / t) on z in [0, 19]: largest error 7e-8.
HWY_INLINE VF gelu_erf(VF x) {
  const VF z = hn::Mul(hn::Abs(x), set(0.707106781F));
  const VF t = hn::Div(set(1.0F), hn::MulAdd(z, set(0.5F), set(1.0F)));
  VF p = set(0.169324736F);
  p = hn::MulAdd(p, t, set(-0.812216584F));
  p = hn::MulAdd(p, t, set(1.46187318F));
  p = hn::MulAdd(p, t, set(-1.09598805F));
  p = hn::MulAdd(p, t, set(0.244036073F));
  p = hn::MulAdd(p, t, set(-0.167031247F));
  p = hn::MulAdd(p, t, set(0.0902123059F));
  p = hn::MulAdd(p, t, set(0.375411887F));
  p = hn::MulAdd(p, t, set(0.999884188F));
  p = hn::MulAdd(p, t, set(-1.26550642F));
  const VF tail = hn::Mul(t, exp(hn::NegMulAdd(z, z, p)));  // erfc(z)
  const VF erfc = hn::IfThenElse(hn::Gt(x, set(0.0F)), hn::Sub(set(2.0F), tail), tail);
  return hn::Mul(hn::Mul(set(0.5F), x), erfc);
}
HWY_INLINE VF activate(Activation act, VF x) {
  switch (act) {
    case Activation::none:
      return x;
    case Activation::silu:
      return hn::Mul(x, sigmoid(x));
    case Activation::gelu_tanh: {
      const VF inner = hn::Mul(hn::MulAdd(hn::Mul(hn::Mul(x, x), x), set(0.044715F), x),
                               set(0.797884560802865F));
      return hn::Mul(hn::Mul(set(0.5F), x), hn::Add(set(1.0F), tanh(inner)));
    }
    case Activation::gelu_erf:
      return gelu_erf(x);
    case Activation::gelu_quick:
      return hn::Mul(x, sigmoid(hn::Mul(set(1.702F), x)));
    case Activation::relu:
      return hn::IfThenElse(hn::Lt(x, set(0.0F)), set(0.0F), x);
    case Activation::relu2: {
      const VF r = hn::IfThenElse(hn::Lt(x, set(0.0F)), set(0.0F), x);
      return hn::Mul(r, r);
    }
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::tanh:
      return tanh(x);
  }
  return x;
}

HWY_INLINE VF gate(const Glu& g, VF x, VF up) {
  if (!g.clamped) return hn::Mul(activate(g.act, x), up);
  const VF limit = set(g.limit);
  // Min and Max of x86 give the second operand when one is NaN; these keep it.
  const VF xc = hn::IfThenElse(hn::Gt(x, limit), limit, x);
  VF uc = hn::IfThenElse(hn::Gt(up, limit), limit, up);
  uc = hn::IfThenElse(hn::Lt(uc, hn::Neg(limit)), hn::Neg(limit), uc);
  const VF gated = hn::Mul(xc, sigmoid(hn::Mul(set(g.alpha), xc)));
  return hn::Mul(hn::Add(uc, set(g.up_offset)), gated);
}

// ---- dispatch on a float dtype: f(T{}) with T one of float, bf16, f16 ----

template <class F>
HWY_INLINE void with_float(DType dtype, const F& f) {
  if (dtype == DType::bf16)
    f(bf16{});
  else if (dtype == DType::f16)
    f(f16{});
  else
    f(float{});
}

// Loads n_lanes elements at p + i whatever the dtype; for operands read too rarely to be worth an
// instantiation each (bias, residual, norms' weights).
HWY_INLINE VF load_any(DType dtype, const void* p, std::int64_t i) {
  if (dtype == DType::bf16) return load(static_cast<const bf16*>(p) + i);
  if (dtype == DType::f16) return load(static_cast<const f16*>(p) + i);
  return load(static_cast<const float*>(p) + i);
}
HWY_INLINE VF load_any_tail(DType dtype, const void* p, std::int64_t i, std::int64_t n) {
  if (dtype == DType::bf16) return load_tail(static_cast<const bf16*>(p) + i, n);
  if (dtype == DType::f16) return load_tail(static_cast<const f16*>(p) + i, n);
  return load_tail(static_cast<const float*>(p) + i, n);
}
HWY_INLINE void store_any(VF v, DType dtype, void* p, std::int64_t i) {
  if (dtype == DType::bf16)
    store(v, static_cast<bf16*>(p) + i);
  else if (dtype == DType::f16)
    store(v, static_cast<f16*>(p) + i);
  else
    store(v, static_cast<float*>(p) + i);
}
HWY_INLINE void store_any_tail(VF v, DType dtype, void* p, std::int64_t i, std::int64_t n) {
  if (dtype == DType::bf16)
    store_tail(v, static_cast<bf16*>(p) + i, n);
  else if (dtype == DType::f16)
    store_tail(v, static_cast<f16*>(p) + i, n);
  else
    store_tail(v, static_cast<float*>(p) + i, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

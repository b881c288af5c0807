#include "cpu/kernels/elementwise.h"

#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/elementwise.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/kernels/indices.h"
#include "cpu/kernels/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

// Rows are cut into pieces of this many columns, so that one long row is shared too.
constexpr std::int64_t piece = 1024;

// f(row, first column, end column) for the pieces of this thread.
template <class F>
HWY_INLINE void for_pieces(std::int64_t rows, std::int64_t cols, int thread, int n_threads,
                           const F& f) {
  const std::int64_t per_row = (cols + piece - 1) / piece;
  const Range part = share(rows * per_row, 1, thread, n_threads);
  for (std::int64_t u = part.begin; u < part.end; ++u) {
    const std::int64_t c = u % per_row * piece;
    f(u / per_row, c, std::min(c + piece, cols));
  }
}

// f(place, n) for whole vectors (n == n_lanes) and the rest of [begin, end).
template <class F>
HWY_INLINE void for_vectors(std::int64_t begin, std::int64_t end, const F& f) {
  for (std::int64_t c = begin; c < end; c += n_lanes) f(c, std::min(n_lanes, end - c));
}
HWY_INLINE VF load_n(DType dtype, const void* p, std::int64_t i, std::int64_t n) {
  return n == n_lanes ? load_any(dtype, p, i) : load_any_tail(dtype, p, i, n);
}
HWY_INLINE void store_n(VF v, DType dtype, void* p, std::int64_t i, std::int64_t n) {
  if (n == n_lanes)
    store_any(v, dtype, p, i);
  else
    store_any_tail(v, dtype, p, i, n);
}
HWY_INLINE float at(const ConstRows& x, std::int64_t i) {
  if (x.dtype == DType::bf16) return as_float(static_cast<const bf16*>(x.data)[i]);
  if (x.dtype == DType::f16) return as_float(static_cast<const f16*>(x.data)[i]);
  return static_cast<const float*>(x.data)[i];
}

void binary(const BinaryArgs& a, int thread, int n_threads) {
  for_pieces(a.rows, a.cols, thread, n_threads,
             [&](std::int64_t r, std::int64_t begin, std::int64_t end) HWY_ATTR {
               const VF column = set(a.b_is_column ? at(a.b, r * a.b.stride) : 0.0F);
               for_vectors(begin, end, [&](std::int64_t c, std::int64_t n) HWY_ATTR {
                 const VF x = load_n(a.a.dtype, a.a.data, r * a.a.stride + c, n);
                 const VF y =
                     a.b_is_column ? column : load_n(a.b.dtype, a.b.data, r * a.b.stride + c, n);
                 VF z = x;
                 switch (a.op) {
                   case BinaryOp::add:
                     z = hn::Add(x, y);
                     break;
                   case BinaryOp::sub:
                     z = hn::Sub(x, y);
                     break;
                   case BinaryOp::mul:
                     z = hn::Mul(x, y);
                     break;
                   case BinaryOp::div:
                     z = hn::Div(x, y);
                     break;
                 }
                 store_n(z, a.y.dtype, a.y.data, r * a.y.stride + c, n);
               });
             });
}

void unary(const UnaryArgs& a, int thread, int n_threads) {
  const VF scale = set(a.scale);
  for_pieces(a.rows, a.cols, thread, n_threads,
             [&](std::int64_t r, std::int64_t begin, std::int64_t end) HWY_ATTR {
               for_vectors(begin, end, [&](std::int64_t c, std::int64_t n) HWY_ATTR {
                 const VF x = load_n(a.x.dtype, a.x.data, r * a.x.stride + c, n);
                 store_n(activate(a.act, hn::Mul(x, scale)), a.y.dtype, a.y.data,
                         r * a.y.stride + c, n);
               });
             });
}

// Gate and up of n columns of a merged interleaved row.
HWY_INLINE void split(const ConstRows& x, std::int64_t i, std::int64_t n, float* g, float* u) {
  for (std::int64_t j = 0; j < n; ++j) {
    g[j] = at(x, i + 2 * j);
    u[j] = at(x, i + 2 * j + 1);
  }
}

void glu(const GluArgs& a, int thread, int n_threads) {
  const bool pairs = a.up.data == nullptr && a.glu.layout == GluLayout::interleaved;
  const ConstRows up = a.up.data != nullptr ? a.up : a.x;
  const std::int64_t shift = a.up.data != nullptr ? 0 : a.f;  // of up in a merged row
  for_pieces(a.rows, a.f, thread, n_threads,
             [&](std::int64_t r, std::int64_t begin, std::int64_t end) HWY_ATTR {
               for_vectors(begin, end, [&](std::int64_t c, std::int64_t n) HWY_ATTR {
                 VF x, y;
                 if (pairs) {
                   HWY_ALIGN float g[HWY_LANES(float)] = {}, u[HWY_LANES(float)] = {};
                   split(a.x, r * a.x.stride + 2 * c, n, g, u);
                   x = load(g);
                   y = load(u);
                 } else {
                   x = load_n(a.x.dtype, a.x.data, r * a.x.stride + c, n);
                   y = load_n(up.dtype, up.data, r * up.stride + shift + c, n);
                 }
                 store_n(gate(a.glu, x, y), a.y.dtype, a.y.data, r * a.y.stride + c, n);
               });
             });
}

void embedding(const EmbeddingArgs& a, int thread, int n_threads) {
  const VF scale = set(a.scale);
  for_pieces(a.rows, a.cols, thread, n_threads,
             [&](std::int64_t r, std::int64_t begin, std::int64_t end) HWY_ATTR {
               const std::int64_t from = index_at(a.ids, a.ids_dtype, r) * a.table.stride;
               for_vectors(begin, end, [&](std::int64_t c, std::int64_t n) HWY_ATTR {
                 const VF x = load_n(a.table.dtype, a.table.data, from + c, n);
                 store_n(hn::Mul(x, scale), a.y.dtype, a.y.data, r * a.y.stride + c, n);
               });
             });
}

// ---- softmax ----

void softmax_row(const SoftmaxArgs& a, std::int64_t r) {
  const std::int64_t x0 = r * a.x.stride, y0 = r * a.y.stride;
  const VF scale = set(a.scale), lowest = set(-std::numeric_limits<float>::infinity());
  VF top = lowest;
  float total = 0.0F;
  for (std::int64_t c = 0; c < a.cols; c += n_lanes) {
    const std::int64_t n = std::min(n_lanes, a.cols - c);
    VF v = hn::Mul(load_n(a.x.dtype, a.x.data, x0 + c, n), scale);
    if (n < n_lanes) v = hn::IfThenElse(hn::FirstN(DF(), static_cast<std::size_t>(n)), v, lowest);
    top = hn::Max(top, v);
  }
  float max = hn::GetLane(hn::MaxOfLanes(DF(), top));
  if (max == -std::numeric_limits<float>::infinity()) max = 0.0F;
  const VF m = set(max);
  for (std::int64_t c = 0; c < a.cols; c += n_lanes) {
    const std::int64_t n = std::min(n_lanes, a.cols - c);
    HWY_ALIGN float lanes[HWY_LANES(float)];
    store(exp(hn::Sub(hn::Mul(load_n(a.x.dtype, a.x.data, x0 + c, n), scale), m)), lanes);
    if (n < n_lanes)
      for (std::int64_t i = n; i < n_lanes; ++i) lanes[i] = 0.0F;
    total += sum(load(lanes));
  }
  const VF inverse = set(total == 0.0F ? 0.0F : 1.0F / total);
  for (std::int64_t c = 0; c < a.cols; c += n_lanes) {
    const std::int64_t n = std::min(n_lanes, a.cols - c);
    const VF e = exp(hn::Sub(hn::Mul(load_n(a.x.dtype, a.x.data, x0 + c, n), scale), m));
    store_n(hn::Mul(e, inverse), a.y.dtype, a.y.data, y0 + c, n);
  }
}

void softmax(const SoftmaxArgs& a, int thread, int n_threads) {
  const Range part = share(a.rows, 1, thread, n_threads);
  for (std::int64_t r = part.begin; r < part.end; ++r) softmax_row(a, r);
}

// ---- argmax: lanes keep their largest and where it was; NaN beats everything ----

std::int64_t argmax_row(const ConstRows& x, std::int64_t x0, std::int64_t cols) {
  const hn::RebindToSigned<DF> di;
  const auto step = hn::Set(di, static_cast<std::int32_t>(n_lanes));
  VF best = set(-std::numeric_limits<float>::infinity());
  auto where = hn::Zero(di);
  auto place = hn::Iota(di, 0);
  auto any_nan = hn::IsNaN(best);  // none
  std::int64_t c = 0;
  for (; c + n_lanes <= cols; c += n_lanes, place = hn::Add(place, step)) {
    const VF v = load_any(x.dtype, x.data, x0 + c);
    const auto better = hn::Gt(v, best);
    any_nan = hn::Or(any_nan, hn::IsNaN(v));
    best = hn::IfThenElse(better, v, best);
    where = hn::IfThenElse(hn::RebindMask(di, better), place, where);
  }
  std::int64_t found = 0;
  float top = -std::numeric_limits<float>::infinity();
  const bool careful = !hn::AllFalse(DF(), any_nan);
  if (careful) c = 0;  // rare: look again, slowly
  if (!careful) {
    HWY_ALIGN float values[HWY_LANES(float)];
    HWY_ALIGN std::int32_t places[HWY_LANES(float)];
    store(best, values);
    hn::Store(where, di, places);
    for (std::int64_t i = 0; i < n_lanes; ++i)
      if (values[i] > top || (values[i] == top && places[i] < found))
        top = values[i], found = places[i];
  }
  for (; c < cols; ++c) {
    const float v = at(x, x0 + c);
    if (v != v) return c;
    if (v > top) top = v, found = c;
  }
  return found;
}

void argmax(const ArgmaxArgs& a, int thread, int n_threads) {
  const Range part = share(a.rows, 1, thread, n_threads);
  for (std::int64_t r = part.begin; r < part.end; ++r)
    a.index[r] = argmax_row(a.x, r * a.x.stride, a.cols);
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tk::kernels {

HWY_EXPORT(binary);
HWY_EXPORT(unary);
HWY_EXPORT(glu);
HWY_EXPORT(embedding);
HWY_EXPORT(softmax);
HWY_EXPORT(argmax);

void binary(const BinaryArgs& a, int thread, int n_threads) {
  HWY_DYNAMIC_DISPATCH(binary)(a, thread, n_threads);
}
void unary(const UnaryArgs& a, int thread, int n_threads) {
  HWY_DYNAMIC_DISPATCH(unary)(a, thread, n_threads);
}
void glu(const GluArgs& a, int thread, int n_threads) {
  HWY_DYNAMIC_DISPATCH(glu)(a, thread, n_threads);
}
void embedding(const EmbeddingArgs& a, int thread, int n_threads) {
  HWY_DYNAMIC_DISPATCH(embedding)(a, thread, n_threads);
}
void softmax(const SoftmaxArgs& a, int thread, int n_threads) {
  HWY_DYNAMIC_DISPATCH(softmax)(a, thread, n_threads);
}
void argmax(const ArgmaxArgs& a, int thread, int n_threads) {
  HWY_DYNAMIC_DISPATCH(argmax)(a, thread, n_threads);
}

void gather_rows(const GatherRowsArgs& a, int thread, int n_threads) {
  const Range part = share(a.rows, 1, thread, n_threads);
  const auto size = static_cast<std::int64_t>(size_of(a.x.dtype));
  for (std::int64_t r = part.begin; r < part.end; ++r)
    std::memcpy(static_cast<char*>(a.y.data) + r * a.y.stride * size,
                static_cast<const char*>(a.x.data) + a.index[r] * a.x.stride * size,
                static_cast<std::size_t>(a.cols * size));
}

}  // namespace tk::kernels
#endif

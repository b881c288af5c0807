#include "cpu/pointwise.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "cpu/kernels/common.h"
#include "cpu/loops.h"

namespace tk {
namespace {

constexpr int chunk = 512;

template <typename T>
inline float as_float(T x) {
  return static_cast<float>(x);
}
inline float as_float(bf16 x) { return to_float(x); }
inline float as_float(f16 x) { return to_float(x); }

TK_CLONES void widen_bf16(float* y, const bf16* x, int n) {
  for (int i = 0; i < n; ++i) y[i] = to_float(x[i]);
}
TK_CLONES void narrow_bf16(bf16* y, const float* x, int n) {
  for (int i = 0; i < n; ++i) y[i] = to_bf16(x[i]);
}

template <typename C, typename T>
void gather(C* y, const T* x, std::int64_t stride, int n) {
  if constexpr (std::is_same_v<C, float>) {
    for (int i = 0; i < n; ++i) y[i] = as_float(x[i * stride]);
  } else if constexpr (!std::is_same_v<T, bf16> && !std::is_same_v<T, f16>) {
    for (int i = 0; i < n; ++i) y[i] = static_cast<C>(x[i * stride]);
  }
}

template <typename C, typename T>
void scatter(T* y, std::int64_t stride, const C* x, int n) {
  for (int i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, bf16>) {
      y[i * stride] = to_bf16(static_cast<float>(x[i]));
    } else if constexpr (std::is_same_v<T, f16>) {
      y[i * stride] = to_f16(static_cast<float>(x[i]));
    } else {
      y[i * stride] = static_cast<T>(x[i]);
    }
  }
}

// f(T*) with the element type of `dtype`; bool as bytes.
template <typename F>
void with_type(DType dtype, const void* data, F f) {
  switch (dtype) {
    case DType::f32:
      return f(static_cast<const float*>(data));
    case DType::bf16:
      return f(static_cast<const bf16*>(data));
    case DType::f16:
      return f(static_cast<const f16*>(data));
    case DType::f64:
      return f(static_cast<const double*>(data));
    case DType::i64:
      return f(static_cast<const std::int64_t*>(data));
    case DType::i32:
      return f(static_cast<const std::int32_t*>(data));
    case DType::i16:
      return f(static_cast<const std::int16_t*>(data));
    case DType::i8:
      return f(static_cast<const std::int8_t*>(data));
    case DType::u8:
    case DType::boolean:
      return f(static_cast<const std::uint8_t*>(data));
    case DType::c64:
      return;  // never prepared
  }
}

const void* advance(const void* data, DType dtype, std::int64_t elements) {
  return static_cast<const std::byte*>(data) + elements * static_cast<std::int64_t>(size_of(dtype));
}

// n elements as C, in place where they lie so.
template <typename C>
const C* load(const PointwiseArgs::Operand& o, std::int64_t offset, std::int64_t stride, int n,
              C* buffer) {
  const void* at = advance(o.data, o.dtype, offset);
  constexpr DType own = std::is_same_v<C, float> ? DType::f32 : DType::i64;
  if (o.dtype == own && stride == 1) return static_cast<const C*>(at);
  if (stride == 0) {
    with_type(o.dtype, at, [&](auto* p) { gather(buffer, p, 0, 1); });
    std::fill_n(buffer + 1, n - 1, buffer[0]);
    return buffer;
  }
  if constexpr (std::is_same_v<C, float>) {
    if (o.dtype == DType::bf16 && stride == 1) {
      widen_bf16(buffer, static_cast<const bf16*>(at), n);
      return buffer;
    }
  }
  with_type(o.dtype, at, [&](auto* p) { gather(buffer, p, stride, n); });
  return buffer;
}

template <typename C>
void store(const PointwiseArgs::Operand& o, std::int64_t offset, std::int64_t stride, int n,
           const C* values) {
  const void* at = advance(o.data, o.dtype, offset);
  if constexpr (std::is_same_v<C, float>) {
    if (o.dtype == DType::bf16 && stride == 1)
      return narrow_bf16(const_cast<bf16*>(static_cast<const bf16*>(at)), values, n);
  }
  with_type(o.dtype, at, [&](auto* p) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(p)>>;
    scatter(const_cast<T*>(p), stride, values, n);
  });
}

// Calls f(offsets, begin, end) for this thread's share of the innermost axis of each row.
template <std::size_t N, typename F>
void for_rows(int rank, const std::array<std::int64_t, max_rank>& shape,
              const std::array<const std::int64_t*, N>& strides, int thread, int n_threads, F f) {
  const std::int64_t cols = rank == 0 ? 1 : shape[static_cast<std::size_t>(rank - 1)];
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < rank; ++i) rows *= shape[static_cast<std::size_t>(i)];
  const bool by_rows = rows >= n_threads;
  const kernels::Range r =
      by_rows ? kernels::share(rows, 1, thread, n_threads) : kernels::Range{0, rows};
  const kernels::Range c =
      by_rows ? kernels::Range{0, cols} : kernels::share(cols, 64, thread, n_threads);
  if (c.begin == c.end) return;
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    std::array<std::int64_t, N> offset{};
    std::int64_t rest = row;
    for (int i = rank - 2; i >= 0; --i) {
      const auto axis = static_cast<std::size_t>(i);
      const std::int64_t index = rest % shape[axis];
      rest /= shape[axis];
      for (std::size_t k = 0; k < N; ++k) offset[k] += index * strides[k][axis];
    }
    f(offset, c.begin, c.end);
  }
}

template <typename C, typename Loop>
void run(const PointwiseArgs& a, Loop loop, int thread, int n_threads) {
  alignas(64) C buffers[max_operands][chunk];
  alignas(64) C results[chunk];
  std::array<const std::int64_t*, max_operands + 1> strides{};
  for (std::size_t k = 0; k < max_operands; ++k) strides[k] = a.in[k].strides.data();
  strides[max_operands] = a.out.strides.data();
  const auto last = static_cast<std::size_t>(std::max(a.rank - 1, 0));
  const std::int64_t out_stride = a.rank == 0 ? 1 : a.out.strides[last];
  constexpr DType own = std::is_same_v<C, float> ? DType::f32 : DType::i64;
  for_rows(a.rank, a.shape, strides, thread, n_threads,
           [&](const auto& offset, std::int64_t begin, std::int64_t end) {
             for (std::int64_t i = begin; i < end; i += chunk) {
               const int n = static_cast<int>(std::min<std::int64_t>(chunk, end - i));
               const C* x[max_operands] = {};
               for (int k = 0; k < a.n_in; ++k) {
                 const auto& o = a.in[static_cast<std::size_t>(k)];
                 const std::int64_t step = a.rank == 0 ? 1 : o.strides[last];
                 x[k] =
                     load(o, offset[static_cast<std::size_t>(k)] + i * step, step, n, buffers[k]);
               }
               const std::int64_t to = offset[max_operands] + i * out_stride;
               if (a.out.dtype == own && out_stride == 1) {
                 loop(const_cast<C*>(static_cast<const C*>(advance(a.out.data, own, to))), x, n);
               } else {
                 loop(results, x, n);
                 store(a.out, to, out_stride, n, results);
               }
             }
           });
}

template <typename T>
void move_row(const MoveArgs& a, std::int64_t from, std::int64_t to, std::int64_t n) {
  const auto last = static_cast<std::size_t>(std::max(a.rank - 1, 0));
  const std::int64_t s = a.rank == 0 ? 1 : a.from_strides[last];
  const std::int64_t d = a.rank == 0 ? 1 : a.to_strides[last];
  const T* x = static_cast<const T*>(a.from) + from;
  T* y = static_cast<T*>(a.to) + to;
  if (s == 1 && d == 1) {
    std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(T));
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i * d] = x[i * s];
  }
}

constexpr int n_sums = 16;

TK_CLONES void add_up(float* sums, const float* x, std::int64_t n) {
  for (std::int64_t i = 0; i + n_sums <= n; i += n_sums)
    for (int k = 0; k < n_sums; ++k) sums[k] += x[i + k];
}

float row_of(Reduction kind, const ReduceArgs& a, std::int64_t row, float* buffer) {
  float sums[n_sums] = {};
  float top = -std::numeric_limits<float>::infinity();
  const PointwiseArgs::Operand o{a.x, a.x_dtype, {}};
  for (std::int64_t i = 0; i < a.cols; i += chunk) {
    const int n = static_cast<int>(std::min<std::int64_t>(chunk, a.cols - i));
    const float* x = load(o, row * a.stride + i, 1, n, buffer);
    if (kind == Reduction::max) {
      for (int k = 0; k < n; ++k)
        if (!(x[k] <= top)) top = x[k] != x[k] ? x[k] : std::max(top, x[k]);
      continue;
    }
    add_up(sums, x, n);
    for (int k = n / n_sums * n_sums; k < n; ++k) sums[k % n_sums] += x[k];
  }
  if (kind == Reduction::max) return top;
  float sum = 0;
  for (int k = 0; k < n_sums / 2; ++k) sum += sums[k] + sums[k + n_sums / 2];
  return kind == Reduction::mean ? sum / static_cast<float>(a.cols) : sum;
}

}  // namespace

void pointwise(const PointwiseArgs& a, int thread, int n_threads) {
  if (a.in_float != nullptr)
    run<float>(a, a.in_float, thread, n_threads);
  else
    run<std::int64_t>(a, a.in_int, thread, n_threads);
}

void move(const MoveArgs& a, int thread, int n_threads) {
  for_rows(a.rank, a.shape,
           std::array<const std::int64_t*, 2>{a.from_strides.data(), a.to_strides.data()}, thread,
           n_threads, [&](const auto& offset, std::int64_t begin, std::int64_t end) {
             const auto last = static_cast<std::size_t>(std::max(a.rank - 1, 0));
             const std::int64_t from = offset[0] + begin * (a.rank == 0 ? 1 : a.from_strides[last]);
             const std::int64_t to = offset[1] + begin * (a.rank == 0 ? 1 : a.to_strides[last]);
             const std::int64_t n = end - begin;
             switch (a.size) {
               case 1:
                 return move_row<std::uint8_t>(a, from, to, n);
               case 2:
                 return move_row<std::uint16_t>(a, from, to, n);
               case 4:
                 return move_row<std::uint32_t>(a, from, to, n);
               default:
                 return move_row<std::uint64_t>(a, from, to, n);
             }
           });
}

void reduce_rows(const ReduceArgs& a, int thread, int n_threads) {
  alignas(64) float buffer[chunk];
  const kernels::Range r = kernels::share(a.rows, 1, thread, n_threads);
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const float value = row_of(a.kind, a, row, buffer);
    store({a.y, a.y_dtype, {}}, row, 1, 1, &value);
  }
}

int merge_all(Dims* shape, Dims* const* strides, int n) {
  Dims size;
  std::array<Dims, max_operands + 1> step;
  for (int i = 0; i < shape->size(); ++i) {
    if ((*shape)[i] == 1) continue;
    bool merges = !size.empty();
    for (int k = 0; merges && k < n; ++k)
      merges = step[static_cast<std::size_t>(k)].back() == (*strides[k])[i] * (*shape)[i];
    if (merges) {
      size[size.size() - 1] *= (*shape)[i];
      for (int k = 0; k < n; ++k) {
        Dims& s = step[static_cast<std::size_t>(k)];
        s[s.size() - 1] = (*strides[k])[i];
      }
    } else {
      size.push_back((*shape)[i]);
      for (int k = 0; k < n; ++k) step[static_cast<std::size_t>(k)].push_back((*strides[k])[i]);
    }
  }
  *shape = size;
  for (int k = 0; k < n; ++k) *strides[k] = step[static_cast<std::size_t>(k)];
  return size.size();
}

}  // namespace tk

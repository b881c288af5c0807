// The loops of the references: elements of strided tensors in typed blocks. An element is computed
// in float (f32 and the 16-bit floats), double, int64 (integers and bool) or complex, and rounded
// once when it is stored.
#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/error.h"
#include "graph/op.h"
#include "ops/infer.h"

namespace tk::ops {

using Complex = std::complex<float>;

// Calls f with a value of the type that elements of `dtype` are computed in.
template <typename F>
void with_math(DType dtype, F f) {
  if (dtype == DType::f64) return f(double{});
  if (dtype == DType::c64) return f(Complex{});
  if (is_float(dtype)) return f(float{});
  f(std::int64_t{});
}
template <typename F>
void with_real(DType dtype, F f) {
  TK_CHECK(dtype != DType::c64);
  if (dtype == DType::f64) return f(double{});
  if (is_float(dtype)) return f(float{});
  f(std::int64_t{});
}
template <typename F>
void with_float(DType dtype, F f) {
  TK_CHECK(is_float(dtype));
  if (dtype == DType::f64) return f(double{});
  f(float{});
}

// Sums and products; integers wrap around.
template <typename T>
T wrap_add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}
template <typename T>
T wrap_mul(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else if constexpr (std::is_same_v<T, Complex>) {
    // The library's product repairs infinities; PyTorch's is the plain formula.
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  } else {
    return a * b;
  }
}

constexpr int block = 256;

// Elements offset, offset + stride, ... of t, converted to C: either t's own memory or `buffer`.
template <typename C>
const C* load(const TensorView& t, std::int64_t offset, std::int64_t stride, int n, C* buffer);
// The inverse. Floats outside an integer's range become its smallest, as on x86.
template <typename C>
void store(const TensorView& t, std::int64_t offset, std::int64_t stride, int n, const C* values);
// Where a block of results may be written directly, or null when it must go through store.
template <typename C>
C* in_place(const TensorView& t, std::int64_t offset, std::int64_t stride);

// Strides that repeat t over `shape`, to which it must broadcast.
TensorView expand(const TensorView& t, const Dims& shape);
// A number as a tensor without axes: f64, i64 or bool.
Tensor number(const Attr& attr, const SymEnv& env);
// out = t, any dtypes, same shape: as torch's Tensor.to.
void cast(const TensorView& out, const TensorView& t);
Tensor cast_to(const TensorView& t, DType dtype);
// t itself when it has that dtype.
Tensor as_dtype(const TensorView& t, DType dtype);

template <std::size_t N>
using Offsets = std::array<std::int64_t, N>;

// Walks N operands of one shape together: f(offsets, strides, n) for runs of at most `block`
// elements, in row-major order. Axes that are laid out alike in all operands are merged.
template <std::size_t N, typename F>
void for_blocks(const Dims& shape, const std::array<Dims, N>& strides, F f) {
  Dims size;
  std::array<Dims, N> step;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return;
    if (shape[i] == 1) continue;
    bool merges = !size.empty();
    for (std::size_t k = 0; merges && k < N; ++k)
      merges = step[k].back() == strides[k][i] * shape[i];
    if (merges) {
      size[size.size() - 1] *= shape[i];
      for (std::size_t k = 0; k < N; ++k) step[k][size.size() - 1] = strides[k][i];
    } else {
      size.push_back(shape[i]);
      for (std::size_t k = 0; k < N; ++k) step[k].push_back(strides[k][i]);
    }
  }
  Offsets<N> at{};
  Offsets<N> inner{};
  if (size.empty()) return f(at, inner, 1);
  const int last = size.size() - 1;
  for (std::size_t k = 0; k < N; ++k) inner[k] = step[k][last];
  Dims index = size;
  for (auto& i : index) i = 0;
  for (;;) {
    Offsets<N> run = at;
    for (std::int64_t begin = 0; begin < size[last]; begin += block) {
      const int n = static_cast<int>(std::min<std::int64_t>(block, size[last] - begin));
      f(run, inner, n);
      for (std::size_t k = 0; k < N; ++k) run[k] += inner[k] * n;
    }
    int i = last - 1;
    for (; i >= 0; --i) {
      for (std::size_t k = 0; k < N; ++k) at[k] += step[k][i];
      if (++index[i] < size[i]) break;
      for (std::size_t k = 0; k < N; ++k) at[k] -= step[k][i] * size[i];
      index[i] = 0;
    }
    if (i < 0) return;
  }
}

// out[i] = f(in[0][i], in[1][i], ...). Inputs broadcast to out; C is what they are computed in.
template <typename C, std::size_t N, typename F>
void map(const TensorView& out, const std::array<TensorView, N>& in, F f) {
  std::array<Dims, N + 1> strides;
  std::array<TensorView, N> x;
  for (std::size_t k = 0; k < N; ++k) {
    x[k] = expand(in[k], out.shape);
    strides[k] = x[k].strides;
  }
  strides[N] = out.strides;
  const auto call = [&]<std::size_t... K>(const std::array<const C*, N>& p, int i,
                                          std::index_sequence<K...>) { return f(p[K][i]...); };
  using R = decltype(call(std::array<const C*, N>{}, 0, std::make_index_sequence<N>{}));
  using Result = std::conditional_t<std::is_same_v<R, bool>, std::int64_t, R>;
  std::array<std::array<C, block>, N> buffers;
  std::array<Result, block> results;
  for_blocks<N + 1>(out.shape, strides, [&](const auto& at, const auto& step, int n) {
    std::array<const C*, N> p;
    for (std::size_t k = 0; k < N; ++k) p[k] = load(x[k], at[k], step[k], n, buffers[k].data());
    Result* direct = in_place<Result>(out, at[N], step[N]);
    Result* r = direct != nullptr ? direct : results.data();
    for (int i = 0; i < n; ++i)
      r[i] = static_cast<Result>(call(p, i, std::make_index_sequence<N>{}));
    if (direct == nullptr) store(out, at[N], step[N], n, r);
  });
}

// The operands of a pointwise operator as tensors of one dtype: input i, or the attribute. Numbers
// and tensors without axes keep their precision where `exact_scalars` (torch's add, sub, mul, div
// of 16-bit floats), and are rounded to the common dtype otherwise.
template <std::size_t N>
struct Operands {
  DType dtype;
  std::array<Tensor, N> tensors;

  std::array<TensorView, N> views() const {
    std::array<TensorView, N> v;
    std::copy(tensors.begin(), tensors.end(), v.begin());
    return v;
  }
};
Tensor operand(const EvalArgs& args, const Operand& o, DType dtype, bool exact_scalars);

template <std::size_t N>
Operands<N> operands(const EvalArgs& args, const Operand (&list)[N], DType dtype,
                     bool exact_scalars = false) {
  Operands<N> out{dtype, {}};
  for (std::size_t i = 0; i < N; ++i) out.tensors[i] = operand(args, list[i], dtype, exact_scalars);
  return out;
}

// Runs f(begin, end) over [0, n) on the machine's cores; here and in turn when `work`, the number
// of multiplications in all, is small, or when the cores are busy with another call. An exception
// of f is thrown again here.
void parallel(std::int64_t n, std::int64_t work,
              const std::function<void(std::int64_t, std::int64_t)>& f);

// TK0501: an index that is not in [0, size).
[[noreturn]] void bad_index(const EvalArgs& args, std::int64_t index, std::int64_t size,
                            std::string_view what = "index");
// Index i of an integer tensor's row-major order, negative ones counted from the end where
// `wraps`, checked against size.
std::int64_t checked_index(const EvalArgs& args, std::int64_t index, std::int64_t size, bool wraps);

}  // namespace tk::ops

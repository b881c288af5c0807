#include "ops/gemm.h"

#include <cstring>
#include <vector>

#include "ops/view.h"

namespace tk::ops {
namespace {

// The product goes panel by panel: `columns` columns of b, `depth` deep, packed as f32, against
// `rows` rows of a at a time, whose sums stay in registers.
constexpr int columns = 16;
constexpr int rows = 6;
constexpr std::int64_t depth = 512;

typedef float Vec __attribute__((vector_size(32), aligned(4), may_alias));

// sums [n_rows, columns] += a [n_rows, k] * panel [k, columns].
template <int n_rows>
[[gnu::always_inline]] inline void multiply(const float* a, std::int64_t lda, const float* panel,
                                            std::int64_t k, float* sums) {
  Vec left[n_rows];
  Vec right[n_rows];
  for (int r = 0; r < n_rows; ++r) {
    left[r] = *reinterpret_cast<const Vec*>(sums + r * columns);
    right[r] = *reinterpret_cast<const Vec*>(sums + r * columns + 8);
  }
  for (std::int64_t i = 0; i < k; ++i) {
    const Vec b0 = *reinterpret_cast<const Vec*>(panel + i * columns);
    const Vec b1 = *reinterpret_cast<const Vec*>(panel + i * columns + 8);
    for (int r = 0; r < n_rows; ++r) {
      const float x = a[r * lda + i];
      left[r] += x * b0;
      right[r] += x * b1;
    }
  }
  for (int r = 0; r < n_rows; ++r) {
    *reinterpret_cast<Vec*>(sums + r * columns) = left[r];
    *reinterpret_cast<Vec*>(sums + r * columns + 8) = right[r];
  }
}

[[gnu::always_inline]] inline void multiply_any(const float* a, std::int64_t lda, int n_rows,
                                                const float* panel, std::int64_t k, float* sums) {
  if (n_rows == rows) return multiply<rows>(a, lda, panel, k, sums);
  for (int r = 0; r < n_rows; ++r) multiply<1>(a + r * lda, lda, panel, k, sums + r * columns);
}

// sum of a[i] * b[i], in eight parts.
[[gnu::always_inline]] inline float dot_any(const float* a, const float* b, int n) {
  Vec sum = {};
  int i = 0;
  for (; i + 8 <= n; i += 8)
    sum += *reinterpret_cast<const Vec*>(a + i) * *reinterpret_cast<const Vec*>(b + i);
  float total = 0;
  for (int k = 0; k < 8; ++k) total += sum[k];
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

void multiply_plain(const float* a, std::int64_t lda, int n_rows, const float* panel,
                    std::int64_t k, float* sums) {
  multiply_any(a, lda, n_rows, panel, k, sums);
}
float dot_plain(const float* a, const float* b, int n) { return dot_any(a, b, n); }

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void multiply_avx2(const float* a, std::int64_t lda, int n_rows,
                                               const float* panel, std::int64_t k, float* sums) {
  multiply_any(a, lda, n_rows, panel, k, sums);
}
[[gnu::target("avx2,fma")]] float dot_avx2(const float* a, const float* b, int n) {
  return dot_any(a, b, n);
}
const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
const auto multiply_rows = has_avx2 ? multiply_avx2 : multiply_plain;
const auto dot = has_avx2 ? dot_avx2 : dot_plain;
#else
const auto multiply_rows = multiply_plain;
const auto dot = dot_plain;
#endif

// Columns [first, first + n) of b, k deep from `from` on, as f32 [k, columns] with zeros behind.
void pack(const TensorView& b, std::int64_t from, std::int64_t k, std::int64_t first, int n,
          float* panel) {
  std::array<float, block> buffer;
  if (b.strides[0] == 1) {  // a weight [n, k], transposed
    for (int j = 0; j < columns; ++j) {
      for (std::int64_t i = 0; i < k; i += block) {
        const int m = static_cast<int>(std::min<std::int64_t>(block, k - i));
        const float* p = nullptr;
        if (j < n) p = load(b, from + i + (first + j) * b.strides[1], 1, m, buffer.data());
        for (int e = 0; e < m; ++e) panel[(i + e) * columns + j] = p != nullptr ? p[e] : 0;
      }
    }
    return;
  }
  for (std::int64_t i = 0; i < k; ++i) {
    float* row = panel + i * columns;
    const float* p =
        load(b, (from + i) * b.strides[0] + first * b.strides[1], b.strides[1], n, buffer.data());
    std::copy(p, p + n, row);
    std::fill(row + n, row + columns, 0.0F);
  }
}

// c [m, n] of rows ldc apart = a [m, k] * b, for few rows of a: b is read once, not packed.
void few_rows(const float* a, std::int64_t lda, std::int64_t m, const TensorView& b, float* c,
              std::int64_t ldc) {
  const std::int64_t k = b.shape[0];
  parallel(b.shape[1], m * k * b.shape[1], [&](std::int64_t begin, std::int64_t end) {
    std::array<float, block> buffer;
    for (std::int64_t j = begin; j < end; ++j) {
      for (std::int64_t r = 0; r < m; ++r) c[r * ldc + j] = 0;
      for (std::int64_t i = 0; i < k; i += block) {
        const int n = static_cast<int>(std::min<std::int64_t>(block, k - i));
        const float* p = load(b, i + j * b.strides[1], 1, n, buffer.data());
        for (std::int64_t r = 0; r < m; ++r) c[r * ldc + j] += dot(a + r * lda + i, p, n);
      }
    }
  });
}

void many_rows(const float* a, std::int64_t lda, std::int64_t m, const TensorView& b, float* c,
               std::int64_t ldc) {
  const std::int64_t k = b.shape[0];
  const std::int64_t n = b.shape[1];
  parallel((n + columns - 1) / columns, m * k * n, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> panel(static_cast<std::size_t>(std::min(k, depth) * columns));
    for (std::int64_t first = begin * columns; first < std::min(end * columns, n);
         first += columns) {
      const int width = static_cast<int>(std::min<std::int64_t>(columns, n - first));
      for (std::int64_t from = 0; from < k; from += depth) {
        const std::int64_t deep = std::min(depth, k - from);
        pack(b, from, deep, first, width, panel.data());
        for (std::int64_t r = 0; r < m; r += rows) {
          const int height = static_cast<int>(std::min<std::int64_t>(rows, m - r));
          std::array<float, rows * columns> sums{};
          if (from > 0)
            for (int i = 0; i < height; ++i)
              std::copy_n(c + (r + i) * ldc + first, width, sums.data() + i * columns);
          multiply_rows(a + r * lda + from, lda, height, panel.data(), deep, sums.data());
          for (int i = 0; i < height; ++i)
            std::copy_n(sums.data() + i * columns, width, c + (r + i) * ldc + first);
        }
      }
    }
  });
}

void gemm_f32(const TensorView& a, const TensorView& b, const TensorView& out, double alpha,
              double beta, const TensorView& c) {
  const std::int64_t m = a.shape[0];
  const std::int64_t k = a.shape[1];
  const std::int64_t n = b.shape[1];
  Tensor wide;  // a in f32, its rows contiguous
  const bool ready = a.dtype == DType::f32 && (a.strides[1] == 1 || k == 1);
  if (!ready) wide = cast_to(a, DType::f32);
  const TensorView x = ready ? a : wide;
  const bool plain = alpha == 1 && (beta == 0 || c.data == nullptr);
  const bool direct = plain && out.dtype == DType::f32 && (out.strides[1] == 1 || n == 1);
  Tensor sums;
  if (!direct) sums = Tensor::empty(DType::f32, {m, n});
  const TensorView to = direct ? out : sums;
  if (k == 0) {
    cast(to, expand(Tensor::scalar(DType::f32, 0), to.shape));
  } else if (m <= 4 && b.strides[0] == 1) {
    few_rows(x.as<float>(), x.strides[0], m, b, to.as<float>(), to.strides[0]);
  } else {
    many_rows(x.as<float>(), x.strides[0], m, b, to.as<float>(), to.strides[0]);
  }
  if (direct) return;
  const auto scale = static_cast<float>(alpha);
  if (plain) {
    cast(out, sums);
  } else if (beta == 0 || c.data == nullptr) {
    map<float, 1>(out, {sums}, [=](float v) { return scale * v; });
  } else {
    const auto rate = static_cast<float>(beta);
    map<float, 2>(out, {sums, c}, [=](float v, float add) { return scale * v + rate * add; });
  }
}

// Other dtypes: rare, so three loops.
template <typename T>
void gemm_plain(const TensorView& a, const TensorView& b, const TensorView& out, double alpha,
                double beta, const TensorView& c) {
  const std::int64_t k = a.shape[1];
  const bool adds = beta != 0 && c.data != nullptr;
  const TensorView add = adds ? expand(c, out.shape) : out;
  std::array<T, block> left;
  std::array<T, block> right;
  for (std::int64_t i = 0; i < out.shape[0]; ++i)
    for (std::int64_t j = 0; j < out.shape[1]; ++j) {
      T sum{};
      for (std::int64_t e = 0; e < k; e += block) {
        const int n = static_cast<int>(std::min<std::int64_t>(block, k - e));
        const T* x = load(a, i * a.strides[0] + e * a.strides[1], a.strides[1], n, left.data());
        const T* y = load(b, j * b.strides[1] + e * b.strides[0], b.strides[0], n, right.data());
        for (int u = 0; u < n; ++u) sum = wrap_add(sum, wrap_mul(x[u], y[u]));
      }
      if (alpha != 1) sum = wrap_mul(sum, static_cast<T>(alpha));
      if (adds) {
        const T* z = load(add, i * add.strides[0] + j * add.strides[1], 1, 1, left.data());
        sum = wrap_add(sum, wrap_mul(static_cast<T>(beta), *z));
      }
      store(out, i * out.strides[0] + j * out.strides[1], 1, 1, &sum);
    }
}

}  // namespace

void gemm(const TensorView& a, const TensorView& b, const TensorView& out, double alpha,
          double beta, const TensorView& c) {
  TK_CHECK(a.rank() == 2 && b.rank() == 2 && out.rank() == 2);
  TK_CHECK(a.shape[1] == b.shape[0] && out.shape[0] == a.shape[0] && out.shape[1] == b.shape[1],
           a.shape.str(), " x ", b.shape.str(), " -> ", out.shape.str());
  if (out.numel() == 0) return;
  if (is_float(a.dtype) && a.dtype != DType::f64) return gemm_f32(a, b, out, alpha, beta, c);
  with_math(a.dtype, [&](auto tag) { gemm_plain<decltype(tag)>(a, b, out, alpha, beta, c); });
}

namespace {

// f(i, at) for each matrix of a batch; `at` are offsets into the operands.
template <std::size_t N, typename F>
void for_matrices(const Dims& batch, const std::array<TensorView, N>& operands, F f) {
  std::array<Dims, N> strides;
  for (std::size_t k = 0; k < N; ++k)
    strides[k] =
        Dims(std::span(operands[k].strides.begin(), static_cast<std::size_t>(batch.size())));
  for_blocks<N>(batch, strides, [&](const auto& at, const auto& step, int n) {
    for (int i = 0; i < n; ++i) {
      Offsets<N> offsets;
      for (std::size_t k = 0; k < N; ++k) offsets[k] = at[k] + i * step[k];
      f(offsets);
    }
  });
}

TensorView matrix(const TensorView& t, std::int64_t offset) {
  TensorView out = moved(t, offset);
  out.shape = {t.shape.at(-2), t.shape.at(-1)};
  out.strides = {t.strides.at(-2), t.strides.at(-1)};
  return out;
}

}  // namespace

void batched_gemm(TensorView a, TensorView b, const TensorView& out, double alpha, double beta,
                  const TensorView& c) {
  const int n_batch = out.rank() - 2;
  const Dims batch(std::span(out.shape.begin(), static_cast<std::size_t>(n_batch)));
  const auto spread = [&](const TensorView& t) {
    Dims shape = batch;
    shape.push_back(t.shape.at(-2));
    shape.push_back(t.shape.at(-1));
    return expand(t, shape);
  };
  a = spread(a);
  b = spread(b);
  if (c.data == nullptr) {
    for_matrices<3>(batch, {a, b, out}, [&](const Offsets<3>& at) {
      gemm(matrix(a, at[0]), matrix(b, at[1]), matrix(out, at[2]), alpha);
    });
    return;
  }
  const TensorView add = expand(c, out.shape);
  for_matrices<4>(batch, {a, b, out, add}, [&](const Offsets<4>& at) {
    gemm(matrix(a, at[0]), matrix(b, at[1]), matrix(out, at[2]), alpha, beta, matrix(add, at[3]));
  });
}

}  // namespace tk::ops

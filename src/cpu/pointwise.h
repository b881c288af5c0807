// One kernel for every elementwise operator, and one for copies: any strides, broadcasting, any mix
// of dtypes. Operands are brought into small buffers of the type that is computed in (unless they
// lie there as that type already), so that the inner loops are plain and the compiler vectorises
// them. Fused operators have kernels of their own in kernels/; this serves what is not fused.
#pragma once

#include <array>
#include <cstdint>

#include "base/tensor.h"

namespace tk {

constexpr int max_operands = 3;

// y[i] = f(x[0][i], x[1][i], ...) for n <= 512 elements. Comparisons give 0 or 1.
using FloatLoop = void (*)(float* y, const float* const* x, int n);
using IntLoop = void (*)(std::int64_t* y, const std::int64_t* const* x, int n);

struct PointwiseArgs {
  FloatLoop in_float = nullptr;  // one of the two
  IntLoop in_int = nullptr;
  int n_in = 0, rank = 0;
  std::array<std::int64_t, max_rank> shape{};  // axes merged where all operands allow it
  struct Operand {
    const void* data = nullptr;
    DType dtype = DType::f32;
    std::array<std::int64_t, max_rank> strides{};  // in elements
  };
  std::array<Operand, max_operands> in{};
  Operand out;
};
void pointwise(const PointwiseArgs& args, int thread, int n_threads);

// Elements of the same size, moved as they are.
struct MoveArgs {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t size = 4;  // bytes of an element: 1, 2, 4 or 8
  int rank = 0;
  std::array<std::int64_t, max_rank> shape{}, from_strides{}, to_strides{};
};
void move(const MoveArgs& args, int thread, int n_threads);

// y[r] = the mean, sum or largest of a row [cols] of floats; sums in f32.
enum class Reduction : std::uint8_t { mean, sum, max };
struct ReduceArgs {
  Reduction kind = Reduction::mean;
  const void* x = nullptr;
  void* y = nullptr;
  DType x_dtype = DType::f32, y_dtype = DType::f32;
  std::int64_t rows = 0, cols = 0, stride = 0;
};
void reduce_rows(const ReduceArgs& args, int thread, int n_threads);

// Merges the axes of up to four operands of one shape that lie alike in all of them, and drops
// those of size 1. Returns the rank; shape and strides are changed in place.
int merge_all(Dims* shape, Dims* const* strides, int n);

}  // namespace tk

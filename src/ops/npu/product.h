// Matrix products of torch_npu with the things that are fused to them: sums in f32 or in exact
// integers, scales and biases after them, one rounding at the end.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/op.h"

namespace tk::ops {

// Rows of floats.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> v;
  float* row(std::int64_t i) { return v.data() + i * columns; }
  const float* row(std::int64_t i) const { return v.data() + i * columns; }
};

// A matrix of floats, of int8, or of packed int4 (int_rows.h).
Matrix widened(const TensorView& t);
// (w + offset) * scale, per column ([N] or [1, N]), per tensor ([1]) or per group of
// rows [ceil(K / group), N].
Matrix dequantised(const TensorView& weight, const TensorView& scale, const TensorView& offset,
                   std::int64_t group);

// a [m, k] * b [k, n], in f32.
Matrix product(const Matrix& a, const Matrix& b);

// Integers, and their product: exact as long as it fits in int32.
struct IntMatrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<std::int32_t> v;
};
IntMatrix integers(const TensorView& t);
IntMatrix product(const IntMatrix& a, const IntMatrix& b);

// Matrix i of a tensor of rank 3 (or the tensor itself when of rank 2).
TensorView matrix_of(const TensorView& t, std::int64_t i);
// Rows [begin, end) of a tensor of rank 2.
TensorView rows_of(const TensorView& t, std::int64_t begin, std::int64_t end);
// Any rank as rows of the last axis, copied.
Tensor as_rows(const TensorView& t);
// What belongs to matrix i of `count`: part i of a tensor whose first axis has that size, else all.
TensorView part_of(const TensorView& t, std::int64_t i, std::int64_t count);

// What follows a product of integers: y = (sum + integer bias) * scale * per_token + float bias
// + offset. Scales and biases are those of one matrix: [1], [N] or [1, N]; data null where absent.
struct Epilogue {
  TensorView bias, scale, offset;
  TensorView per_token;  // [rows] of the whole call
  Matrix apply(const IntMatrix& sums, std::int64_t first_row) const;
};

// Into the rows of `out` ([rows, N]) from row `at` on, rounded; int8 kept in range.
void store_rows(const TensorView& out, std::int64_t at, const Matrix& y);
void store_rows(const TensorView& out, std::int64_t at, const IntMatrix& y);  // int32

// [begin, end) of each group of `rows` rows, and which weight it takes. `type` 0: running totals,
// 1: counts, 2: [index, count] pairs. Throws TK0501 for groups that do not fit.
struct RowGroup {
  std::int64_t weight, begin, end;
};
std::vector<RowGroup> row_groups(const EvalArgs& a, const TensorView& list, std::int64_t type,
                                 std::int64_t rows, std::int64_t weights);

}  // namespace tk::ops

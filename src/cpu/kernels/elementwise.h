// Elementwise kernels and the glue between the large ones. All work on [rows, cols] with a row
// stride per operand; a stride of 0 repeats one row. Dtypes: f32, bf16, f16, each operand its own.
#pragma once

#include "cpu/kernels/common.h"

namespace tk::kernels {

struct Rows {  // an operand [rows, cols], the last axis contiguous
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t stride = 0;
};
struct ConstRows {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t stride = 0;
};

enum class BinaryOp : std::uint8_t { add, sub, mul, div };
struct BinaryArgs {  // y = (a op b) ; y may be a or b
  BinaryOp op = BinaryOp::add;
  ConstRows a, b;
  Rows y;
  std::int64_t rows = 0, cols = 0;
  bool b_is_column = false;  // b is [rows, 1]
};
void binary(const BinaryArgs& args, int thread, int n_threads);

struct UnaryArgs {  // y = act(x * scale) ; act none casts
  Activation act = Activation::none;
  ConstRows x;
  Rows y;
  std::int64_t rows = 0, cols = 0;
  float scale = 1.0F;
};
void unary(const UnaryArgs& args, int thread, int n_threads);

struct GluArgs {  // y[rows, f] = glu(x[rows, 2f]), or of two operands gate[rows, f], up[rows, f]
  Glu glu;
  ConstRows x;   // merged, or the gate when `up` is given
  ConstRows up;  // optional
  Rows y;
  std::int64_t rows = 0, f = 0;
};
void glu(const GluArgs& args, int thread, int n_threads);

// y[t, :] = table[ids[t], :] * scale. ids have been checked to lie in the table.
struct EmbeddingArgs {
  ConstRows table;
  const void* ids = nullptr;  // i32 or i64 [rows]
  DType ids_dtype = DType::i64;
  Rows y;
  std::int64_t rows = 0, cols = 0;
  float scale = 1.0F;
};
void embedding(const EmbeddingArgs& args, int thread, int n_threads);

// y[i, :] = x[index[i], :], same dtype: last-token selection, permutations.
struct GatherRowsArgs {
  ConstRows x;
  const std::int32_t* index = nullptr;
  Rows y;
  std::int64_t rows = 0, cols = 0;
};
void gather_rows(const GatherRowsArgs& args, int thread, int n_threads);

struct SoftmaxArgs {  // over the last axis; a row of -inf only gives zeros, not NaN
  ConstRows x;
  Rows y;
  std::int64_t rows = 0, cols = 0;
  float scale = 1.0F;
};
void softmax(const SoftmaxArgs& args, int thread, int n_threads);

// The k largest of each row, largest first, the lower index first among equals. NaN counts as
// largest, as in torch. k <= cols.
struct TopKArgs {
  ConstRows x;
  Rows values;                    // [rows, k], optional (data null)
  std::int32_t* index = nullptr;  // [rows, k]
  std::int64_t rows = 0, cols = 0, k = 0, index_stride = 0;
};
void top_k(const TopKArgs& args, int thread, int n_threads);

// index[r] = the place of the first largest element of row r (NaN counts as largest).
struct ArgmaxArgs {
  ConstRows x;
  std::int64_t* index = nullptr;
  std::int64_t rows = 0, cols = 0;
};
void argmax(const ArgmaxArgs& args, int thread, int n_threads);

}  // namespace tk::kernels

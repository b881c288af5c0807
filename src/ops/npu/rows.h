// What the references of torch_npu's operators share: rows of the last axis in f32, whatever the
// dtype, and numbers as text.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/op.h"

namespace tk::ops {

// The n elements from `offset` on, `step` apart, as f32.
void read_row(const TensorView& t, std::int64_t offset, std::int64_t step, std::int64_t n,
              float* out);
// The inverse; rounds to nearest even, i8 is saturated.
void write_row(const TensorView& t, std::int64_t offset, std::int64_t step, std::int64_t n,
               const float* in);

// The rows of a tensor along its last axis, in row-major order of the others.
class RowWalk {
 public:
  explicit RowWalk(const TensorView& t, int inner_axes = 1);
  std::int64_t count() const { return count_; }
  // The offset of row i in elements.
  std::int64_t offset(std::int64_t i) const;

 private:
  Dims shape_, strides_;
  std::int64_t count_ = 1;
};

// Strides of `t` when broadcast to `shape` (0 on repeated axes); t must broadcast to it.
TensorView broadcast_view(const TensorView& t, const Dims& shape);

bool is_one_of(DType dtype, std::initializer_list<DType> allowed);
// "f32, bf16" of the tensors present among the given inputs; for the text of limits.
std::string dtypes_of(const Args& args, std::initializer_list<int> inputs);

float sigmoid(float x);
float gelu_erf(float x);
float gelu_tanh(float x);

}  // namespace tk::ops

// Rows of integers: quantised with one scale, packed int4, scales that are packed into int64.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "graph/op.h"

namespace tk::ops {

// Rounded to nearest even, and kept in range; NaN is 0.
inline std::int8_t round_int8(float x) {
  if (std::isnan(x)) return 0;
  const float r = std::nearbyint(x);
  return static_cast<std::int8_t>(r < -128.0F ? -128.0F : r > 127.0F ? 127.0F : r);
}

// Dynamic quantisation: the scale max|row| / 127, and round(row / scale); zeros stay zeros.
float quantise_row(const std::vector<float>& row, std::int8_t* out);

// Row `to` of dst = row `from` of src, bit for bit; both of rank 2 and one dtype.
void copy_row(const TensorView& dst, std::int64_t to, const TensorView& src, std::int64_t from);

// A matrix of integers: int8, or int4 eight to an int32, the lowest bits first, along the last
// axis.
std::vector<std::int32_t> int_matrix(const TensorView& t);
// Columns of that matrix: eight for each int32.
std::int64_t int_columns(const TensorView& t);
Sym int_columns(const Type& t);

// One number of a tensor of scales or offsets: a float, an int32, or an int64 of
// npu_trans_quant_param, whose low 32 bits are those of an f32.
float scale_at(const TensorView& t, std::int64_t i);
// The offset in bits 37 to 45 of such an int64, two's complement; 0 of a float.
int packed_offset(const TensorView& t, std::int64_t i);
bool is_scale(DType dtype);  // f32, bf16, f16, i64

}  // namespace tk::ops

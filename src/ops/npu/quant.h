// Quantised results of torch_npu's operators: which type a dst_type stands for, rounding and
// packing, scales of rows, groups of rows.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace tk::ops {

// A type that results are quantised to. `code` is torch's ScalarType, or what torch_npu adds to it
// for types that torch lacks: that is what the library's int arguments carry.
struct QuantType {
  std::int64_t code;
  std::string_view name;  // "int8"
  DType dtype;            // of the result's elements
  int packed;             // values in one element, the first in the lowest bits
  double low, high;
};
inline constexpr QuantType int4_in_int8{16, "quint4x2", DType::i8, 2, -8, 7};

// The type of an attribute (None is int8) among the allowed names; refused otherwise (TK0312).
const QuantType& quant_type(const Args& args, std::string_view attr,
                            std::initializer_list<std::string_view> allowed);
const QuantType& quant_type(const EvalArgs& args, std::string_view attr);  // as infer took it
// x's shape with the last axis packed. Refused where that is not possible.
Type quantised(const Args& args, const Type& x, const QuantType& type);
Type without_last(const Type& x, DType dtype);  // f32 [..] of x [.., H]: a scale for each row

// Row `row` of a contiguous result of rows of n values: rounded half to even, saturated, packed.
// NaN becomes 0.
void write_quantised(const TensorView& out, std::int64_t row, const float* values, std::int64_t n,
                     const QuantType& type);

// scale = max |v| / high, v becomes v / scale; rows of zeros stay zeros, with scale 0.
float scale_symmetric(std::vector<float>* row, double high);

// The group of each row, -1 for rows past the last group. The index holds the groups' ends, or with
// `counts` their sizes. Throws TK0505 when they go down or past the rows.
std::vector<int> groups_of_rows(const EvalArgs& args, int input, std::int64_t rows, bool counts);

std::int64_t rows_of(const TensorView& t);  // of its last axis

}  // namespace tk::ops

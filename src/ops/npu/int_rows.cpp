#include "ops/npu/int_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/npu/rows.h"

namespace tk::ops {

float quantise_row(const std::vector<float>& row, std::int8_t* out) {
  float top = 0;
  for (float x : row) top = std::max(top, std::abs(x));
  const float scale = top / 127.0F;
  for (std::size_t i = 0; i < row.size(); ++i) out[i] = scale == 0 ? 0 : round_int8(row[i] / scale);
  return scale;
}

void copy_row(const TensorView& dst, std::int64_t to, const TensorView& src, std::int64_t from) {
  TK_CHECK(dst.dtype == src.dtype && dst.shape[1] == src.shape[1]);
  const std::size_t size = size_of(src.dtype);
  const auto address = [&](const TensorView& t, std::int64_t row) {
    return t.as<char>() + row * t.strides[0] * static_cast<std::int64_t>(size);
  };
  char* d = address(dst, to);
  const char* s = address(src, from);
  const std::int64_t n = src.shape[1];
  if (src.strides[1] == 1 && dst.strides[1] == 1) {
    std::memcpy(d, s, static_cast<std::size_t>(n) * size);
    return;
  }
  const auto bytes = static_cast<std::int64_t>(size);
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(d + i * dst.strides[1] * bytes, s + i * src.strides[1] * bytes, size);
}

std::vector<std::int32_t> int_matrix(const TensorView& t) {
  const Tensor c = contiguous(t);
  std::vector<std::int32_t> out;
  if (t.dtype == DType::i8) {
    const auto* p = c.as<std::int8_t>();
    out.assign(p, p + c.numel());
    return out;
  }
  TK_CHECK(t.dtype == DType::i32, "integers in ", name_of(t.dtype));
  out.reserve(static_cast<std::size_t>(c.numel()) * 8);
  for (std::int64_t i = 0; i < c.numel(); ++i) {
    const auto word = static_cast<std::uint32_t>(c.as<std::int32_t>()[i]);
    for (int k = 0; k < 8; ++k) {
      const auto nibble = static_cast<std::int32_t>(word >> (4 * k) & 15U);
      out.push_back(nibble < 8 ? nibble : nibble - 16);
    }
  }
  return out;
}

std::int64_t int_columns(const TensorView& t) {
  return t.shape.back() * (t.dtype == DType::i32 ? 8 : 1);
}

Sym int_columns(const Type& t) { return t.dim(-1) * Sym(t.dtype == DType::i32 ? 8 : 1); }

float scale_at(const TensorView& t, std::int64_t i) {
  std::int64_t offset = 0;
  for (int axis = t.rank() - 1; axis >= 0; --axis) {
    offset += i % t.shape[axis] * t.strides[axis];
    i /= t.shape[axis];
  }
  if (t.dtype == DType::i64)
    return std::bit_cast<float>(static_cast<std::uint32_t>(t.as<std::int64_t>()[offset]));
  if (t.dtype == DType::i32) return static_cast<float>(t.as<std::int32_t>()[offset]);
  float x = 0;
  read_row(t, offset, 1, 1, &x);
  return x;
}

int packed_offset(const TensorView& t, std::int64_t i) {
  if (t.dtype != DType::i64) return 0;
  const Tensor c = contiguous(t);
  const auto bits =
      static_cast<int>(static_cast<std::uint64_t>(c.as<std::int64_t>()[i]) >> 37 & 0x1ffU);
  return bits < 256 ? bits : bits - 512;
}

bool is_scale(DType dtype) {
  return is_one_of(dtype, {DType::f32, DType::bf16, DType::f16, DType::i64});
}

}  // namespace tk::ops

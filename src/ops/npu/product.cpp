#include "ops/npu/product.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/gemm.h"
#include "ops/npu/int_rows.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

TensorView view_of(const Matrix& m) {
  TensorView t;
  t.data = const_cast<float*>(m.v.data());
  t.shape = {m.rows, m.columns};
  t.strides = {m.columns, 1};
  return t;
}

char* at(const TensorView& t, std::int64_t elements) {
  return t.as<char>() + elements * static_cast<std::int64_t>(size_of(t.dtype));
}

// Number j of scales that are one for all or one a column.
float of_column(const TensorView& t, std::int64_t j) { return scale_at(t, t.numel() == 1 ? 0 : j); }

}  // namespace

Matrix widened(const TensorView& t) {
  TK_CHECK(t.rank() == 2);
  Matrix m{t.shape[0], is_float(t.dtype) ? t.shape[1] : int_columns(t), {}};
  if (!is_float(t.dtype)) {
    const std::vector<std::int32_t> v = int_matrix(t);
    m.v.assign(v.begin(), v.end());
    return m;
  }
  m.v.resize(static_cast<std::size_t>(t.numel()));
  for (std::int64_t i = 0; i < m.rows; ++i)
    read_row(t, i * t.strides[0], t.strides[1], m.columns, m.row(i));
  return m;
}

Matrix dequantised(const TensorView& weight, const TensorView& scale, const TensorView& offset,
                   std::int64_t group) {
  Matrix m = widened(weight);
  for (std::int64_t i = 0; i < m.rows; ++i)
    for (std::int64_t j = 0; j < m.columns; ++j) {
      const std::int64_t at = group > 0 ? i / group * m.columns + j : scale.numel() == 1 ? 0 : j;
      const float o = offset.data == nullptr ? 0 : scale_at(offset, offset.numel() == 1 ? 0 : at);
      m.row(i)[j] = (m.row(i)[j] + o) * scale_at(scale, at);
    }
  return m;
}

Matrix product(const Matrix& a, const Matrix& b) {
  TK_CHECK(a.columns == b.rows);
  Matrix out{a.rows, b.columns, {}};
  out.v.resize(static_cast<std::size_t>(out.rows * out.columns));
  if (!out.v.empty()) gemm(view_of(a), view_of(b), view_of(out));
  return out;
}

IntMatrix integers(const TensorView& t) {
  TK_CHECK(t.rank() == 2);
  return {t.shape[0], int_columns(t), int_matrix(t)};
}

IntMatrix product(const IntMatrix& a, const IntMatrix& b) {
  TK_CHECK(a.columns == b.rows);
  IntMatrix out{a.rows, b.columns, {}};
  out.v.resize(static_cast<std::size_t>(out.rows * out.columns));
  const std::int64_t k = a.columns;
  const std::int64_t n = b.columns;
  parallel(a.rows, a.rows * k * n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::int32_t* to = out.v.data() + i * n;
      for (std::int64_t q = 0; q < k; ++q) {
        const std::int32_t x = a.v[static_cast<std::size_t>(i * k + q)];
        const std::int32_t* line = b.v.data() + q * n;
        for (std::int64_t j = 0; j < n; ++j) to[j] += x * line[j];
      }
    }
  });
  return out;
}

TensorView matrix_of(const TensorView& t, std::int64_t i) {
  if (t.rank() == 2) return t;
  TK_CHECK(t.rank() == 3);
  TensorView m = t;
  m.data = at(t, i * t.strides[0]);
  m.shape = {t.shape[1], t.shape[2]};
  m.strides = {t.strides[1], t.strides[2]};
  return m;
}

TensorView rows_of(const TensorView& t, std::int64_t begin, std::int64_t end) {
  TensorView m = t;
  m.data = at(t, begin * t.strides[0]);
  m.shape[0] = end - begin;
  return m;
}

Tensor as_rows(const TensorView& t) {
  Tensor c = contiguous(t);
  const std::int64_t n = t.shape.back();
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < t.rank(); ++i) rows *= t.shape[i];
  c.shape = {rows, n};
  c.strides = {n, 1};
  return c;
}

TensorView part_of(const TensorView& t, std::int64_t i, std::int64_t count) {
  if (t.data == nullptr || t.rank() < 2 || t.shape[0] != count) return t;
  TensorView p = t;
  p.data = at(t, i * t.strides[0]);
  p.shape.erase(0);
  p.strides.erase(0);
  return p;
}

Matrix Epilogue::apply(const IntMatrix& sums, std::int64_t first_row) const {
  Matrix y{sums.rows, sums.columns, {}};
  y.v.resize(sums.v.size());
  for (std::int64_t j = 0; j < y.columns; ++j) {
    const float s = scale.data == nullptr ? 1.0F : of_column(scale, j);
    const bool int_bias = bias.data != nullptr && bias.dtype == DType::i32;
    const auto b = int_bias ? static_cast<std::int32_t>(element(bias, j)) : 0;
    float after = bias.data != nullptr && !int_bias ? of_column(bias, j) : 0.0F;
    if (offset.data != nullptr) after += of_column(offset, j);
    if (scale.data != nullptr)
      after += static_cast<float>(packed_offset(scale, scale.numel() == 1 ? 0 : j));
    for (std::int64_t i = 0; i < y.rows; ++i) {
      const auto at = static_cast<std::size_t>(i * y.columns + j);
      float v = static_cast<float>(sums.v[at] + b) * s;
      if (per_token.data != nullptr) v *= scale_at(per_token, first_row + i);
      y.v[at] = v + after;
    }
  }
  return y;
}

void store_rows(const TensorView& out, std::int64_t at, const Matrix& y) {
  const std::int64_t n = y.columns;
  for (std::int64_t i = 0; i < y.rows; ++i) {
    if (out.dtype != DType::i8) {
      write_row(out, (at + i) * out.strides[0], out.strides[1], n, y.row(i));
      continue;
    }
    auto* to = out.as<std::int8_t>() + (at + i) * out.strides[0];
    for (std::int64_t j = 0; j < n; ++j) to[j * out.strides[1]] = round_int8(y.row(i)[j]);
  }
}

void store_rows(const TensorView& out, std::int64_t at, const IntMatrix& y) {
  TK_CHECK(out.dtype == DType::i32);
  for (std::int64_t i = 0; i < y.rows; ++i)
    for (std::int64_t j = 0; j < y.columns; ++j)
      out.as<std::int32_t>()[(at + i) * out.strides[0] + j * out.strides[1]] =
          y.v[static_cast<std::size_t>(i * y.columns + j)];
}

std::vector<RowGroup> row_groups(const EvalArgs& a, const TensorView& list, std::int64_t type,
                                 std::int64_t rows, std::int64_t weights) {
  std::vector<RowGroup> groups;
  std::int64_t begin = 0;
  const std::int64_t n = type == 2 ? list.shape[0] : list.numel();
  for (std::int64_t i = 0; i < n; ++i) {
    const auto v = static_cast<std::int64_t>(element(list, type == 2 ? 2 * i + 1 : i));
    std::int64_t weight = i;
    if (type == 2 && v != 0)
      weight = checked_index(a, static_cast<std::int64_t>(element(list, 2 * i)), weights, false);
    const std::int64_t end = type == 0 ? v : begin + v;
    if (end < begin || end > rows) bad_index(a, v, rows + 1, "group_list");
    if (end > begin) groups.push_back({weight, begin, end});
    begin = end;
  }
  return groups;
}

}  // namespace tk::ops

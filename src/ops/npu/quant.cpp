#include "ops/npu/quant.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/infer.h"

namespace tk::ops {
namespace {

constexpr QuantType types[] = {
    {1, "int8", DType::i8, 1, -128, 127},
    {12, "qint8", DType::i8, 1, -128, 127},
    {0, "uint8", DType::u8, 1, 0, 255},
    {13, "quint8", DType::u8, 1, 0, 255},
    {3, "int32", DType::i32, 1, -2147483648.0, 2147483647.0},
    {14, "qint32", DType::i32, 1, -2147483648.0, 2147483647.0},
    {16, "quint4x2", DType::i32, 8, -8, 7},
    {285, "int4", DType::i32, 8, -8, 7},
};

const QuantType* find(std::int64_t code) {
  const auto* it =
      std::find_if(std::begin(types), std::end(types), [&](auto& t) { return t.code == code; });
  return it == std::end(types) ? nullptr : it;
}

std::int64_t stored(float value, const QuantType& type) {
  if (std::isnan(value)) return 0;
  return static_cast<std::int64_t>(
      std::clamp(std::nearbyint(static_cast<double>(value)), type.low, type.high));
}

}  // namespace

const QuantType& quant_type(const Args& args, std::string_view attr,
                            std::initializer_list<std::string_view> allowed) {
  const std::int64_t code = args.has_attr(attr) ? args.i64(attr) : 1;
  const QuantType* type = find(code);
  if (type != nullptr && std::find(allowed.begin(), allowed.end(), type->name) != allowed.end())
    return *type;
  std::string names;
  for (const std::string_view name : allowed) names += cat(names.empty() ? "" : ", ", name);
  args.fail(cat("needs ", attr, " of ", names, "; got ",
                type == nullptr ? cat("the type number ", code) : std::string(type->name)));
}

const QuantType& quant_type(const EvalArgs& args, std::string_view attr) {
  const QuantType* type = find(args.has_attr(attr) ? args.i64(attr) : 1);
  TK_CHECK(type != nullptr, attr);
  return *type;
}

Type quantised(const Args& args, const Type& x, const QuantType& type) {
  Type t{type.dtype, x.shape};
  if (type.packed == 1) return t;
  const auto last = exact_div(x.dim(-1), type.packed);
  if (!last)
    args.fail(cat("packs ", type.packed, " values into one: needs a last axis of a multiple of ",
                  type.packed, ", got ", x.str()));
  t.shape.back() = *last;
  return t;
}

Type without_last(const Type& x, DType dtype) {
  return {dtype, SymDims(x.shape.begin(), x.shape.end() - 1)};
}

void write_quantised(const TensorView& out, std::int64_t row, const float* values, std::int64_t n,
                     const QuantType& type) {
  const int bits = type.packed == 1 ? 0 : 4;
  for (std::int64_t i = 0; i < n; i += type.packed) {
    std::int64_t v = stored(values[i], type);
    if (type.packed > 1) {
      std::uint32_t word = 0;
      for (int j = 0; j < type.packed; ++j)
        word |= (static_cast<std::uint32_t>(stored(values[i + j], type)) & 0xFU) << (bits * j);
      v = static_cast<std::int32_t>(word);
    }
    const std::int64_t at = (row * n + i) / type.packed;
    if (type.dtype == DType::i32) {
      out.as<std::int32_t>()[at] = static_cast<std::int32_t>(v);
    } else {
      out.as<std::uint8_t>()[at] = static_cast<std::uint8_t>(v);
    }
  }
}

float scale_symmetric(std::vector<float>* row, double high) {
  float top = 0;
  for (const float v : *row) top = std::max(top, std::fabs(v));
  const float scale = top / static_cast<float>(high);
  if (scale > 0)
    for (float& v : *row) v /= scale;
  return scale;
}

std::vector<int> groups_of_rows(const EvalArgs& args, int input, std::int64_t rows, bool counts) {
  const Tensor index = to_dtype(args.in(input), DType::i64);
  std::vector<int> groups(static_cast<std::size_t>(rows), -1);
  std::int64_t begin = 0;
  for (std::int64_t g = 0; g < index.numel(); ++g) {
    const std::int64_t v = index.as<std::int64_t>()[g];
    const std::int64_t end = counts ? begin + v : v;
    if (end < begin || end > rows || v < 0)
      throw UserError("TK0505", cat(args.op().name, ": group ", g, " is rows ", begin, " to ", end,
                                    " of ", rows))
          .note(counts ? "its groups are given by their sizes"
                       : "its groups are given by their ends");
    std::fill(groups.begin() + begin, groups.begin() + end, static_cast<int>(g));
    begin = end;
  }
  return groups;
}

std::int64_t rows_of(const TensorView& t) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < t.rank(); ++i) rows *= t.shape[i];
  return rows;
}

}  // namespace tk::ops

// Quantisation of torch_npu 2.14: scales of rows found or given. Arithmetic in f32.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/quant.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

Cost quant_cost(const Args& args, const Load&) { return moved(args, 6); }

// ---- dynamic_quant

// Inputs: x, smooth_scales [H] or [G, H], group_index [G].
const QuantType& dynamic_type(const Args& args) {
  const Type& x = args.in(0);
  if (x.rank() < 2 || !is_float(x.dtype))
    args.fail(cat("needs a floating-point tensor of 2 or more axes, got ", x.str()));
  if (args.text("quant_mode") != "pertoken")
    args.fail(cat("is known here with quant_mode pertoken, got '", args.text("quant_mode"), "'"));
  if (args.f64("dst_type_max") != 0) args.fail("is known here with dst_type_max 0");
  if (args.has(2)) {
    if (!args.has(1)) args.fail("needs smooth_scales where there is a group_index");
    need_rank(args, 2, 1, 1);
    need_integral(args, 2);
  }
  const SymDims shape = args.has(2) ? SymDims{args.in(2).dim(0), x.dim(-1)} : SymDims{x.dim(-1)};
  if (args.has(1) && args.in(1).shape != shape)
    args.fail(cat("needs smooth_scales ", str(shape), ", got ", args.in(1).str()));
  return quant_type(args, "dst_type", {"int8", "quint4x2", "int4"});
}

std::vector<Type> dynamic_infer(const Args& args) {
  const QuantType& type = dynamic_type(args);
  const Type& x = args.in(0);
  return {quantised(args, x, type), without_last(x, DType::f32)};
}

std::vector<Type> asymmetric_infer(const Args& args) {
  std::vector<Type> types = dynamic_infer(args);
  types.push_back(types[1]);
  return types;
}

// Calls f(i, row) for each row, smoothed.
template <typename F>
void smoothed_rows(const EvalArgs& a, F f) {
  const Tensor x = to_dtype(a.in(0), DType::f32);
  const std::int64_t h = x.shape.back();
  const std::int64_t rows = rows_of(x);
  const Tensor smooth = a.has(1) ? to_dtype(a.in(1), DType::f32) : Tensor();
  const std::vector<int> groups = a.has(2) ? groups_of_rows(a, 2, rows, false)
                                           : std::vector<int>(static_cast<std::size_t>(rows), 0);
  for (std::int64_t i = 0; i < rows; ++i) {
    std::vector<float> row(x.as<float>() + i * h, x.as<float>() + (i + 1) * h);
    const int g = groups[static_cast<std::size_t>(i)];
    if (smooth.data != nullptr && g >= 0)
      for (std::size_t k = 0; k < row.size(); ++k)
        row[k] *= smooth.as<float>()[static_cast<std::size_t>(g) * row.size() + k];
    f(i, row);
  }
}

void dynamic_eval(const EvalArgs& a) {
  const QuantType& type = quant_type(a, "dst_type");
  smoothed_rows(a, [&](std::int64_t i, std::vector<float>& row) {
    a.out(1).as<float>()[i] = scale_symmetric(&row, type.high);
    write_quantised(a.out(0), i, row.data(), static_cast<std::int64_t>(row.size()), type);
  });
}

void asymmetric_eval(const EvalArgs& a) {
  const QuantType& type = quant_type(a, "dst_type");
  const auto high = static_cast<float>(type.high);
  const auto span = static_cast<float>(type.high - type.low);
  smoothed_rows(a, [&](std::int64_t i, std::vector<float>& row) {
    const auto [low, top] = std::minmax_element(row.begin(), row.end());
    const float scale = row.empty() ? 0.0F : (*top - *low) / span;
    const float offset = scale > 0 ? high - *top / scale : 0.0F;
    for (float& v : row) v = scale > 0 ? v / scale + offset : 0.0F;
    a.out(1).as<float>()[i] = scale;
    a.out(2).as<float>()[i] = offset;
    write_quantised(a.out(0), i, row.data(), static_cast<std::int64_t>(row.size()), type);
  });
}

constexpr Symbol dynamic_quant_symbols[] = {
    {"rows", "prod(input.shape[:-1])", "rows of the last axis"},
    {"int4", "dst_type in (16, 285)", "int4 is asked for (quint4x2)"},
};
constexpr Limit dynamic_quant_limits[] = {
    {"dynamic_quant.int4", "not int4 or input.shape[-1] % 8 == 0"},
    {"dynamic_quant.group",
     "group_index is None or (increasing(group_index) and group_index[-1] == rows)"},
    {"dynamic_quant.dtype",
     "input.dtype in (fp16, bf16) and (smooth_scales is None or smooth_scales.dtype in (fp16, "
     "bf16))"},
    {"dynamic_quant.index", "group_index is None or group_index.dtype == int32"},
    {"dynamic_quant.dst", "dst_type in (None, 1, 16, 285)"},
    {"dynamic_quant.rank", "input.ndim >= 2"},
};
constexpr std::string_view dynamic_quant_notes[] = {
    "smooth_scales is [H], or [groups, H] with a group_index of rows where groups end",
};
constexpr NpuFacts dynamic_quant_facts{
    .group = "quant",
    .signature =
        "npu_dynamic_quant(Tensor input, *, Tensor? smooth_scales=None, Tensor? group_index=None, "
        "int? dst_type=None, str quant_mode=\"pertoken\", float dst_type_max=0.0) -> (Tensor, "
        "Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .notes = dynamic_quant_notes,
    .symbols = dynamic_quant_symbols,
    .limits = dynamic_quant_limits,
};

constexpr Limit dynamic_quant_asymmetric_limits[] = {
    {"dynamic_quant_asymmetric.int4", "not int4 or input.shape[-1] % 8 == 0"},
    {"dynamic_quant_asymmetric.group",
     "group_index is None or (increasing(group_index) and min(group_index) >= 1 and "
     "group_index[-1] == rows)"},
    {"dynamic_quant_asymmetric.experts",
     "group_index is None or 1 <= group_index.shape[0] <= 1024"},
    {"dynamic_quant_asymmetric.dtype",
     "input.dtype in (fp16, bf16) and (graph or smooth_scales is None or smooth_scales.dtype == "
     "input.dtype)"},
    {"dynamic_quant_asymmetric.mode", "quant_mode == \"pertoken\""},
    {"dynamic_quant_asymmetric.rank", "input.ndim >= 2"},
};
constexpr NpuFacts dynamic_quant_asymmetric_facts{
    .group = "quant",
    .signature =
        "npu_dynamic_quant_asymmetric(Tensor input, *, Tensor? smooth_scales=None, Tensor? "
        "group_index=None, int? dst_type=None, str quant_mode=\"pertoken\", float "
        "dst_type_max=0.0) -> (Tensor, Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .symbols = dynamic_quant_symbols,
    .limits = dynamic_quant_asymmetric_limits,
};

// ---- blocks of a row

constexpr std::int64_t block_columns = 128;

std::vector<Type> block_infer(const Args& args) {
  const Type& x = args.in(0);
  if (x.rank() < 1 || !is_float(x.dtype))
    args.fail(cat("needs floating-point rows, got ", x.str()));
  if (args.i64("row_block_size") != 1 || args.i64("col_block_size") != block_columns ||
      args.text("round_mode") != "rint" || args.f64("dst_type_max") != 0)
    args.fail("is known here with blocks of 1 x 128, round_mode rint and dst_type_max 0");
  const QuantType& type = quant_type(args, "dst_type", {"int8"});
  Type scale{DType::f32, x.shape};
  scale.shape.back() = floordiv(x.dim(-1) + Sym(block_columns - 1), Sym(block_columns));
  return {quantised(args, x, type), scale};
}

void block_eval(const EvalArgs& a) {
  const QuantType& type = quant_type(a, "dst_type");
  const Tensor x = to_dtype(a.in(0), DType::f32);
  const std::int64_t h = x.shape.back();
  const auto least = static_cast<float>(a.f64("min_scale"));
  std::int64_t block = 0;
  for (std::int64_t i = 0; i < rows_of(x); ++i) {
    std::vector<float> row(x.as<float>() + i * h, x.as<float>() + (i + 1) * h);
    for (std::int64_t from = 0; from < h; from += block_columns, ++block) {
      const std::int64_t to = std::min(h, from + block_columns);
      float top = 0;
      for (std::int64_t k = from; k < to; ++k)
        top = std::max(top, std::fabs(row[static_cast<std::size_t>(k)]));
      const float scale = std::max(top / static_cast<float>(type.high), least);
      if (scale > 0)
        for (std::int64_t k = from; k < to; ++k) row[static_cast<std::size_t>(k)] /= scale;
      a.out(1).as<float>()[block] = scale;
    }
    write_quantised(a.out(0), i, row.data(), h, type);
  }
}

constexpr Limit block_limits[] = {
    {"dynamic_block_quant.blk", "row_block_size == 1 and col_block_size == 128"},
    {"dynamic_block_quant.dst", "dst_type == 1"},
    {"dynamic_block_quant.rank", "x.ndim in (2, 3)"},
    {"dynamic_block_quant.dtype", "x.dtype in (fp16, bf16)"},
    {"dynamic_block_quant.round", "round_mode == \"rint\" and min_scale >= 0"},
};
constexpr std::string_view block_notes[] = {
    "the document's formula for scale is its inverse; what is returned multiplies y back",
};
constexpr NpuFacts block_facts{
    .group = "quant",
    .signature =
        "npu_dynamic_block_quant(Tensor x, *, float min_scale=0.0, str round_mode=\"rint\", int "
        "dst_type=1, int row_block_size=1, int col_block_size=128, float dst_type_max=0.0) -> "
        "(Tensor y, Tensor scale)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = block_notes,
    .limits = block_limits,
};

// ---- scales given

// A parameter [n] along `axis`, [1], or of x's rank with 1 elsewhere, as broadcast to x.
bool fits_axis(const Type& x, const Type& p, int axis) {
  if (p.rank() == 0 || (p.rank() == 1 && p.dim(0).is(1))) return true;
  if (p.rank() == 1) return p.dim(0) == x.dim(axis);
  if (p.rank() != x.rank()) return false;
  for (int i = 0; i < p.rank(); ++i)
    if (!p.dim(i).is(1) && !(i == axis && p.dim(i) == x.dim(i))) return false;
  return true;
}

// Without div_mode every axis but -2 is the last.
int quantize_axis(std::int64_t axis, bool divide, int rank) {
  if (!divide) axis = axis == -2 ? -2 : -1;
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<Type> quantize_infer(const Args& args) {
  const Type& x = args.in(0);
  const bool divide = args.flag("div_mode");
  const int axis = quantize_axis(args.i64("axis"), divide, x.rank());
  if (!is_float(x.dtype) || axis < 0 || axis >= x.rank())
    args.fail(cat("needs a floating-point tensor with axis ", args.i64("axis"), ", got ", x.str()));
  for (const int i : {1, 2})
    if (args.has(i) && !fits_axis(x, args.in(i), axis))
      args.fail(cat("needs scales and zero_points along axis ", axis, " of ", x.str(), ", got ",
                    args.in(i).str()));
  const QuantType& type =
      divide ? quant_type(args, "dtype", {"qint8", "int8", "quint8", "uint8", "qint32", "int32"})
             : quant_type(args, "dtype", {"qint8", "int8", "quint4x2", "int4"});
  return {quantised(args, x, type)};
}

void quantize_eval(const EvalArgs& a) {
  const QuantType& type = quant_type(a, "dtype");
  const bool divide = a.flag("div_mode");
  const Tensor x = to_dtype(a.in(0), DType::f32);
  const int axis = quantize_axis(a.i64("axis"), divide, x.rank());
  const auto parameter = [&](int i) {
    Tensor p = a.has(i) ? to_dtype(a.in(i), DType::f32) : Tensor::zeros(DType::f32, {1});
    Dims shape;
    for (int k = 0; k < x.rank(); ++k) shape.push_back(k == axis ? p.numel() : 1);
    p.shape = shape;
    p.strides = contiguous_strides(shape);
    return to_dtype(broadcast_view(p, x.shape), DType::f32);
  };
  const Tensor scales = parameter(1);
  const Tensor zeros = parameter(2);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    float& v = x.as<float>()[i];
    const float s = scales.as<float>()[i];
    v = (divide ? v / s : v * s) + zeros.as<float>()[i];
  }
  const std::int64_t h = x.shape.back();
  for (std::int64_t i = 0; i < rows_of(x); ++i)
    write_quantised(a.out(), i, x.as<float>() + i * h, h, type);
}

constexpr Limit quantize_limits[] = {
    {"quantize.dtype", "input.dtype in (fp32, fp16, bf16)"},
    {"quantize.dst", "dtype in (12, 13, 14, 1, 0, 3) if div_mode else dtype in (12, 1, 16, 285)",
     "qint8, quint8, int32; without div_mode qint8 and quint4x2"},
    {"quantize.int4", "dtype not in (16, 285) or input.shape[-1] % 8 == 0"},
    {"quantize.scales",
     "scales.dtype in (fp32, bf16) if div_mode else scales.dtype == input.dtype"},
    {"quantize.zeros",
     "zero_points is None or (zero_points.dtype in (int8, uint8, int32, bf16) if div_mode else "
     "zero_points.dtype == scales.dtype and zero_points.shape == scales.shape)"},
};
constexpr std::string_view quantize_notes[] = {
    "div_mode divides by scales; without it they are factors, and an axis other than -2 is the "
    "last",
};
constexpr NpuFacts quantize_facts{
    .group = "quant",
    .signature =
        "npu_quantize(Tensor input, Tensor scales, Tensor? zero_points, int dtype, int axis=1, "
        "bool div_mode=True) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "not named",
    .graph_mode = "stated; shape function; GE converter",
    .notes = quantize_notes,
    .limits = quantize_limits,
};

std::vector<Type> group_infer(const Args& args) {
  const Type& x = args.in(0);
  const Type& scale = args.in(1);
  const Type& index = args.in(2);
  if (x.rank() != 2 || scale.rank() != 2 || index.rank() != 1 || !(scale.dim(1) == x.dim(1)) ||
      !(index.dim(0) == scale.dim(0)) || !is_float(x.dtype) || !is_float(scale.dtype) ||
      !is_integral(index.dtype))
    args.fail(cat("needs x [S, H], scale [E, H] and group_index [E], got ", x.str(), ", ",
                  scale.str(), " and ", index.str()));
  if (args.has(3) && !args.in(3).numel().is(1))
    args.fail(cat("needs an offset of one element, got ", args.in(3).str()));
  return {quantised(args, x, quant_type(args, "dst_dtype", {"int8", "quint4x2", "int4"}))};
}

void group_eval(const EvalArgs& a) {
  const QuantType& type = quant_type(a, "dst_dtype");
  const Tensor x = to_dtype(a.in(0), DType::f32);
  const Tensor scale = to_dtype(a.in(1), DType::f32);
  const float offset = a.has(3) ? to_dtype(a.in(3), DType::f32).as<float>()[0] : 0.0F;
  const std::int64_t h = x.shape[1];
  const std::vector<int> groups = groups_of_rows(a, 2, x.shape[0], false);
  std::vector<float> row(static_cast<std::size_t>(h));
  for (std::int64_t i = 0; i < x.shape[0]; ++i) {
    const int g = groups[static_cast<std::size_t>(i)];
    for (std::int64_t k = 0; k < h; ++k)
      row[static_cast<std::size_t>(k)] =
          g < 0 ? 0.0F : x.as<float>()[i * h + k] * scale.as<float>()[g * h + k] + offset;
    write_quantised(a.out(), i, row.data(), h, type);
  }
}

constexpr NpuFacts group_facts{
    .group = "quant",
    .signature =
        "npu_group_quant(Tensor x, Tensor scale, Tensor group_index, *, Tensor? offset=None, "
        "ScalarType? dst_dtype=None) -> Tensor",
    .source = "library schema",
    .a2 = "unknown",
    .a3 = "unknown",
    .graph_mode = "no document; shape function; GE converter",
};

}  // namespace

const OpDef npu_dynamic_quant{
    .name = "npu.npu_dynamic_quant",
    .schema =
        "(Tensor input, Tensor? smooth_scales=None, Tensor? group_index=None, int? dst_type=None, "
        "str quant_mode=\"pertoken\", float dst_type_max=0.0) -> (Tensor y, Tensor scale)",
    .doc =
        "v = input * smooth_scales (of the row's group); scale = max |v| of the row / 127, "
        "y = round(v / scale), int8. quint4x2: / 7, eight int4 in an i32.",
    .infer = dynamic_infer,
    .eval = dynamic_eval,
    .cost = quant_cost,
    .npu = &dynamic_quant_facts,
};

const OpDef npu_dynamic_quant_asymmetric{
    .name = "npu.npu_dynamic_quant_asymmetric",
    .schema =
        "(Tensor input, Tensor? smooth_scales=None, Tensor? group_index=None, int? dst_type=None, "
        "str quant_mode=\"pertoken\", float dst_type_max=0.0) -> "
        "(Tensor y, Tensor scale, Tensor offset)",
    .doc =
        "As npu_dynamic_quant with scale = (max - min) / 255 and offset = 127 - max / scale; "
        "y = round(v / scale + offset). int4: 15 and 7.",
    .infer = asymmetric_infer,
    .eval = asymmetric_eval,
    .cost = quant_cost,
    .npu = &dynamic_quant_asymmetric_facts,
};

const OpDef npu_dynamic_block_quant{
    .name = "npu.npu_dynamic_block_quant",
    .schema =
        "(Tensor x, float min_scale=0.0, str round_mode=\"rint\", int dst_type=1, "
        "int row_block_size=1, int col_block_size=128, float dst_type_max=0.0) -> "
        "(Tensor y, Tensor scale)",
    .doc =
        "Blocks of 128 of each row: scale = max(max |x| / 127, min_scale), y = round(x / scale), "
        "int8.",
    .infer = block_infer,
    .eval = block_eval,
    .cost = quant_cost,
    .npu = &block_facts,
};

const OpDef npu_quantize{
    .name = "npu.npu_quantize",
    .schema =
        "(Tensor input, Tensor scales, Tensor? zero_points, int dtype, int axis=1, "
        "bool div_mode=True) -> Tensor",
    .doc =
        "round(input / scales + zero_points), saturated; without div_mode input * scales + "
        "zero_points. dtype is the library's number: qint8 12, quint8 13, int32 3, quint4x2 16.",
    .infer = quantize_infer,
    .eval = quantize_eval,
    .cost = quant_cost,
    .npu = &quantize_facts,
};

const OpDef npu_group_quant{
    .name = "npu.npu_group_quant",
    .schema =
        "(Tensor x, Tensor scale, Tensor group_index, Tensor? offset=None, int? dst_dtype=None) -> "
        "Tensor",
    .doc = "round(x * scale[g] + offset) of the rows of group g, which ends at group_index[g].",
    .infer = group_infer,
    .eval = group_eval,
    .cost = quant_cost,
    .npu = &group_facts,
};

}  // namespace tk::ops

// Gated activations of torch_npu 2.14 with quantised results. Arithmetic in f32, rounded once.
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

Cost glu_cost(const Args& args, const Load&) { return moved(args, 16); }

void need_mode(const Args& args, std::string_view name, std::int64_t top) {
  const std::int64_t v = args.i64(name);
  if (v < 0 || v > top) args.fail(cat("needs ", name, " from 0 to ", top, ", got ", v));
}

// ---- swiglu_quant

// A parameter [G, N] or [G] (one number a group); without groups also [N], or one number.
bool is_parameter(const Type& p, const Sym& n, const Sym* groups) {
  if (groups == nullptr)
    return p.numel().is(1) || p.shape == SymDims{n} || p.shape == SymDims{1, n};
  return p.shape == SymDims{*groups, n} || p.shape == SymDims{*groups};
}

float parameter(const Tensor& p, bool grouped, int group, std::int64_t k, float absent) {
  if (p.data == nullptr) return absent;
  if (p.numel() == 1) return p.as<float>()[0];
  if (!grouped) return p.as<float>()[k];
  return p.as<float>()[p.rank() == 1 ? group : group * p.shape[1] + k];
}

std::vector<Type> swiglu_infer(const Args& args) {
  const Type& x = args.in(0);
  if (x.rank() < 2 || !is_float(x.dtype))
    args.fail(cat("needs a floating-point tensor of 2 or more axes, got ", x.str()));
  const auto half = exact_div(x.dim(-1), 2);
  if (!half) args.fail(cat("needs an even last axis, got ", x.str()));
  need_mode(args, "quant_mode", 1);
  need_mode(args, "group_list_type", 1);
  if (args.has(3)) {
    need_rank(args, 3, 1, 1);
    need_integral(args, 3);
  }
  const Sym* groups = args.has(3) ? &args.in(3).dim(0) : nullptr;
  for (const int i : {1, 2})
    if (args.has(i) && !is_parameter(args.in(i), *half, groups))
      args.fail(cat("needs smooth_scales and offsets of [G, ", half->str(), "] or [G], got ",
                    args.in(i).str()));
  const std::int64_t quant = args.i64("quant_mode");
  if (quant == 0 && args.has(1) != args.has(2))
    args.fail("needs smooth_scales and offsets together when quantisation is static");
  Type y{x.dtype, x.shape};
  y.shape.back() = *half;
  const QuantType& type = quant_type(args, "dst_type", {"int8", "quint4x2"});
  return {quantised(args, y, type.name == "int8" ? type : int4_in_int8),
          without_last(x, DType::f32)};
}

void swiglu_eval(const EvalArgs& a) {
  const bool left = a.flag("activate_left");
  const bool dynamic = a.i64("quant_mode") == 1;
  const bool grouped = a.has(3);
  const QuantType& asked = quant_type(a, "dst_type");
  const QuantType& type = asked.name == "int8" ? asked : int4_in_int8;
  const Tensor x = to_dtype(a.in(0), DType::f32);
  const Tensor smooth = a.has(1) ? to_dtype(a.in(1), DType::f32) : Tensor();
  const Tensor offsets = a.has(2) ? to_dtype(a.in(2), DType::f32) : Tensor();
  const std::int64_t rows = rows_of(x);
  const std::int64_t n = x.shape.back() / 2;
  const std::vector<int> groups = a.has(3)
                                      ? groups_of_rows(a, 3, rows, a.i64("group_list_type") == 1)
                                      : std::vector<int>(static_cast<std::size_t>(rows), 0);
  std::vector<float> row(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < rows; ++i) {
    const int g = groups[static_cast<std::size_t>(i)];
    const float* first = x.as<float>() + i * 2 * n;
    for (std::int64_t k = 0; k < n; ++k) {
      const float gate = first[left ? k : n + k];
      const float up = first[left ? n + k : k];
      float y = gate * sigmoid(gate) * up;
      if (g >= 0) y *= parameter(smooth, grouped, g, k, 1.0F);
      if (g >= 0 && !dynamic) y += parameter(offsets, grouped, g, k, 0.0F);
      row[static_cast<std::size_t>(k)] = y;
    }
    float scale = 0;
    if (dynamic) {
      const float found = scale_symmetric(&row, type.high);
      scale = found > 0 ? 1.0F / found : 0.0F;
    }
    a.out(1).as<float>()[i] = scale;
    write_quantised(a.out(0), i, row.data(), n, type);
  }
}

constexpr Limit swiglu_limits[] = {
    {"swiglu_quant.last", "x.shape[-1] % 2 == 0 and x.shape[-1] <= 8192"},
    {"swiglu_quant.int4", "dst_type != 16 or x.shape[-1] % 4 == 0"},
    {"swiglu_quant.dtype", "x.dtype in (fp16, bf16, fp32) and x.ndim > 1"},
    {"swiglu_quant.scales",
     "(smooth_scales is None or smooth_scales.dtype == fp32) and (offsets is None or "
     "offsets.dtype == fp32)"},
    {"swiglu_quant.group",
     "group_index is None or (group_index.dtype == int32 and nondecreasing(group_index))"},
};
constexpr std::string_view swiglu_notes[] = {
    "activate_left False makes the second half the gate",
    "the document says that scale is dynamic_quant's; the library's own test has its inverse, "
    "127 / max |y|, which is followed",
};
constexpr NpuFacts swiglu_facts{
    .group = "ffn",
    .signature =
        "npu_swiglu_quant(Tensor x, *, Tensor? smooth_scales=None, Tensor? offsets=None, Tensor? "
        "group_index=None, bool activate_left=False, int quant_mode=0, int group_list_type=0, "
        "ScalarType? dst_type=None) -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; no GE converter",
    .notes = swiglu_notes,
    .limits = swiglu_limits,
};

// ---- dequant_swiglu_quant

enum Input : std::uint8_t {
  x_in,
  weight_scale,
  activation_scale,
  bias,
  quant_scale,
  quant_offset,
  group_index
};

std::vector<Type> dequant_infer(const Args& args) {
  const Type& x = args.in(x_in);
  if (x.rank() < 2 || (!is_float(x.dtype) && x.dtype != DType::i32))
    args.fail(cat("needs i32 or floating-point rows, got ", x.str()));
  const auto half = exact_div(x.dim(-1), 2);
  if (!half) args.fail(cat("needs an even last axis, got ", x.str()));
  need_mode(args, "quant_mode", 1);
  need_mode(args, "swiglu_mode", 2);
  if (x.dtype == DType::i32 && !args.has(weight_scale))
    args.fail("needs weight_scale for an i32 x");
  if (args.has_attr("dst_type") && args.i64("dst_type") != 1 && args.i64("dst_type") != 2)
    args.fail("is known here with an int8 result");
  if (args.has_attr("activate_dim") && args.i64("activate_dim") != -1 &&
      args.i64("activate_dim") != x.rank() - 1)
    args.fail("is known here with the last axis as activate_dim");
  if (args.has_attr("round_mode") && args.i64("round_mode") != 0)
    args.fail("is known here with round_mode 0 (to even)");
  const Sym* groups = args.has(group_index) ? &args.in(group_index).dim(0) : nullptr;
  if (args.has(group_index)) {
    need_rank(args, group_index, 1, 1);
    need_integral(args, group_index);
  }
  Sym rows(1);
  for (int i = 0; i + 1 < x.rank(); ++i) rows = rows * x.dim(i);
  if (args.has(activation_scale) && !(args.in(activation_scale).numel() == rows))
    args.fail(cat("needs an activation_scale for each of ", rows.str(), " rows, got ",
                  args.in(activation_scale).str()));
  for (const Input i : {weight_scale, bias})
    if (args.has(i) && !is_parameter(args.in(i), x.dim(-1), groups))
      args.fail(
          cat("needs weight_scale and bias of [G, ", x.dim(-1).str(), "], got ", args.in(i).str()));
  for (const Input i : {quant_scale, quant_offset})
    if (args.has(i) && !is_parameter(args.in(i), *half, groups))
      args.fail(cat("needs quant_scale and quant_offset of [G, ", half->str(), "], got ",
                    args.in(i).str()));
  Type y{DType::i8, x.shape};
  y.shape.back() = *half;
  return {y, without_last(x, DType::f32)};
}

struct Glu {
  std::int64_t mode;
  bool left;
  float limit, alpha, bias;
};

float glu(const Glu& g, const std::vector<float>& v, std::size_t k) {
  const std::size_t n = v.size() / 2;
  float gate = g.mode == 1 ? v[2 * k] : v[g.left ? k : n + k];
  float up = g.mode == 1 ? v[2 * k + 1] : v[g.left ? n + k : k];
  if (g.mode == 0) return gate * sigmoid(gate) * up;
  gate = std::min(gate, g.limit);
  up = std::max(std::min(up, g.limit), -g.limit);
  return gate * sigmoid(g.alpha * gate) * (up + g.bias);
}

void dequant_eval(const EvalArgs& a) {
  const auto given = [&](int i) { return a.has(i) ? to_dtype(a.in(i), DType::f32) : Tensor(); };
  const Tensor x = given(x_in), weights = given(weight_scale), rows_scale = given(activation_scale);
  const Tensor added = given(bias), smooth = given(quant_scale), offset = given(quant_offset);
  const bool integers = a.in(x_in).dtype == DType::i32;
  const bool bias_first = a.has(bias) && a.in(bias).dtype == DType::i32;
  const bool dynamic = a.i64("quant_mode") == 1;
  const bool grouped = a.has(group_index);
  const Glu g{a.i64("swiglu_mode"), a.flag("activate_left"),
              static_cast<float>(a.f64("clamp_limit")), static_cast<float>(a.f64("glu_alpha")),
              static_cast<float>(a.f64("glu_bias"))};
  const QuantType type{1, "int8", DType::i8, 1, -128, 127};
  const std::int64_t rows = rows_of(x);
  const std::int64_t n2 = x.shape.back();
  const std::vector<int> groups = a.has(group_index)
                                      ? groups_of_rows(a, group_index, rows, true)
                                      : std::vector<int>(static_cast<std::size_t>(rows), 0);
  std::vector<float> wide(static_cast<std::size_t>(n2));
  std::vector<float> row(wide.size() / 2);
  for (std::int64_t i = 0; i < rows; ++i) {
    const int group = groups[static_cast<std::size_t>(i)];
    if (group < 0) {  // the library leaves rows past the groups as they are
      std::fill(row.begin(), row.end(), 0.0F);
      a.out(1).as<float>()[i] = 0;
      write_quantised(a.out(0), i, row.data(), n2 / 2, type);
      continue;
    }
    for (std::int64_t k = 0; k < n2; ++k) {
      float v = x.as<float>()[i * n2 + k];
      if (bias_first) v += parameter(added, grouped, group, k, 0.0F);
      v *= parameter(weights, grouped, group, k, 1.0F);
      if (integers && rows_scale.data != nullptr) v *= rows_scale.as<float>()[i];
      if (!bias_first) v += parameter(added, grouped, group, k, 0.0F);
      wide[static_cast<std::size_t>(k)] = v;
    }
    for (std::size_t k = 0; k < row.size(); ++k) {
      const auto at = static_cast<std::int64_t>(k);
      const float y = glu(g, wide, k);
      const float s = parameter(smooth, grouped, group, at, 1.0F);
      row[k] = dynamic ? y * s : y / s + parameter(offset, grouped, group, at, 0.0F);
    }
    a.out(1).as<float>()[i] = dynamic ? scale_symmetric(&row, type.high) : 0.0F;
    write_quantised(a.out(0), i, row.data(), n2 / 2, type);
  }
}

constexpr Symbol dequant_symbols[] = {{"H", "x.shape[-1] // 2", "size of the result's rows"}};
constexpr Limit dequant_limits[] = {
    {"dequant_swiglu_quant.scale",
     "x.dtype != int32 or (weight_scale is not None and activation_scale is not None)"},
    {"dequant_swiglu_quant.float", "x.dtype == int32 or weight_scale is None"},
    {"dequant_swiglu_quant.even", "x.shape[-1] % 2 == 0"},
    {"dequant_swiglu_quant.group_dyn",
     "group_index is None or (quant_mode == 1 and bias is None and quant_offset is None)"},
    {"dequant_swiglu_quant.H", "group_index is None or (H <= 10496 and H % 64 == 0)"},
    {"dequant_swiglu_quant.dtype", "x.dtype in (int32, fp16, bf16)"},
    {"dequant_swiglu_quant.scales",
     "(weight_scale is None or weight_scale.dtype == fp32) and (activation_scale is None or "
     "activation_scale.dtype == fp32)"},
    {"dequant_swiglu_quant.static",
     "quant_mode == 1 or quant_scale is None or quant_scale.dtype == fp32"},
    {"dequant_swiglu_quant.sum", "group_index is None or sum(group_index) <= prod(x.shape[:-1])"},
    {"dequant_swiglu_quant.limit", "clamp_limit > 0"},
};
constexpr std::string_view dequant_notes[] = {
    "activate_left False makes the second half the gate",
    "rows past sum(group_index) are not cleared",
};
constexpr NpuFacts dequant_facts{
    .group = "ffn",
    .signature =
        "npu_dequant_swiglu_quant(Tensor x, *, Tensor? weight_scale=None, Tensor? "
        "activation_scale=None, Tensor? bias=None, Tensor? quant_scale=None, Tensor? "
        "quant_offset=None, Tensor? group_index=None, bool activate_left=False, int quant_mode=0, "
        "int? dst_type=None, int? round_mode=None, int? activate_dim=None, int swiglu_mode=0, "
        "float clamp_limit=7.0, float glu_alpha=1.702, float glu_bias=1.0) -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .notes = dequant_notes,
    .symbols = dequant_symbols,
    .limits = dequant_limits,
};

}  // namespace

const OpDef npu_swiglu_quant{
    .name = "npu.npu_swiglu_quant",
    .schema =
        "(Tensor x, Tensor? smooth_scales=None, Tensor? offsets=None, Tensor? group_index=None, "
        "bool activate_left=False, int quant_mode=0, int group_list_type=0, int? dst_type=None) -> "
        "(Tensor y, Tensor scale)",
    .doc =
        "y = swiglu(x) * smooth_scales of the row's group. quant_mode 0: + offsets, rounded; 1: "
        "scale = 127 / max |y| of the row, y = round(y * scale). int8; quint4x2: 7, two int4 in an "
        "int8. group_index holds ends, or with group_list_type 1 counts.",
    .infer = swiglu_infer,
    .eval = swiglu_eval,
    .cost = glu_cost,
    .npu = &swiglu_facts,
};

const OpDef npu_dequant_swiglu_quant{
    .name = "npu.npu_dequant_swiglu_quant",
    .schema =
        "(Tensor x, Tensor? weight_scale=None, Tensor? activation_scale=None, Tensor? bias=None, "
        "Tensor? quant_scale=None, Tensor? quant_offset=None, Tensor? group_index=None, "
        "bool activate_left=False, int quant_mode=0, int? dst_type=None, int? round_mode=None, "
        "int? activate_dim=None, int swiglu_mode=0, float clamp_limit=7.0, float glu_alpha=1.702, "
        "float glu_bias=1.0) -> (Tensor y, Tensor scale)",
    .doc =
        "v = (x + an i32 bias) * weight_scale * activation_scale (+ a float bias); y = swiglu(v); "
        "quant_mode 0: round(y / quant_scale + quant_offset); 1: y * quant_scale, then a scale "
        "for each row, max |y| / 127. swiglu_mode 1: neighbours, clamped, (up + glu_bias); 2: the "
        "same of halves. Groups by counts.",
    .infer = dequant_infer,
    .eval = dequant_eval,
    .cost = glu_cost,
    .npu = &dequant_facts,
};

}  // namespace tk::ops

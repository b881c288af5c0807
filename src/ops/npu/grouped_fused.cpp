// Grouped products of integers with what follows them, torch_npu 2.14: SwiGLU and quantisation, or
// the weighted way back to the tokens.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/int_rows.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/product.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

TensorView maybe(const EvalArgs& a, int i) { return a.has(i) ? a.in(i) : TensorView(); }

struct Shape {
  Sym rows, experts, columns;
  bool a8w4;
};

// x [M, K] and weight [E, K, N], int8 or packed int4, groups i64[E].
Shape need_grouped(const Args& args, int list, bool int4_rows) {
  const Type& x = args.in(0);
  const Type& w = args.in(1);
  const bool kinds = (x.dtype == DType::i8 && is_one_of(w.dtype, {DType::i8, DType::i32})) ||
                     (int4_rows && x.dtype == DType::i32 && w.dtype == DType::i32);
  if (!kinds || x.rank() != 2 || w.rank() != 3 || !(int_columns(x) == w.dim(1)))
    args.fail(cat("needs x int8 [M, K] and weight int8 or packed int4 [E, K, N]",
                  int4_rows ? ", or both packed int4" : "", "; got ", x.str(), " and ", w.str()));
  const Type groups{DType::i64, {w.dim(0)}};
  if (args.in(list) != groups)
    args.fail(cat("needs a group_list of type ", groups.str(), ", got ", args.in(list).str()));
  return {x.dim(0), w.dim(0), int_columns(w), x.dtype == DType::i8 && w.dtype == DType::i32};
}

void need_type(const Args& args, int i, const Type& expected) {
  if (args.has(i) && args.in(i) != expected)
    args.fail(cat("needs ", args.op().parsed().tensors[static_cast<std::size_t>(i)].name,
                  " of type ", expected.str(), ", got ", args.in(i).str()));
}

// int8 rows times int4 weights, as the hardware splits them: x - 8 = 16 * high + low, so that
// y = sum over groups of (x - 8) @ w * scale, + assist, the compensation that is made offline.
Matrix a8w4(const TensorView& x, const TensorView& w, const TensorView& scale,
            const TensorView& assist) {
  IntMatrix rows = integers(x);
  for (std::int32_t& v : rows.v) v -= 8;
  const IntMatrix weight = integers(w);
  const std::int64_t n = weight.columns;
  const std::int64_t groups = scale.rank() == 2 ? scale.shape[0] : 1;
  const std::int64_t k = weight.rows / groups;
  Matrix y{rows.rows, n, std::vector<float>(static_cast<std::size_t>(rows.rows * n), 0.0F)};
  for (std::int64_t g = 0; g < groups; ++g) {
    IntMatrix left{rows.rows, k, {}};
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      const auto from = rows.v.begin() + i * weight.rows + g * k;
      left.v.insert(left.v.end(), from, from + k);
    }
    const auto part = weight.v.begin() + g * k * n;
    const IntMatrix sums = product(left, IntMatrix{k, n, {part, part + k * n}});
    for (std::size_t i = 0; i < y.v.size(); ++i)
      y.v[i] +=
          static_cast<float>(sums.v[i]) * scale_at(scale, g * n + static_cast<std::int64_t>(i) % n);
  }
  if (assist.data != nullptr)
    for (std::size_t i = 0; i < y.v.size(); ++i)
      y.v[i] += scale_at(assist, static_cast<std::int64_t>(i) % n);
  return y;
}

// ---- npu_grouped_matmul_swiglu_quant, npu_grouped_matmul_swiglu_quant_v2

// The operands by their places in the two schemas.
struct SwigluOperands {
  int weight_scale, x_scale, smooth = -1, assist = -1;
};

std::vector<Type> swiglu_types(const Args& args, const Shape& s) {
  if (!mod(s.columns, 2).is(0)) args.fail(cat("needs an even N, got ", s.columns.str()));
  return {{DType::i8, {s.rows, floordiv(s.columns, 2)}}, {DType::f32, {s.rows}}};
}

std::vector<Type> swiglu_infer(const Args& args) {
  const Shape s = need_grouped(args, 2, false);
  if (s.a8w4) args.fail(cat("needs an int8 weight, got ", args.in(1).str()));
  const Type& scale = args.in(3);
  if (!is_float(scale.dtype) || scale.shape != SymDims{s.experts, s.columns})
    args.fail(cat("needs weight_scale [E, N] of floats, got ", scale.str()));
  need_type(args, 4, {DType::f32, {s.rows}});
  if (args.has(5) || args.has(6)) args.fail("is known without bias and offset");
  std::vector<Type> out = swiglu_types(args, s);
  out.push_back({DType::f32, {}});
  return out;
}

std::vector<Type> swiglu_v2_infer(const Args& args) {
  const Shape s = need_grouped(args, 4, true);
  const Type& scale = args.in(2);
  const std::int64_t mode = args.i64("dequant_mode");
  const bool per_group = mode == 1;
  if (mode != 0 && !(per_group && s.a8w4))
    args.fail(cat("needs dequant_mode 0, or 1 for int8 x and int4 weights, got ", mode));
  const bool shaped = per_group ? scale.rank() == 3 && scale.dim(0) == s.experts &&
                                      scale.dim(2) == s.columns &&
                                      mod(args.in(1).dim(1), scale.dim(1)).is(0)
                                : scale.shape == SymDims{s.experts, s.columns};
  if (!shaped || !(s.a8w4 ? scale.dtype == DType::i64 : is_float(scale.dtype)))
    args.fail(
        cat("needs weight_scale [E, N] of floats, of int8 x and int4 weights i64 [E, N] or "
            "with dequant_mode 1 [E, G, N]; got ",
            scale.str()));
  need_type(args, 3, {DType::f32, {s.rows}});
  const bool a4w4 = args.in(0).dtype == DType::i32;
  if (args.has(5)) {
    const SymDims& smooth = args.in(5).shape;
    if (!a4w4 || args.in(5).dtype != DType::f32 ||
        (smooth != SymDims{s.experts} && smooth != SymDims{s.experts, floordiv(s.columns, 2)}))
      args.fail(cat("needs smooth_scale f32 [E] or [E, N / 2], of int4 x and weights alone; got ",
                    args.in(5).str()));
  }
  if (args.has(6) != s.a8w4)
    args.fail("needs weight_assist_matrix for int8 x and int4 weights, and for them alone");
  need_type(args, 6, {DType::f32, {s.experts, s.columns}});
  if (args.has(7)) args.fail("is known without a bias");
  const auto one_of = [&](std::string_view name, std::int64_t a, std::int64_t b) {
    if (const std::int64_t v = args.i64(name); v != a && v != b)
      args.fail(cat("needs ", name, " ", a, a == b ? "" : cat(" or ", b), ", got ", v));
  };
  one_of("dequant_dtype", 0, 6);  // f32, by the document and by torch's number
  one_of("quant_dtype", 0, 1);    // int8, likewise
  one_of("quant_mode", 0, 0);
  one_of("group_list_type", 0, 1);
  return swiglu_types(args, s);
}

void swiglu(const EvalArgs& a, const TensorView& list, std::int64_t type, const SwigluOperands& o) {
  const std::int64_t half = a.out(0).shape[1];
  const std::int64_t experts = a.in(1).shape[0];
  std::memset(a.out(0).data, 0, static_cast<std::size_t>(a.out(0).bytes()));
  std::memset(a.out(1).data, 0, static_cast<std::size_t>(a.out(1).bytes()));
  const bool split = a.in(0).dtype == DType::i8 && a.in(1).dtype == DType::i32;
  for (const RowGroup& g : row_groups(a, list, type, a.in(0).shape[0], experts)) {
    const auto part = [&](int i) {
      return i < 0 ? TensorView() : part_of(maybe(a, i), g.weight, experts);
    };
    const TensorView rows = rows_of(a.in(0), g.begin, g.end);
    const TensorView w = matrix_of(a.in(1), g.weight);
    Matrix y;
    if (split) {
      y = a8w4(rows, w, part(o.weight_scale), part(o.assist));
      for (std::int64_t i = 0; i < y.rows; ++i)
        for (std::int64_t j = 0; j < y.columns; ++j)
          y.row(i)[j] *= scale_at(a.in(o.x_scale), g.begin + i);
    } else {
      y = Epilogue{{}, part(o.weight_scale), {}, a.in(o.x_scale)}.apply(
          product(integers(rows), integers(w)), g.begin);
    }
    // One scale for all of an expert's columns, or one for each.
    const TensorView smooth = o.smooth < 0 ? TensorView() : maybe(a, o.smooth);
    std::vector<float> row(static_cast<std::size_t>(half));
    for (std::int64_t i = 0; i < y.rows; ++i) {
      const float* v = y.row(i);
      for (std::int64_t j = 0; j < half; ++j) {
        float& r = row[static_cast<std::size_t>(j)];
        r = v[j] * sigmoid(v[j]) * v[half + j];
        if (smooth.data != nullptr)
          r *= scale_at(smooth, smooth.rank() == 1 ? g.weight : g.weight * half + j);
      }
      auto* to = a.out(0).as<std::int8_t>() + (g.begin + i) * half;
      a.out(1).as<float>()[g.begin + i] = quantise_row(row, to);
    }
  }
}

void swiglu_eval(const EvalArgs& a) {
  swiglu(a, a.in(2), 0, {3, 4});
  *a.out(2).as<float>() = 0;  // reserved
}
void swiglu_v2_eval(const EvalArgs& a) {
  swiglu(a, a.in(4), a.i64("group_list_type"), {2, 3, 5, 6});
}

constexpr std::string_view swiglu_notes[] = {
    "rows past group_list[-1] are not written there, and 0 here",
    "x int8 [M, K], weight int8 in NZ, weight_scale fp32, fp16 or bf16 [E, N], x_scale fp32 [M]",
};
constexpr NpuFacts swiglu_facts{
    .group = "moe",
    .signature =
        "npu_grouped_matmul_swiglu_quant(Tensor x, Tensor weight, Tensor group_list, Tensor "
        "weight_scale, Tensor x_scale, *, Tensor? bias=None, Tensor? offset=None) -> (Tensor, "
        "Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; no GE converter",
    .notes = swiglu_notes,
};

constexpr Symbol swiglu_v2_symbols[] = {
    {"a4w4", "x.dtype == int32", "x and weight are packed int4"},
};
constexpr Limit swiglu_v2_limits[] = {
    {"grouped_matmul_swiglu_quant_v2.dq", "dequant_mode in (0, 1)"},
    {"grouped_matmul_swiglu_quant_v2.smooth", "not a4w4 or smooth_scale is not None"},
};
constexpr std::string_view swiglu_v2_notes[] = {
    "the library's default of quant_dtype is 1, the document says 0 only",
};
constexpr NpuFacts swiglu_v2_facts{
    .group = "moe",
    .signature =
        "npu_grouped_matmul_swiglu_quant_v2(Tensor x, Tensor[] weight, Tensor[] weight_scale, "
        "Tensor x_scale, Tensor group_list, *, Tensor? smooth_scale=None, Tensor[]? "
        "weight_assist_matrix=None, Tensor? bias=None, int? dequant_mode=0, int? dequant_dtype=6, "
        "int? quant_mode=0, int? quant_dtype=1, int? group_list_type=0, int[]? tuning_config=None, "
        "int? x_dtype=None, int? weight_dtype=None, int? weight_scale_dtype=None, int? "
        "x_scale_dtype=None) -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = swiglu_v2_notes,
    .symbols = swiglu_v2_symbols,
    .limits = swiglu_v2_limits,
};

// ---- npu_grouped_matmul_finalize_routing

constexpr int scale = 3, bias = 4, offset = 5, per_token = 6, shared = 7, logit = 8, row_index = 9;

std::vector<Type> finalize_infer(const Args& args) {
  const Shape s = need_grouped(args, 2, false);
  if (!args.has(scale) || !args.has(row_index)) args.fail("is known here with scale and row_index");
  const Type& sc = args.in(scale);
  const bool scaled = s.a8w4
                          ? sc.dtype == DType::i64 && sc.shape == SymDims{s.experts, 1, s.columns}
                          : is_float(sc.dtype) && sc.shape == SymDims{s.experts, s.columns};
  if (!scaled)
    args.fail(cat("needs a scale f32 [E, N], of int4 weights i64 [E, 1, N], got ", sc.str()));
  if (args.has(bias) != s.a8w4)
    args.fail("needs a bias (the offline compensation) for int4 weights, and for them alone");
  need_type(args, bias, {DType::f32, {s.experts, s.columns}});
  if (args.has(offset)) args.fail("is known here without an offset");
  need_type(args, per_token, {DType::f32, {s.rows}});
  need_type(args, logit, {DType::f32, {s.rows}});
  const Type& index = args.in(row_index);
  if (!is_one_of(index.dtype, {DType::i32, DType::i64}) || index.shape != SymDims{s.rows})
    args.fail(cat("needs row_index i32 or i64 [", s.rows.str(), "], got ", index.str()));
  if (args.has_attr("dtype") && args.dtype("dtype") != DType::f32)
    args.fail(cat("needs dtype f32, got ", name_of(args.dtype("dtype"))));
  const std::int64_t type = args.i64("group_list_type");
  if (type != 0 && type != 1) args.fail(cat("needs group_list_type 0 or 1, got ", type));
  const Sym given = args.sym("output_bs");
  if (given.is_const() && given.value() < 0) args.fail(cat("needs output_bs >= 0"));
  const Sym batch = given.is(0) ? s.rows : given;
  if (args.has(shared)) {
    const Type& t = args.in(shared);
    const std::int64_t at = args.i64("shared_input_offset");
    const Sym room = batch - t.dim(0) - Sym(at);
    if (!is_float(t.dtype) || t.rank() != 2 || !(t.dim(1) == s.columns) || at < 0 ||
        (room.is_const() && room.value() < 0))
      args.fail(cat("needs shared_input [B, ", s.columns.str(), "] that ends in the ", batch.str(),
                    " rows, got ", t.str(), " at row ", at));
  }
  return {{DType::f32, {batch, s.columns}}};
}

void finalize_eval(const EvalArgs& a) {
  const std::int64_t batch = a.out().shape[0];
  const std::int64_t n = a.out().shape[1];
  const std::int64_t experts = a.in(1).shape[0];
  Matrix out{batch, n, std::vector<float>(static_cast<std::size_t>(batch * n), 0.0F)};
  if (a.has(shared)) {
    const Matrix s = widened(a.in(shared));
    const auto weight = static_cast<float>(a.f64("shared_input_weight"));
    const std::int64_t at = a.i64("shared_input_offset");
    for (std::int64_t i = 0; i < s.rows; ++i)
      for (std::int64_t j = 0; j < n; ++j) out.row(at + i)[j] = weight * s.row(i)[j];
  }
  const bool split = a.in(1).dtype == DType::i32;
  for (const RowGroup& g :
       row_groups(a, a.in(2), a.i64("group_list_type"), a.in(0).shape[0], experts)) {
    const auto part = [&](int i) { return part_of(maybe(a, i), g.weight, experts); };
    const TensorView rows = rows_of(a.in(0), g.begin, g.end);
    const TensorView w = matrix_of(a.in(1), g.weight);
    const Matrix y = split ? a8w4(rows, w, part(scale), part(bias))
                           : Epilogue{{}, part(scale), {}, {}}.apply(
                                 product(integers(rows), integers(w)), g.begin);
    for (std::int64_t i = 0; i < y.rows; ++i) {
      const std::int64_t row = g.begin + i;
      const std::int64_t to =
          checked_index(a, static_cast<std::int64_t>(element(a.in(row_index), row)), batch, false);
      float factor = a.has(per_token) ? scale_at(a.in(per_token), row) : 1.0F;
      if (a.has(logit)) factor *= scale_at(a.in(logit), row);
      for (std::int64_t j = 0; j < n; ++j) out.row(to)[j] += factor * y.row(i)[j];
    }
  }
  store_rows(a.out(), 0, out);
}

constexpr Symbol finalize_symbols[] = {
    {"m", "x.shape[0]", "rows"},
    {"k", "x.shape[1]", "summed axis"},
    {"int4", "w.dtype == int32", "weights are packed int4"},
    {"n", "w.shape[2] * (8 if int4 else 1)", "columns"},
    {"E", "w.shape[0]", "experts"},
};
constexpr Limit finalize_limits[] = {
    {"grouped_matmul_finalize_routing.m", "1 <= m <= 131072"},
    {"grouped_matmul_finalize_routing.k", "k % 16 == 0"},
    {"grouped_matmul_finalize_routing.n", "n % 32 == 0 and n >= 256"},
    {"grouped_matmul_finalize_routing.E", "1 <= E <= 256"},
    {"grouped_matmul_finalize_routing.a8w4", "not int4 or (k == 2048 and n == 7168)"},
};
constexpr std::string_view finalize_notes[] = {
    "the argument is w in the library, weight in the document",
    "w int8 in NZ; shared_input bf16",
};
constexpr NpuFacts finalize_facts{
    .group = "moe",
    .signature =
        "npu_grouped_matmul_finalize_routing(Tensor x, Tensor w, Tensor group_list, *, Tensor? "
        "scale=None, Tensor? bias=None, Tensor? offset=None, Tensor? pertoken_scale=None, Tensor? "
        "shared_input=None, Tensor? logit=None, Tensor? row_index=None, ScalarType? dtype=None, "
        "float? shared_input_weight=1.0, int? shared_input_offset=0, int? output_bs=0, int? "
        "group_list_type=1, int[]? tuning_config=None, int? x_dtype=None, int? w_dtype=None, int? "
        "scale_dtype=None, int? pertoken_scale_dtype=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = finalize_notes,
    .symbols = finalize_symbols,
    .limits = finalize_limits,
};

}  // namespace

const OpDef npu_grouped_matmul_swiglu_quant{
    .name = "npu.npu_grouped_matmul_swiglu_quant",
    .schema =
        "(Tensor x, Tensor weight, Tensor group_list, Tensor weight_scale, Tensor x_scale, "
        "Tensor? bias=None, Tensor? offset=None) -> (Tensor output, Tensor output_scale, "
        "Tensor output_offset)",
    .doc =
        "c = x @ weight[e] * x_scale * weight_scale[e] of int8 rows in groups (running totals); s "
        "= silu(first half of c) * second half; output = round(s / output_scale), output_scale = "
        "max|s| / 127 per row. Rows of no group are 0.",
    .infer = swiglu_infer,
    .eval = swiglu_eval,
    .cost = grouped_cost,
    .npu = &swiglu_facts,
};

const OpDef npu_grouped_matmul_swiglu_quant_v2{
    .name = "npu.npu_grouped_matmul_swiglu_quant_v2",
    .schema =
        "(Tensor x, Tensor weight, Tensor weight_scale, Tensor x_scale, Tensor group_list, "
        "Tensor? smooth_scale=None, Tensor? weight_assist_matrix=None, Tensor? bias=None, "
        "int? dequant_mode=0, int? dequant_dtype=6, int? quant_mode=0, int? quant_dtype=1, "
        "int? group_list_type=0, int[]? tuning_config=None) -> (Tensor output, "
        "Tensor output_scale)",
    .doc =
        "As npu_grouped_matmul_swiglu_quant, also of int8 rows and packed int4 weights (c = "
        "(sum of (x - 8) @ weight * weight_scale + weight_assist_matrix) * x_scale, scales per "
        "channel or per group) and of int4 rows and weights (s times smooth_scale). "
        "group_list_type 0: running totals, 1: counts.",
    .infer = swiglu_v2_infer,
    .eval = swiglu_v2_eval,
    .cost = grouped_cost,
    .npu = &swiglu_v2_facts,
};

const OpDef npu_grouped_matmul_finalize_routing{
    .name = "npu.npu_grouped_matmul_finalize_routing",
    .schema =
        "(Tensor x, Tensor w, Tensor group_list, Tensor? scale=None, Tensor? bias=None, "
        "Tensor? offset=None, Tensor? pertoken_scale=None, Tensor? shared_input=None, "
        "Tensor? logit=None, Tensor? row_index=None, dtype? dtype=None, "
        "float? shared_input_weight=1.0, int? shared_input_offset=0, int? output_bs=0, "
        "int? group_list_type=1, int[]? tuning_config=None) -> Tensor",
    .doc =
        "out[row_index[i]] += logit[i] * pertoken_scale[i] * scale[e] * (x[i] @ w[e]) of rows in "
        "groups, f32 of output_bs rows (0: as many as x); shared_input * shared_input_weight is "
        "added from row shared_input_offset on. int4 weights as in "
        "npu_grouped_matmul_swiglu_quant_v2, with bias as the compensation.",
    .infer = finalize_infer,
    .eval = finalize_eval,
    .cost = grouped_cost,
    .npu = &finalize_facts,
};

}  // namespace tk::ops

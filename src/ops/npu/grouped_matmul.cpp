// npu_grouped_matmul of torch_npu 2.14: rows in groups, each with its own weight.
#include <algorithm>
#include <cmath>
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

constexpr int bias = 2, group_list = 3, scale = 4, offset = 5, anti_scale = 6, anti_offset = 7,
              per_token = 8;

enum class Kind : unsigned char { plain, integer, weight_only };

// -1 without groups, 0 rows in groups, 2 the summed axis in groups.
std::int64_t type_of(bool has_list, const Attr* given) {
  if (given != nullptr) return std::get<Sym>(*given).value();
  return has_list ? 0 : -1;
}

Kind kind_of(DType x, DType weight) {
  if (is_float(x)) return is_float(weight) ? Kind::plain : Kind::weight_only;
  return Kind::integer;
}

void need_dtypes(const Args& args) {
  const Type& x = args.in(0);
  const Type& w = args.in(1);
  const auto both = cat("got x ", x.str(), " and weight ", w.str());
  switch (kind_of(x.dtype, w.dtype)) {
    case Kind::plain:
      if (x.dtype != w.dtype || x.dtype == DType::f64)
        args.fail(cat("needs x and weight of one dtype, or int8 or packed int4 weights; ", both));
      break;
    case Kind::weight_only:
      if (!is_one_of(x.dtype, {DType::f16, DType::bf16}) ||
          !is_one_of(w.dtype, {DType::i8, DType::i32}) || !args.has(anti_scale))
        args.fail(
            cat("needs antiquant_scale for int8 or packed int4 weights with x in f16 or "
                "bf16; ",
                both));
      break;
    case Kind::integer:
      if (!is_one_of(x.dtype, {DType::i8, DType::i32}) || x.dtype != w.dtype)
        args.fail(cat("needs x and weight both int8, or both packed int4; ", both));
      break;
  }
  if (kind_of(x.dtype, w.dtype) != Kind::integer && (args.has(scale) || args.has(per_token)))
    args.fail(cat("needs integers for scale and per_token_scale; ", both));
  if (kind_of(x.dtype, w.dtype) != Kind::weight_only &&
      (args.has(anti_scale) || args.has(anti_offset)))
    args.fail(cat("needs an integer weight and a float x for antiquant_scale and -offset; ", both));
}

// One line of N numbers for each of `groups` weights ([E, N], or [N] of one).
void need_lines(const Args& args, int i, std::string_view name, const Sym& groups, const Sym& n) {
  if (!args.has(i)) return;
  const SymDims& s = args.in(i).shape;
  if (s != SymDims{groups, n} && !(groups.is(1) && (s == SymDims{n} || s == SymDims{1})))
    args.fail(cat("needs ", name, " [", groups.str(), ", ", n.str(), "], got ", args.in(i).str()));
}

DType result_of(const Args& args) {
  const DType x = args.in(0).dtype;
  const bool integer = kind_of(x, args.in(1).dtype) == Kind::integer;
  if (!args.has_attr("output_dtype")) {
    if (!integer) return x;
    if (x == DType::i32 || args.has(per_token))
      args.fail("needs an output_dtype for packed int4 and for per_token_scale");
    return DType::i8;
  }
  const DType out = args.dtype("output_dtype");
  if (!integer && out != x)
    args.fail(cat("needs output_dtype ", name_of(x), ", that of x, got ", name_of(out)));
  if (integer && !is_one_of(out, {DType::i8, DType::i32, DType::bf16, DType::f16}))
    args.fail(cat("needs output_dtype i8, i32, bf16 or f16, got ", name_of(out)));
  return out;
}

void need_group_list(const Args& args, std::int64_t type, const Sym& groups) {
  if (type == -1) {
    if (args.has(group_list)) args.fail("needs group_type 0 or 2 with a group_list");
    return;
  }
  if (!args.has(group_list)) args.fail("needs a group_list with group_type 0 and 2");
  const Type& list = args.in(group_list);
  const std::int64_t kind = args.i64("group_list_type");
  if (kind < 0 || kind > 2) args.fail(cat("needs group_list_type 0, 1 or 2, got ", kind));
  if (kind == 2 && (type != 0 || args.in(0).dtype != DType::i8))
    args.fail("needs int8 and group_type 0 with group_list_type 2");
  const bool shaped = kind == 2 ? list.rank() == 2 && list.dim(1).is(2)
                                : list.shape == SymDims{groups} || (type == 2 && list.rank() == 1);
  if (list.dtype != DType::i64 || !shaped)
    args.fail(cat("needs a group_list i64[", groups.str(), kind == 2 ? ", 2" : "", "], got ",
                  list.str()));
}

std::vector<Type> grouped_infer(const Args& args) {
  const Type& x = args.in(0);
  const Type& w = args.in(1);
  const std::int64_t type = type_of(args.has(group_list), args.attr("group_type"));
  const std::int64_t split = args.i64("split_item");
  const std::int64_t act = args.i64("act_type");
  if (type != -1 && type != 0 && type != 2)
    args.fail(cat("needs group_type -1, 0 or 2, got ", type));
  if (split < 0 || split > 3) args.fail(cat("needs split_item 0 to 3, got ", split));
  if (act < 0 || act > 5 || act == 3) args.fail(cat("needs act_type 0, 1, 2, 4 or 5, got ", act));
  need_dtypes(args);
  const bool int_x = !is_float(x.dtype);
  const Sym k = int_x ? int_columns(x) : x.dim(-1);
  const Sym n = is_float(w.dtype) ? w.dim(-1) : int_columns(w);
  if (args.has(offset)) args.fail("is known without an offset");
  if (type == 2) {
    if (x.rank() != 2 || w.rank() != 2 || !(x.dim(1) == w.dim(0)) || int_x)
      args.fail(cat("needs x [M, K] and weight [K, N] of floats with group_type 2, got ", x.str(),
                    " and ", w.str()));
    if (args.has(bias)) args.fail("is known without a bias with group_type 2");
    need_group_list(args, type, Sym(0));
    return {{result_of(args), {args.in(group_list).dim(0), x.dim(0), n}}};
  }
  if (x.rank() < 2 || (type == 0 && x.rank() != 2) || w.rank() < 2 ||
      w.rank() > (type == 0 ? 3 : 2) || !(w.dim(-2) == k))
    args.fail(cat("needs x [M, K] and weight [E, K, N], got ", x.str(), " and ", w.str()));
  const Sym groups = w.rank() == 3 ? w.dim(0) : Sym(1);
  need_group_list(args, type, groups);
  need_lines(args, bias, "a bias", groups, n);
  need_lines(args, scale, "a scale", groups, n);
  for (int i : {anti_scale, anti_offset}) {
    if (!args.has(i)) continue;
    const Type& t = args.in(i);
    const bool per_group =
        t.rank() == (w.rank() == 3 ? 3 : 2) && !(t.rank() == 2 && t.dim(0).is(1));
    if (!per_group) need_lines(args, i, "an antiquant scale or offset", groups, n);
    if (per_group && (w.dtype != DType::i32 || !(t.dim(-1) == n) || !mod(k, t.dim(-2)).is(0) ||
                      (w.rank() == 3 && !(t.dim(0) == groups))))
      args.fail(
          cat("needs antiquant scales [E, N], or [E, G, N] of packed int4 with G dividing K; "
              "got ",
              t.str()));
  }
  if (args.has(anti_offset) && args.in(anti_offset).shape != args.in(anti_scale).shape)
    args.fail("needs antiquant_offset of the shape of antiquant_scale");
  if (args.has(scale) && !is_scale(args.in(scale).dtype))
    args.fail(cat("needs a scale in f32, bf16 or i64, got ", args.in(scale).str()));
  const Type tokens{DType::f32, {x.dim(0)}};
  if (args.has(per_token) && args.in(per_token) != tokens)
    args.fail(
        cat("needs per_token_scale of type ", tokens.str(), ", got ", args.in(per_token).str()));
  const DType out = result_of(args);
  if (int_x && (out == DType::i32) == args.has(scale))
    args.fail("needs a scale of integers, except for output_dtype i32");
  SymDims shape = x.shape;
  shape.back() = n;
  return {{out, shape}};
}

void activate(Matrix* y, std::int64_t act) {
  for (float& v : y->v) {
    if (act == 1) v = std::max(v, 0.0F);
    if (act == 2) v = gelu_tanh(v);
    if (act == 4) v *= sigmoid(1.702F * v);  // fast gelu
    if (act == 5) v *= sigmoid(v);
  }
}

TensorView maybe(const EvalArgs& a, int i) { return a.has(i) ? a.in(i) : TensorView(); }

void add_bias(Matrix* y, const TensorView& b) {
  if (b.data == nullptr) return;
  for (std::int64_t j = 0; j < y->columns; ++j) {
    const float v = scale_at(b, j);
    for (std::int64_t i = 0; i < y->rows; ++i) y->row(i)[j] += v;
  }
}

// The rows of one group.
void one_group(const EvalArgs& a, const RowGroup& g, const TensorView& x, const TensorView& out) {
  const TensorView w = matrix_of(a.in(1), g.weight);
  const std::int64_t groups = a.in(1).rank() == 3 ? a.in(1).shape[0] : 1;
  const auto part = [&](int i) { return part_of(maybe(a, i), g.weight, groups); };
  const TensorView rows = rows_of(x, g.begin, g.end);
  const std::int64_t act = a.i64("act_type");
  if (kind_of(x.dtype, w.dtype) == Kind::integer) {
    const IntMatrix sums = product(integers(rows), integers(w));
    if (out.dtype == DType::i32) {
      IntMatrix y = sums;
      if (a.has(bias))
        for (std::size_t i = 0; i < y.v.size(); ++i)
          y.v[i] += static_cast<std::int32_t>(
              element(part(bias), static_cast<std::int64_t>(i) % y.columns));
      store_rows(out, g.begin, y);
      return;
    }
    Matrix y = Epilogue{part(bias), part(scale), {}, maybe(a, per_token)}.apply(sums, g.begin);
    activate(&y, act);
    store_rows(out, g.begin, y);
    return;
  }
  const TensorView s = part(anti_scale);
  const bool per_group = s.data != nullptr && s.rank() == 2 && s.shape[0] > 1;
  const Matrix weight = s.data == nullptr ? widened(w)
                                          : dequantised(w, s, part(anti_offset),
                                                        per_group ? w.shape[0] / s.shape[0] : 0);
  Matrix y = product(widened(rows), weight);
  add_bias(&y, part(bias));
  activate(&y, act);
  store_rows(out, g.begin, y);
}

void grouped_eval(const EvalArgs& a) {
  const std::int64_t type = type_of(a.has(group_list), a.attr("group_type"));
  const Tensor x = as_rows(a.in(0));
  TensorView out = a.out();
  std::memset(out.data, 0, static_cast<std::size_t>(out.bytes()));  // rows of no group are 0
  if (type == 2) {
    const std::int64_t k = x.shape[1];
    const Matrix columns = widened(x);
    std::int64_t i = 0;
    // Groups without members keep their place in the result.
    std::int64_t begin = 0;
    for (; i < out.shape[0]; ++i) {
      const auto v = static_cast<std::int64_t>(element(a.in(group_list), i));
      const std::int64_t end = a.i64("group_list_type") == 0 ? v : begin + v;
      if (end < begin || end > k) bad_index(a, v, k + 1, "group_list");
      Matrix part{x.shape[0], end - begin, {}};
      for (std::int64_t r = 0; r < part.rows; ++r)
        part.v.insert(part.v.end(), columns.row(r) + begin, columns.row(r) + end);
      if (end > begin)
        store_rows(matrix_of(out, i), 0, product(part, widened(rows_of(a.in(1), begin, end))));
      begin = end;
    }
    return;
  }
  out.shape = {x.shape[0], out.shape.back()};
  out.strides = {out.shape[1], 1};
  if (type == -1) return one_group(a, {0, 0, x.shape[0]}, x, out);
  const std::int64_t weights = a.in(1).rank() == 3 ? a.in(1).shape[0] : 1;
  for (const RowGroup& g :
       row_groups(a, a.in(group_list), a.i64("group_list_type"), x.shape[0], weights))
    one_group(a, g, x, out);
}

constexpr Symbol grouped_symbols[] = {
    {"E", "group_list.shape[0]", "groups"},
};
constexpr Limit grouped_limits[] = {
    {"grouped_matmul.inner", "x.shape[-1] < 65536 and weight.shape[-1] < 65536", "", "a2"},
    {"grouped_matmul.E", "group_list is None or E <= 1024"},
    {"grouped_matmul.rows",
     "group_list is None or group_type == 2 or group_list_type != 0 or group_list[-1] <= "
     "x.shape[0]",
     "the text says all rows; models give fewer after a dispatch"},
    {"grouped_matmul.rows1",
     "group_list is None or group_type == 2 or group_list_type != 1 or sum(group_list) <= "
     "x.shape[0]",
     "the text says all rows; models give fewer after a dispatch"},
    {"grouped_matmul.split", "group_type is None or group_type != 0 or split_item in (2, 3)"},
    {"grouped_matmul.act", "act_type == 0 or per_token_scale is not None",
     "activation only with per-token quantisation"},
};
constexpr std::string_view grouped_notes[] = {
    "quantised kinds: per channel int8 (scale int64, bf16 or fp32), per token int8 (scale bf16 or "
    "fp32 and per_token_scale fp32), weight only int8 or int4 with antiquant_scale and -offset",
    "int4 weights are packed eight to an int32, the last axis even",
    "lists of x and weight have at most 128 members (grouped_matmul.lists)",
    "the wheel's text allows group_list_type 0 and 1; 2 is [index, count] pairs, int8 only",
    "split_item: 0, 1 as many results as weights, 2, 3 one",
    "group_type: -1 none, 0 rows, 2 the summed axis",
    "act_type: 0 none, 1 relu, 2 gelu_tanh, 4 fast_gelu, 5 silu",
};
constexpr NpuFacts grouped_facts{
    .group = "moe",
    .signature =
        "npu_grouped_matmul(Tensor[] x, Tensor[] weight, *, Tensor[]? bias=None, Tensor[]? "
        "scale=None, Tensor[]? offset=None, Tensor[]? antiquant_scale=None, Tensor[]? "
        "antiquant_offset=None, Tensor[]? per_token_scale=None, Tensor? group_list=None, Tensor[]? "
        "activation_input=None, Tensor[]? activation_quant_scale=None, Tensor[]? "
        "activation_quant_offset=None, int? split_item=0, int? group_type=None, int? "
        "group_list_type=0, int? act_type=0, int[]? tuning_config=None, int? output_dtype=None, "
        "int? x_dtype=None, int? weight_dtype=None, int? scale_dtype=None, int? "
        "per_token_scale_dtype=None) -> Tensor[]\n"
        "npu_grouped_matmul.List(Tensor[] x, Tensor[] weight, *, Tensor[]? bias=None, Tensor[]? "
        "scale=None, Tensor[]? offset=None, Tensor[]? antiquant_scale=None, Tensor[]? "
        "antiquant_offset=None, Tensor[]? per_token_scale=None, int[]? group_list=None, Tensor[]? "
        "activation_input=None, Tensor[]? activation_quant_scale=None, Tensor[]? "
        "activation_quant_offset=None, int? split_item=0, int? group_type=None, int? "
        "group_list_type=0, int? act_type=0, ScalarType? output_dtype=None) -> Tensor[]",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "not named",
    .graph_mode = "stated; shape function; no GE converter",
    .notes = grouped_notes,
    .symbols = grouped_symbols,
    .limits = grouped_limits,
};

}  // namespace

const OpDef npu_grouped_matmul{
    .name = "npu.npu_grouped_matmul",
    .schema =
        "(Tensor x, Tensor weight, Tensor? bias=None, Tensor? group_list=None, "
        "Tensor? scale=None, Tensor? offset=None, Tensor? antiquant_scale=None, "
        "Tensor? antiquant_offset=None, Tensor? per_token_scale=None, "
        "int? split_item=0, int? group_type=None, int? group_list_type=0, int? act_type=0, "
        "int[]? tuning_config=None, dtype? output_dtype=None) -> Tensor",
    .doc =
        "Rows of group e times weight[e] (+ bias[e]): x [M, K], weight [E, K, N]. group_list has "
        "running totals (type 0), counts (1) or [index, count] pairs (2). Integers: (x @ w + int32 "
        "bias) * scale * per_token_scale + float bias; integer weights alone: x @ ((w + "
        "antiquant_offset) * antiquant_scale) + bias. group_type 2: groups of the summed axis, x "
        "[M, K], weight [K, N] -> [E, M, N]. Rows of no group are 0. torch_npu takes lists of "
        "tensors: these are their only members.",
    .infer = grouped_infer,
    .eval = grouped_eval,
    .cost = grouped_cost,
    .npu = &grouped_facts,
};

}  // namespace tk::ops

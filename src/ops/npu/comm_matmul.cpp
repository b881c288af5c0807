// Matrix products that torch_npu 2.14 overlaps with a collective. The references are those of one
// rank; on several the emulation exchanges and calls them for each rank's part.
#include <algorithm>

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

void need_one_rank(const EvalArgs& a, std::string_view attr) {
  const std::int64_t ranks = a.i64(attr);
  if (ranks != 1)
    throw UserError("TK0312", cat(a.op().name, " needs the other ", ranks - 1, " ranks"))
        .help(cat("one process computes it for ", attr, " 1; the emulation exchanges the rest"));
}

// A float vector of N columns, [N] or [1, N], or one number.
bool per_column(const Type& t, const Sym& n) {
  if (t.rank() < 1 || t.rank() > 2 || (t.rank() == 2 && !t.dim(0).is(1))) return false;
  return t.dim(-1) == n || t.dim(-1).is(1);
}

void need_matrices(const Args& args, int max_rank) {
  const Type& a = args.in(0);
  const Type& b = args.in(1);
  if (a.rank() < 2 || a.rank() > max_rank || b.rank() != 2 || !(a.dim(-1) == b.dim(0)))
    args.fail(cat("needs a [.., M, K] and x2 [K, N], got ", a.str(), " and ", b.str()));
}

void need_defaults(const Args& args) {
  if (args.i64("comm_turn") != 0) args.fail("needs comm_turn 0");
  if (args.op().parsed().find_attr("reduce_op") != nullptr && args.text("reduce_op") != "sum")
    args.fail(cat("needs reduce_op \"sum\", got ", args.text("reduce_op")));
}

// ---- npu_mm_all_reduce_base

namespace reduce {
constexpr int bias = 2, anti_scale = 3, anti_offset = 4, x3 = 5, scale = 6, per_token = 7;
}

std::vector<Type> all_reduce_infer(const Args& args) {
  using namespace reduce;
  need_matrices(args, 3);
  need_defaults(args);
  const Type& a = args.in(0);
  const Type& b = args.in(1);
  const Sym n = b.dim(1);
  DType out = a.dtype;
  if (a.dtype == DType::i8) {
    if (b.dtype != DType::i8 || !args.has(scale) || args.has(anti_scale))
      args.fail(cat("needs x2 int8 and dequant_scale for x1 in int8, got ", b.str()));
    const Type& s = args.in(scale);
    if (!per_column(s, n) || !is_scale(s.dtype))
      args.fail(cat("needs dequant_scale [1], [N] or [1, N], got ", s.str()));
    out = s.dtype == DType::bf16 ? DType::bf16 : DType::f16;
    if (args.has_attr("y_dtype")) out = args.dtype("y_dtype");
    if (!is_one_of(out, {DType::f16, DType::bf16}))
      args.fail(cat("needs y_dtype f16 or bf16, got ", name_of(out)));
  } else if (is_one_of(a.dtype, {DType::f16, DType::bf16})) {
    const bool weight_only = b.dtype == DType::i8;
    if ((!weight_only && b.dtype != a.dtype) || weight_only != args.has(anti_scale) ||
        args.has(scale) || args.has(per_token))
      args.fail(cat("needs x2 of the dtype of x1, or int8 with antiquant_scale, got ", a.str(),
                    " and ", b.str()));
  } else {
    args.fail(cat("needs x1 in f16, bf16 or int8, got ", a.str()));
  }
  const std::int64_t group = args.i64("antiquant_group_size");
  const SymDims grouped{floordiv(b.dim(0) + Sym(std::max<std::int64_t>(group, 1) - 1),
                                 Sym(std::max<std::int64_t>(group, 1))),
                        n};
  for (int i : {anti_scale, anti_offset})
    if (args.has(i) && (args.in(i).dtype != a.dtype ||
                        (group > 0 ? args.in(i).shape != grouped : !per_column(args.in(i), n))))
      args.fail(
          cat("needs antiquant scale and offset [1], [N], [1, N], or [groups, N] with "
              "antiquant_group_size, of the dtype of x1; got ",
              args.in(i).str()));
  if (args.has(bias) && args.in(bias).shape != SymDims{n})
    args.fail(cat("needs a bias [", n.str(), "], got ", args.in(bias).str()));
  const Sym rows = a.rank() == 2 ? a.dim(0) : a.dim(0) * a.dim(1);
  const Type tokens{DType::f32, {rows}};
  if (args.has(per_token) && args.in(per_token) != tokens)
    args.fail(
        cat("needs pertoken_scale of type ", tokens.str(), ", got ", args.in(per_token).str()));
  SymDims shape = a.shape;
  shape.back() = n;
  const Type result{out, shape};
  if (args.has(x3) && args.in(x3) != result)
    args.fail(cat("needs x3 of type ", result.str(), ", got ", args.in(x3).str()));
  return {result};
}

void all_reduce_eval(const EvalArgs& a) {
  using namespace reduce;
  const Tensor rows = as_rows(a.in(0));
  Matrix y;
  if (a.in(0).dtype == DType::i8) {
    y = Epilogue{maybe(a, bias), a.in(scale), {}, maybe(a, per_token)}.apply(
        product(integers(rows), integers(a.in(1))), 0);
  } else {
    const Matrix w = a.has(anti_scale)
                         ? dequantised(a.in(1), a.in(anti_scale), maybe(a, anti_offset),
                                       a.i64("antiquant_group_size"))
                         : widened(a.in(1));
    y = product(widened(rows), w);
    if (a.has(bias))
      for (std::int64_t i = 0; i < y.rows; ++i)
        for (std::int64_t j = 0; j < y.columns; ++j) y.row(i)[j] += scale_at(a.in(bias), j);
  }
  if (a.has(x3)) {
    const Matrix more = widened(as_rows(a.in(x3)));
    for (std::size_t i = 0; i < y.v.size(); ++i) y.v[i] += more.v[i];
  }
  TensorView out = a.out();
  out.shape = {y.rows, y.columns};
  out.strides = {y.columns, 1};
  store_rows(out, 0, y);
}

constexpr Limit all_reduce_limits[] = {
    {"mm_all_reduce_base.ranks", "world in (1, 2, 4, 8)", "", "a2"},
    {"mm_all_reduce_base.prefill", "phase == \"prefill\"",
     "for full sequences, not for the incremental phase"},
    {"mm_all_reduce_base.turn", "comm_turn == 0"},
    {"mm_all_reduce_base.reduce", "reduce_op == \"sum\""},
};
constexpr std::string_view all_reduce_notes[] = {
    "A2: a full HCCS mesh only; all fused products of a model share one group",
    "x1 int8, fp16 or bf16 of two or three axes; hcom is a group's name",
};
constexpr NpuFacts all_reduce_facts{
    .group = "comm",
    .signature =
        "npu_mm_all_reduce_base(Tensor x1, Tensor x2, str hcom, *, str reduce_op='sum', Tensor? "
        "bias=None, Tensor? antiquant_scale=None, Tensor? antiquant_offset=None, Tensor? x3=None, "
        "Tensor? dequant_scale=None, Tensor? pertoken_scale=None, Tensor? comm_quant_scale_1=None, "
        "Tensor? comm_quant_scale_2=None, int antiquant_group_size=0, int comm_turn=0, int[]? "
        "group_sizes=None, int? y_dtype=None, int? x1_dtype=None, int? x2_dtype=None, int? "
        "dequant_scale_dtype=None, int? pertoken_scale_dtype=None, int comm_quant_mode=0, str? "
        "comm_mode=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "not named",
    .graph_mode = "stated; shape function; GE converter",
    .notes = all_reduce_notes,
    .limits = all_reduce_limits,
};

// ---- npu_all_gather_base_mm, npu_mm_reduce_scatter_base

namespace scaled {
constexpr int bias = 2, x1_scale = 3, x2_scale = 4;
}

// The dtype of the product of both.
DType scaled_result(const Args& args) {
  using namespace scaled;
  need_matrices(args, 2);
  need_defaults(args);
  const Type& a = args.in(0);
  const Type& b = args.in(1);
  if (a.dtype != b.dtype || !is_one_of(a.dtype, {DType::f16, DType::bf16, DType::i8}))
    args.fail(cat("needs two matrices in f16, bf16 or int8, got ", a.str(), " and ", b.str()));
  if (args.i64("world_size") < 1) args.fail("needs world_size >= 1");
  if (args.has(bias) && args.in(bias).shape != SymDims{b.dim(1)})
    args.fail(cat("needs a bias [", b.dim(1).str(), "], got ", args.in(bias).str()));
  if (a.dtype != DType::i8) {
    if (args.has(x1_scale) || args.has(x2_scale)) args.fail("needs int8 for scales");
    return a.dtype;
  }
  if (!args.has(x2_scale) || !per_column(args.in(x2_scale), b.dim(1)) ||
      !is_one_of(args.in(x2_scale).dtype, {DType::f32, DType::i64}))
    args.fail("needs x2_scale f32 or i64 [1, N] for int8");
  if (args.has(x1_scale) && args.in(x1_scale) != Type{DType::f32, {a.dim(0), 1}})
    args.fail(cat("needs x1_scale f32 [M, 1], got ", args.in(x1_scale).str()));
  if (args.in(x2_scale).dtype == DType::i64) return DType::f16;
  const DType out = args.has_attr("output_dtype") ? args.dtype("output_dtype") : DType::bf16;
  if (!is_one_of(out, {DType::f16, DType::bf16}))
    args.fail(cat("needs output_dtype f16 or bf16, got ", name_of(out)));
  return out;
}

void scaled_product(const EvalArgs& a) {
  using namespace scaled;
  if (a.in(0).dtype == DType::i8) {
    store_rows(a.out(), 0,
               Epilogue{maybe(a, bias), a.in(x2_scale), {}, maybe(a, x1_scale)}.apply(
                   product(integers(a.in(0)), integers(a.in(1))), 0));
    return;
  }
  Matrix y = product(widened(a.in(0)), widened(a.in(1)));
  if (a.has(bias))
    for (std::int64_t i = 0; i < y.rows; ++i)
      for (std::int64_t j = 0; j < y.columns; ++j) y.row(i)[j] += scale_at(a.in(bias), j);
  store_rows(a.out(), 0, y);
}

std::vector<Type> gather_infer(const Args& args) {
  const DType out = scaled_result(args);
  if (args.i64("gather_index") != 0) args.fail("needs gather_index 0");
  const Type& a = args.in(0);
  const Sym rows = a.dim(0) * Sym(args.i64("world_size"));
  const bool gathered = args.flag("gather_output");
  return {{out, {rows, args.in(1).dim(1)}},
          {a.dtype, gathered ? SymDims{rows, a.dim(1)} : SymDims{0}}};
}

void gather_eval(const EvalArgs& a) {
  need_one_rank(a, "world_size");
  scaled_product(a);
  if (a.flag("gather_output")) copy_into(a.out(1), a.in(0));
}

constexpr Symbol gather_symbols[] = {
    {"k", "x2.shape[0]", "summed axis"},
};
constexpr Limit gather_limits[] = {
    {"all_gather_base_mm.k", "256 <= k < 65535"},
    {"all_gather_base_mm.ranks_a2", "world_size in (2, 4, 8)", "", "a2"},
    {"all_gather_base_mm.ranks_a3", "world_size in (2, 4, 8, 16)", "", "a3"},
    {"all_gather_base_mm.bias", "bias is None or (max(bias) == 0 and min(bias) == 0)",
     "a bias other than zeros is not supported"},
};
constexpr std::string_view gather_notes[] = {
    "the argument list has world_size 2, 4, 8, the notes 16 for A3; the claim is for training "
    "only",
};
constexpr NpuFacts gather_facts{
    .group = "comm",
    .signature =
        "npu_all_gather_base_mm(Tensor input, Tensor x2, str hcom, int world_size, *, Tensor? "
        "bias=None, Tensor? x1_scale=None, Tensor? x2_scale=None, int gather_index=0, bool "
        "gather_output=True, int comm_turn=0, ScalarType? output_dtype=None, str? comm_mode=None) "
        "-> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .notes = gather_notes,
    .symbols = gather_symbols,
    .limits = gather_limits,
};

std::vector<Type> scatter_infer(const Args& args) {
  const DType out = scaled_result(args);
  const Sym m = args.in(0).dim(0);
  const Sym ranks(args.i64("world_size"));
  if (const Sym rest = mod(m, ranks); rest.is_const() && !rest.is(0))
    args.fail(cat("needs M to be a multiple of world_size, got ", m.str(), " and ", ranks.str()));
  return {{out, {floordiv(m, ranks), args.in(1).dim(1)}}};
}

void scatter_eval(const EvalArgs& a) {
  need_one_rank(a, "world_size");
  scaled_product(a);
}

constexpr Symbol scatter_symbols[] = {
    {"k", "x2.shape[0]", "summed axis"},
    {"m", "input.shape[0]", "rows, of all ranks"},
};
constexpr Limit scatter_limits[] = {
    {"mm_reduce_scatter_base.k", "256 <= k < 65535"},
    {"mm_reduce_scatter_base.m", "m % world_size == 0"},
    {"mm_reduce_scatter_base.reduce", "reduce_op == \"sum\""},
};
constexpr NpuFacts scatter_facts{
    .group = "comm",
    .signature =
        "npu_mm_reduce_scatter_base(Tensor input, Tensor x2, str hcom, int world_size, *, str "
        "reduce_op='sum', Tensor? bias=None, Tensor? x1_scale=None, Tensor? x2_scale=None, int "
        "comm_turn=0, ScalarType? output_dtype=None, str? comm_mode=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .symbols = scatter_symbols,
    .limits = scatter_limits,
};

}  // namespace

const OpDef npu_mm_all_reduce_base{
    .name = "npu.npu_mm_all_reduce_base",
    .schema =
        "(Tensor x1, Tensor x2, Tensor? bias=None, Tensor? antiquant_scale=None, "
        "Tensor? antiquant_offset=None, Tensor? x3=None, Tensor? dequant_scale=None, "
        "Tensor? pertoken_scale=None, str hcom, str reduce_op=\"sum\", "
        "int antiquant_group_size=0, int comm_turn=0, dtype? y_dtype=None) -> Tensor",
    .doc =
        "The sum over the ranks of x1 @ x2 + bias + x3, of floats, of int8 weights ((x2 + "
        "antiquant_offset) * antiquant_scale) or of int8 ((x1 @ x2 + int32 bias) * dequant_scale * "
        "pertoken_scale + x3). The reference is one rank's part.",
    .infer = all_reduce_infer,
    .eval = all_reduce_eval,
    .cost = product_cost,
    .npu = &all_reduce_facts,
};

const OpDef npu_all_gather_base_mm{
    .name = "npu.npu_all_gather_base_mm",
    .schema =
        "(Tensor input, Tensor x2, Tensor? bias=None, Tensor? x1_scale=None, "
        "Tensor? x2_scale=None, str hcom, int world_size, int gather_index=0, "
        "bool gather_output=True, int comm_turn=0, dtype? output_dtype=None, "
        "str? comm_mode=None) -> (Tensor output, Tensor gather_out)",
    .doc =
        "The inputs of all ranks, one below the other, times x2 (+ bias), of int8 times x1_scale * "
        "x2_scale; and those inputs, unless gather_output is off. The reference is that of "
        "world_size 1.",
    .infer = gather_infer,
    .eval = gather_eval,
    .cost = product_cost,
    .npu = &gather_facts,
};

const OpDef npu_mm_reduce_scatter_base{
    .name = "npu.npu_mm_reduce_scatter_base",
    .schema =
        "(Tensor input, Tensor x2, Tensor? bias=None, Tensor? x1_scale=None, "
        "Tensor? x2_scale=None, str hcom, int world_size, str reduce_op=\"sum\", "
        "int comm_turn=0, dtype? output_dtype=None, str? comm_mode=None) -> Tensor",
    .doc =
        "This rank's part of the rows of the sum over the ranks of input @ x2 (+ bias), of int8 "
        "times x1_scale * x2_scale. The reference is that of world_size 1.",
    .infer = scatter_infer,
    .eval = scatter_eval,
    .cost = product_cost,
    .npu = &scatter_facts,
};

}  // namespace tk::ops

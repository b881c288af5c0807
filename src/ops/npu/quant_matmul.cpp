// Products with quantised matrices of torch_npu 2.14.
#include <cmath>

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

// One number, or one a column: [1], [N], or the same with a 1 in front.
bool per_column(const SymDims& s, const Sym& n) {
  if (s.size() == 2 && !s[0].is(1)) return false;
  return !s.empty() && s.size() <= 2 && (s.back() == n || s.back().is(1));
}

// ---- npu_quant_matmul

namespace quant {
constexpr int scale = 2, offset = 3, per_token = 4, bias = 5;
}

// int4 in x2 lies along its last axis, or, of a transposed view, along the one before it.
bool packed_rows(DType dtype, const Sym& k, const Sym& rows) {
  return dtype == DType::i32 && !(rows == k) && rows * Sym(8) == k;
}

std::vector<Type> quant_infer(const Args& args) {
  const Type& a = args.in(0);
  const Type& b = args.in(1);
  if (!is_one_of(a.dtype, {DType::i8, DType::i32}) || a.dtype != b.dtype || a.rank() < 2 ||
      b.rank() < 2 || a.rank() > 6 || b.rank() > 6)
    args.fail(cat("needs x1 and x2 both int8 or both packed int4, of 2 to 6 axes, got ", a.str(),
                  " and ", b.str()));
  const Sym k = int_columns(a);
  const bool transposed = packed_rows(b.dtype, k, b.dim(-2));
  const Sym n = transposed ? b.dim(-1) : int_columns(b);
  if (!transposed && !(b.dim(-2) == k))
    args.fail(cat("needs x1 [.., M, K] and x2 [.., K, N], got ", a.str(), " and ", b.str()));
  const SymDims batch =
      broadcast(args, {a.shape.begin(), a.shape.end() - 2}, {b.shape.begin(), b.shape.end() - 2});
  using namespace quant;
  for (int i : {scale, offset}) {
    if (!args.has(i)) continue;
    const Type& t = args.in(i);
    if (t.rank() != 1 || !per_column(t.shape, n) || !is_scale(t.dtype))
      args.fail(
          cat("needs scale and offset [1] or [", n.str(), "], f32, bf16 or i64, got ", t.str()));
  }
  const Type tokens{DType::f32, {a.dim(-2)}};
  if (args.has(per_token) && args.in(per_token) != tokens)
    args.fail(
        cat("needs pertoken_scale of type ", tokens.str(), ", got ", args.in(per_token).str()));
  if (args.has(bias)) {
    const Type& t = args.in(bias);
    const bool batched = t.rank() == 3 && batch.size() == 1 && t.shape == SymDims{batch[0], 1, n};
    if ((t.shape != SymDims{n} && !batched) ||
        !is_one_of(t.dtype, {DType::i32, DType::bf16, DType::f16, DType::f32}))
      args.fail(cat("needs a bias [", n.str(), "] or [batch, 1, ", n.str(),
                    "], i32 or a float, got ", t.str()));
  }
  if (args.has_attr("group_sizes") && !args.ints("group_sizes").empty())
    args.fail("is known here without group_sizes");
  const DType out = args.has_attr("output_dtype") ? args.dtype("output_dtype") : DType::i8;
  if (!is_one_of(out, {DType::i8, DType::f16, DType::bf16, DType::i32}))
    args.fail(cat("needs output_dtype i8, f16, bf16 or i32, got ", name_of(out)));
  if (args.has(offset) && out != DType::i8)
    args.fail("needs an int8 result (no output_dtype) for an offset");
  if (out == DType::i32 &&
      (args.has(per_token) || (args.has(bias) && args.in(bias).dtype != DType::i32)))
    args.fail("gives the sums themselves as i32: without pertoken_scale, with an i32 bias or none");
  SymDims shape = batch;
  shape.push_back(a.dim(-2));
  shape.push_back(n);
  return {{out, shape}};
}

IntMatrix transposed(const IntMatrix& m) {
  IntMatrix t{m.columns, m.rows, std::vector<std::int32_t>(m.v.size())};
  for (std::int64_t i = 0; i < m.rows; ++i)
    for (std::int64_t j = 0; j < m.columns; ++j)
      t.v[static_cast<std::size_t>(j * m.rows + i)] =
          m.v[static_cast<std::size_t>(i * m.columns + j)];
  return t;
}

IntMatrix right_side(const TensorView& b, std::int64_t k) {
  if (!packed_rows(b.dtype, k, b.shape[0])) return integers(b);
  TensorView t = b;
  std::swap(t.shape[0], t.shape[1]);
  std::swap(t.strides[0], t.strides[1]);
  return transposed(integers(t));
}

// Matrices of a tensor whose batch axes repeat over `batch`.
class Matrices {
 public:
  Matrices(const TensorView& t, const Dims& batch) : t_(t) {
    Dims shape = batch;
    shape.push_back(t.shape.at(-2));
    shape.push_back(t.shape.at(-1));
    view_ = broadcast_view(t, shape);
    walk_ = RowWalk(view_, 2);
  }
  TensorView at(std::int64_t i) const {
    TensorView m = t_;
    m.data = t_.as<char>() + walk_.offset(i) * static_cast<std::int64_t>(size_of(t_.dtype));
    m.shape = {t_.shape.at(-2), t_.shape.at(-1)};
    m.strides = {t_.strides.at(-2), t_.strides.at(-1)};
    return m;
  }
  std::int64_t count() const { return walk_.count(); }

 private:
  TensorView t_, view_;
  RowWalk walk_{TensorView(), 0};
};

void add_ints(IntMatrix* y, const TensorView& bias) {
  if (bias.data == nullptr) return;
  for (std::size_t i = 0; i < y->v.size(); ++i)
    y->v[i] += static_cast<std::int32_t>(element(bias, static_cast<std::int64_t>(i) % y->columns));
}

void quant_eval(const EvalArgs& a) {
  using namespace quant;
  Dims batch = a.out().shape;
  batch.erase(batch.size() - 1);
  batch.erase(batch.size() - 1);
  const Matrices left(a.in(0), batch);
  const Matrices right(a.in(1), batch);
  const Matrices out(a.out(), batch);
  for (std::int64_t i = 0; i < out.count(); ++i) {
    const IntMatrix x = integers(left.at(i));
    IntMatrix sums = product(x, right_side(right.at(i), x.columns));
    const TensorView b = part_of(maybe(a, bias), i, batch.numel());
    if (a.out().dtype == DType::i32) {
      add_ints(&sums, b);
      store_rows(out.at(i), 0, sums);
      continue;
    }
    const Epilogue after{b, a.in(scale), maybe(a, offset), maybe(a, per_token)};
    store_rows(out.at(i), 0, after.apply(sums, 0));
  }
}

constexpr Limit quant_limits[] = {
    {"quant_matmul.last", "x1.shape[-1] < 65536 and x2.shape[-1] < 65536"},
    {"quant_matmul.offset", "offset is None or x1.dtype == int8"},
    {"quant_matmul.graph_fp32",
     "not graph or pertoken_scale is not None or output_dtype not in (None, int8, fp16) or "
     "scale.dtype != fp32",
     "convert with npu_trans_quant_param first"},
};
constexpr std::string_view quant_notes[] = {
    "x2 may be in NZ (npu_format_cast); on A2 and A3 without transposing",
    "x1 and x2 int8, or int32 that packs int4; scale fp32, int64 or bf16, [1] or [n]; "
    "pertoken_scale fp32 [m]",
    "the result is int8 unless output_dtype says otherwise",
};
constexpr NpuFacts quant_facts{
    .group = "matmul",
    .signature =
        "npu_quant_matmul(Tensor x1, Tensor x2, Tensor scale, *, Tensor? offset=None, Tensor? "
        "pertoken_scale=None, Tensor? bias=None, int? output_dtype=None, int? x1_dtype=None, int? "
        "x2_dtype=None, int? pertoken_scale_dtype=None, int? scale_dtype=None, int[]? "
        "group_sizes=None, Tensor? y_scale=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .notes = quant_notes,
    .limits = quant_limits,
};

// ---- npu_quant_matmul_reduce_sum

std::vector<Type> reduce_infer(const Args& args) {
  const Type& a = args.in(0);
  const Type& b = args.in(1);
  if (a.dtype != DType::i8 || b.dtype != DType::i8 || a.rank() != 3 || b.rank() != 3 ||
      !(a.dim(0) == b.dim(0)) || !(a.dim(2) == b.dim(1)))
    args.fail(
        cat("needs x1 int8 [B, M, K] and x2 int8 [B, K, N], got ", a.str(), " and ", b.str()));
  const Type rows{DType::f32, {a.dim(0), a.dim(1)}};
  const Type columns{DType::bf16, {b.dim(2)}};
  if (!args.has(2) || !args.has(3) || args.in(2) != rows || args.in(3) != columns)
    args.fail(cat("needs x1_scale ", rows.str(), " and x2_scale ", columns.str()));
  return {{DType::bf16, {a.dim(1), b.dim(2)}}};
}

void reduce_eval(const EvalArgs& a) {
  const std::int64_t m = a.out().shape[0];
  const std::int64_t n = a.out().shape[1];
  Matrix out{m, n, std::vector<float>(static_cast<std::size_t>(m * n), 0.0F)};
  for (std::int64_t b = 0; b < a.in(0).shape[0]; ++b) {
    const Epilogue after{{}, a.in(3), {}, part_of(a.in(2), b, a.in(2).shape[0])};
    const Matrix y =
        after.apply(product(integers(matrix_of(a.in(0), b)), integers(matrix_of(a.in(1), b))), 0);
    for (std::size_t i = 0; i < y.v.size(); ++i) out.v[i] += y.v[i];
  }
  store_rows(a.out(), 0, out);
}

constexpr Limit reduce_limits[] = {
    {"quant_matmul_reduce_sum.dtype", "x1.dtype == x2.dtype == int8"},
};
constexpr NpuFacts reduce_facts{
    .group = "matmul",
    .signature =
        "npu_quant_matmul_reduce_sum(Tensor x1, Tensor x2, *, Tensor? x1_scale=None, Tensor? "
        "x2_scale=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "static graph; shape function; GE converter",
    .limits = reduce_limits,
};

// ---- npu_weight_quant_batchmatmul

namespace weight {
constexpr int scale = 2, offset = 3, quant_scale = 4, quant_offset = 5, bias = 6;
}

std::vector<Type> weight_infer(const Args& args) {
  using namespace weight;
  const Type& x = args.in(0);
  const Type& w = args.in(1);
  if (!is_one_of(x.dtype, {DType::f16, DType::bf16}) ||
      !is_one_of(w.dtype, {DType::i8, DType::i32}) || x.rank() != 2 || w.rank() != 2 ||
      !(x.dim(1) == w.dim(0)))
    args.fail(cat("needs x f16 or bf16 [M, K] and weight int8 or packed int4 [K, N], got ", x.str(),
                  " and ", w.str()));
  const Sym n = int_columns(w);
  const std::int64_t group = args.i64("antiquant_group_size");
  const Type& s = args.in(scale);
  const Sym groups = group > 0 ? floordiv(x.dim(1) + Sym(group - 1), Sym(group)) : Sym(1);
  const bool shaped = group > 0 ? s.shape == SymDims{groups, n} : per_column(s.shape, n);
  if (group < 0 || !shaped || (s.dtype != x.dtype && s.dtype != DType::i64))
    args.fail(
        cat("needs antiquant_scale [1], [N] or [1, N], with an antiquant_group_size [groups, "
            "N], of the dtype of x or i64; got ",
            s.str()));
  if (args.has(offset) && (args.in(offset).shape != s.shape ||
                           args.in(offset).dtype != (s.dtype == DType::i64 ? DType::i32 : s.dtype)))
    args.fail(cat("needs antiquant_offset as antiquant_scale, i32 when that is i64; got ",
                  args.in(offset).str()));
  for (int i : {quant_scale, quant_offset, bias})
    if (args.has(i) && !per_column(args.in(i).shape, n))
      args.fail(cat("needs quant_scale, quant_offset and bias per column, got ", args.in(i).str()));
  if (args.has(quant_scale) && !is_one_of(args.in(quant_scale).dtype, {DType::f32, DType::i64}))
    args.fail(cat("needs quant_scale f32 or i64, got ", args.in(quant_scale).str()));
  if (args.has(quant_offset) &&
      (!args.has(quant_scale) || args.in(quant_offset).dtype != DType::f32))
    args.fail("needs quant_offset f32, and a quant_scale with it");
  return {{args.has(quant_scale) ? DType::i8 : x.dtype, {x.dim(0), n}}};
}

void weight_eval(const EvalArgs& a) {
  using namespace weight;
  Matrix y = product(widened(a.in(0)), dequantised(a.in(1), a.in(scale), maybe(a, offset),
                                                   a.i64("antiquant_group_size")));
  const auto at = [&](int i, std::int64_t j) {
    return scale_at(a.in(i), a.in(i).numel() == 1 ? 0 : j);
  };
  for (std::int64_t j = 0; j < y.columns; ++j) {
    const float b = a.has(bias) ? at(bias, j) : 0.0F;
    const float s = a.has(quant_scale) ? at(quant_scale, j) : 1.0F;
    float o = a.has(quant_offset) ? at(quant_offset, j) : 0.0F;
    if (a.has(quant_scale))
      o += static_cast<float>(
          packed_offset(a.in(quant_scale), a.in(quant_scale).numel() == 1 ? 0 : j));
    for (std::int64_t i = 0; i < y.rows; ++i) y.row(i)[j] = (y.row(i)[j] + b) * s + o;
  }
  store_rows(a.out(), 0, y);
}

constexpr Symbol weight_symbols[] = {
    {"K", "weight.shape[0]", "summed axis"},
    {"N", "weight.shape[1] * (8 if weight.dtype == int32 else 1)", "columns"},
};
constexpr Limit weight_limits[] = {
    {"weight_quant_batchmatmul.kn", "1 <= K <= 65535 and 1 <= N <= 65535"},
    {"weight_quant_batchmatmul.bias", "x.dtype != bf16 or bias is None or bias.dtype == fp32"},
    {"weight_quant_batchmatmul.nz_eager", "weight_nz is False or graph",
     "a weight in NZ only in graph mode"},
};
constexpr std::string_view weight_notes[] = {
    "x fp16 or bf16 [M, K]; weight int8, or int32 that packs int4, [K, N]",
    "antiquant_group_size: 0, or 32 to K - 1 and a multiple of 32",
};
constexpr NpuFacts weight_facts{
    .group = "matmul",
    .signature =
        "npu_weight_quant_batchmatmul(Tensor x, Tensor weight, Tensor antiquant_scale, Tensor? "
        "antiquant_offset=None, Tensor? quant_scale=None, Tensor? quant_offset=None, Tensor? "
        "bias=None, int antiquant_group_size=0, int inner_precise=0, int? weight_dtype=None) -> "
        "Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .notes = weight_notes,
    .symbols = weight_symbols,
    .limits = weight_limits,
};

}  // namespace

const OpDef npu_quant_matmul{
    .name = "npu.npu_quant_matmul",
    .schema =
        "(Tensor x1, Tensor x2, Tensor scale, Tensor? offset=None, Tensor? pertoken_scale=None, "
        "Tensor? bias=None, dtype? output_dtype=None, int[]? group_sizes=None) -> Tensor",
    .doc =
        "(x1 @ x2 + int32 bias) * scale * pertoken_scale + float bias + offset, of int8 or of "
        "packed int4, batched and broadcast. The result is int8, rounded to nearest even and kept "
        "in range, or output_dtype; i32 is x1 @ x2 + bias as it is.",
    .infer = quant_infer,
    .eval = quant_eval,
    .cost = product_cost,
    .npu = &quant_facts,
};

const OpDef npu_quant_matmul_reduce_sum{
    .name = "npu.npu_quant_matmul_reduce_sum",
    .schema = "(Tensor x1, Tensor x2, Tensor? x1_scale=None, Tensor? x2_scale=None) -> Tensor",
    .doc = "Sum over the batch of (x1 @ x2) * x1_scale * x2_scale, in f32, rounded to bf16 once.",
    .infer = reduce_infer,
    .eval = reduce_eval,
    .cost = product_cost,
    .npu = &reduce_facts,
};

const OpDef npu_weight_quant_batchmatmul{
    .name = "npu.npu_weight_quant_batchmatmul",
    .schema =
        "(Tensor x, Tensor weight, Tensor antiquant_scale, Tensor? antiquant_offset=None, "
        "Tensor? quant_scale=None, Tensor? quant_offset=None, Tensor? bias=None, "
        "int antiquant_group_size=0, int inner_precise=0) -> Tensor",
    .doc =
        "x @ ((weight + antiquant_offset) * antiquant_scale) + bias, scales per tensor, per "
        "column or per antiquant_group_size rows; with quant_scale int8 of that times quant_scale "
        "+ quant_offset.",
    .infer = weight_infer,
    .eval = weight_eval,
    .cost = product_cost,
    .npu = &weight_facts,
};

}  // namespace tk::ops

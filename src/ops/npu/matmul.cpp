// npu_transpose_batchmatmul of torch_npu 2.14. Sums in f32, rounded once.
#include <algorithm>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/int_rows.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/product.h"

namespace tk::ops {
namespace {

constexpr int bias = 2, scale = 3;

using Perm = std::vector<int>;
const Perm as_is{0, 1, 2}, batch_second{1, 0, 2};

Perm perm_of(const Args& args, std::string_view name, const Perm& otherwise) {
  if (!args.has_attr(name)) return otherwise;
  const std::vector<std::int64_t> list = args.ints(name);
  const Perm p(list.begin(), list.end());
  Perm sorted = p;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != as_is) args.fail(cat("needs ", name, " to permute 0, 1, 2"));
  return p;
}

SymDims permuted(const SymDims& shape, const Perm& p) {
  SymDims out;
  for (int i : p) out.push_back(shape[static_cast<std::size_t>(i)]);
  return out;
}

std::vector<Type> transpose_bmm_infer(const Args& args) {
  const Type& x = args.in(0);
  const Type& w = args.in(1);
  if (x.rank() != 3 || w.rank() != 3 || x.dtype != w.dtype || !is_float(x.dtype))
    args.fail(cat("needs two tensors of rank 3 and one dtype, got ", x.str(), " and ", w.str()));
  if (args.has(bias)) args.fail("is known without a bias");
  const SymDims a = permuted(x.shape, perm_of(args, "perm_x1", as_is));
  const SymDims b = permuted(w.shape, perm_of(args, "perm_x2", as_is));
  if (!(a[0] == b[0]) || !(a[2] == b[1]))
    args.fail(cat("needs [B, M, K] and [B, K, N] after permuting, got ", str(a), " and ", str(b)));
  const Perm py = perm_of(args, "perm_y", batch_second);
  const Sym columns = b[0] * b[2];
  const std::int64_t split = args.i64("batch_split_factor");
  if (split < 1 || !mod(columns, Sym(split)).is(0))
    args.fail(
        cat("needs a batch_split_factor that divides B * N = ", columns.str(), ", got ", split));
  if (!args.has(scale) && split == 1) return {{x.dtype, permuted({a[0], a[1], b[2]}, py)}};
  if (py != batch_second || (args.has(scale) && split != 1))
    args.fail("needs perm_y [1, 0, 2] with a scale or a batch_split_factor, and one of the two");
  if (!args.has(scale)) return {{x.dtype, {split, a[1], floordiv(columns, split)}}};
  const Type expected{DType::i64, {columns}};
  if (args.in(scale) != expected)
    args.fail(cat("needs a scale of type ", expected.str(), ", got ", args.in(scale).str()));
  return {{DType::i8, {a[1], 1, columns}}};
}

TensorView permute(const TensorView& t, const Perm& p) {
  TensorView v = t;
  for (int i = 0; i < 3; ++i) {
    v.shape[i] = t.shape[p[static_cast<std::size_t>(i)]];
    v.strides[i] = t.strides[p[static_cast<std::size_t>(i)]];
  }
  return v;
}

Perm perm_of(const EvalArgs& a, std::string_view name, const Perm& otherwise) {
  if (!a.has_attr(name)) return otherwise;
  const Dims d = a.ints(name);
  return {d.begin(), d.end()};
}

// The output as [B, M, N], whatever its layout.
TensorView batches_of(const EvalArgs& a, std::int64_t batches, std::int64_t n) {
  TensorView y = a.out();
  const std::int64_t split = a.i64("batch_split_factor");
  if (a.has(scale)) {
    y.shape = {batches, a.out().shape[0], n};
    y.strides = {n, batches * n, 1};
    return y;
  }
  TK_CHECK(split == 1);
  // The result before perm_y: its axis perm_y[i] is axis i of the output.
  const Perm py = perm_of(a, "perm_y", batch_second);
  for (int i = 0; i < 3; ++i) {
    y.shape[py[static_cast<std::size_t>(i)]] = a.out().shape[i];
    y.strides[py[static_cast<std::size_t>(i)]] = a.out().strides[i];
  }
  return y;
}

void transpose_bmm_eval(const EvalArgs& a) {
  const TensorView x = permute(a.in(0), perm_of(a, "perm_x1", as_is));
  const TensorView w = permute(a.in(1), perm_of(a, "perm_x2", as_is));
  const std::int64_t batches = x.shape[0];
  const std::int64_t n = w.shape[2];
  const std::int64_t split = a.i64("batch_split_factor");
  for (std::int64_t b = 0; b < batches; ++b) {
    Matrix y = product(widened(matrix_of(x, b)), widened(matrix_of(w, b)));
    if (split == 1) {
      if (a.has(scale))
        for (std::int64_t i = 0; i < y.rows; ++i)
          for (std::int64_t j = 0; j < n; ++j)
            y.row(i)[j] = y.row(i)[j] * scale_at(a.in(scale), b * n + j) +
                          static_cast<float>(packed_offset(a.in(scale), b * n + j));
      store_rows(matrix_of(batches_of(a, batches, n), b), 0, y);
      continue;
    }
    // Column c = b * n + j of the [M, B * N] result is column c % width of part c / width.
    const std::int64_t width = batches * n / split;
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t c = b * n + j;
      TensorView column = matrix_of(a.out(), c / width);
      column.data =
          column.as<char>() + c % width * static_cast<std::int64_t>(size_of(column.dtype));
      Matrix part{y.rows, 1, {}};
      for (std::int64_t i = 0; i < y.rows; ++i) part.v.push_back(y.row(i)[j]);
      store_rows(column, 0, part);
    }
  }
}

constexpr Limit transpose_bmm_limits[] = {
    {"transpose_batchmatmul.rank", "input.ndim == 3 and weight.ndim == 3"},
};
constexpr std::string_view transpose_bmm_notes[] = {
    "used for the up-projection of values after MLA attention",
    "input and weight of three axes, fp32, fp16 or bf16",
};
constexpr NpuFacts transpose_bmm_facts{
    .group = "matmul",
    .signature =
        "npu_transpose_batchmatmul(Tensor input, Tensor weight, *, Tensor? bias=None, Tensor? "
        "scale=None, int[]? perm_x1=None, int[]? perm_x2=None, int[]? perm_y=None, int? "
        "batch_split_factor=1) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = transpose_bmm_notes,
    .limits = transpose_bmm_limits,
};

}  // namespace

const OpDef npu_transpose_batchmatmul{
    .name = "npu.npu_transpose_batchmatmul",
    .schema =
        "(Tensor input, Tensor weight, Tensor? bias=None, Tensor? scale=None, "
        "int[]? perm_x1=None, int[]? perm_x2=None, int[]? perm_y=None, "
        "int? batch_split_factor=1) -> Tensor",
    .doc =
        "y = permute(bmm(permute(input, perm_x1), permute(weight, perm_x2)), perm_y), all of rank "
        "3; without them [0, 1, 2], [0, 1, 2] and [1, 0, 2]. With a scale int8 [M, 1, B * N]; with "
        "batch_split_factor f the [M, B * N] result in f parts of columns, [f, M, B * N / f].",
    .infer = transpose_bmm_infer,
    .eval = transpose_bmm_eval,
    .cost = product_cost,
    .npu = &transpose_bmm_facts,
};

}  // namespace tk::ops

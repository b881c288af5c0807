// Matrix products of torch_npu 2.14. Sums in f32, rounded once.
#include <algorithm>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

std::vector<Type> grouped_infer(const Args& args) {
  const Type& x = args.in(0);
  const Type& w = args.in(1);
  if (x.rank() != 2 || w.rank() != 3 || !(x.dim(1) == w.dim(1)) || !is_float(x.dtype) ||
      x.dtype != w.dtype)
    args.fail(
        cat("needs x [M, K] and weight [E, K, N] of one dtype, got ", x.str(), " and ", w.str()));
  if (args.has(2) && (args.in(2).shape != SymDims{w.dim(0), w.dim(2)}))
    args.fail(cat("needs a bias [E, N], got ", args.in(2).str()));
  if (!args.has(3)) args.fail("is known here with a group_list");
  const Type& list = args.in(3);
  if (list.dtype != DType::i64 || list.shape != SymDims{w.dim(0)})
    args.fail(cat("needs a group_list i64[", w.dim(0).str(), "], got ", list.str()));
  const std::int64_t type = args.i64("group_list_type");
  if (args.i64("split_item") != 3 || args.i64("group_type") != 0 || (type != 0 && type != 1) ||
      args.i64("act_type") != 0)
    args.fail("is known here with split_item 3, group_type 0, group_list_type 0 or 1, no act");
  return {{x.dtype, {x.dim(0), w.dim(2)}}};
}

void grouped_eval(const EvalArgs& a) {
  const TensorView& x = a.in(0);
  const TensorView& w = a.in(1);
  const std::int64_t m = x.shape[0];
  const std::int64_t k = x.shape[1];
  const std::int64_t n = w.shape[2];
  const bool counts = a.i64("group_list_type") == 1;
  const Tensor list = contiguous(a.in(3));
  std::vector<float> row(static_cast<std::size_t>(k));
  std::vector<float> out(static_cast<std::size_t>(n));
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < w.shape[0]; ++e) {
    const std::int64_t v = list.as<std::int64_t>()[e];
    const std::int64_t end = counts ? begin + v : v;
    if (end < begin || end > m) bad_index(a, v, m, "group_list");
    if (end == begin) continue;
    TensorView we = w;
    we.data = w.as<char>() + e * w.strides[0] * static_cast<std::int64_t>(size_of(w.dtype));
    we.shape = {k, n};
    we.strides = {w.strides[1], w.strides[2]};
    const Tensor weight = to_dtype(we, DType::f32);
    for (std::int64_t i = begin; i < end; ++i) {
      read_row(x, i * x.strides[0], x.strides[1], k, row.data());
      std::fill(out.begin(), out.end(), 0.0F);
      for (std::int64_t q = 0; q < k; ++q) {
        const float* line = weight.as<float>() + q * n;
        const float v_in = row[static_cast<std::size_t>(q)];
        for (std::size_t j = 0; j < out.size(); ++j) out[j] += v_in * line[j];
      }
      if (a.has(2)) {
        std::vector<float> bias(out.size());
        read_row(a.in(2), e * a.in(2).strides[0], a.in(2).strides[1], n, bias.data());
        for (std::size_t j = 0; j < out.size(); ++j) out[j] += bias[j];
      }
      write_row(a.out(), i * n, 1, n, out.data());
    }
    begin = end;
  }
  // Rows past the last group have no expert.
  std::fill(out.begin(), out.end(), 0.0F);
  for (std::int64_t i = begin; i < m; ++i) write_row(a.out(), i * n, 1, n, out.data());
}

// ---- transpose_batchmatmul

std::vector<int> permutation(const std::vector<std::int64_t>& list) {
  if (list.empty()) return {0, 1, 2};
  return {list.begin(), list.end()};
}

std::vector<int> perm_of(const Args& args, std::string_view name) {
  const std::vector<int> p =
      permutation(args.has_attr(name) ? args.ints(name) : std::vector<std::int64_t>());
  std::vector<int> sorted = p;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != std::vector<int>{0, 1, 2}) args.fail(cat("needs ", name, " to permute 0, 1, 2"));
  return p;
}

SymDims permuted(const SymDims& shape, const std::vector<int>& p) {
  SymDims out;
  for (int i : p) out.push_back(shape[static_cast<std::size_t>(i)]);
  return out;
}

std::vector<Type> transpose_bmm_infer(const Args& args) {
  const Type& x = args.in(0);
  const Type& w = args.in(1);
  if (x.rank() != 3 || w.rank() != 3 || x.dtype != w.dtype || !is_float(x.dtype))
    args.fail(cat("needs two tensors of rank 3 and one dtype, got ", x.str(), " and ", w.str()));
  const SymDims a = permuted(x.shape, perm_of(args, "perm_x1"));
  const SymDims b = permuted(w.shape, perm_of(args, "perm_x2"));
  if (!(a[0] == b[0]) || !(a[2] == b[1]))
    args.fail(cat("needs [B, M, K] and [B, K, N] after permuting, got ", str(a), " and ", str(b)));
  return {{x.dtype, permuted({a[0], a[1], b[2]}, perm_of(args, "perm_y"))}};
}

TensorView permute(const TensorView& t, const std::vector<int>& p) {
  TensorView v = t;
  for (int i = 0; i < 3; ++i) {
    v.shape[i] = t.shape[p[static_cast<std::size_t>(i)]];
    v.strides[i] = t.strides[p[static_cast<std::size_t>(i)]];
  }
  return v;
}

std::vector<int> perm_of(const EvalArgs& a, std::string_view name) {
  if (!a.has_attr(name)) return {0, 1, 2};
  const Dims d = a.ints(name);
  return permutation({d.begin(), d.end()});
}

void transpose_bmm_eval(const EvalArgs& a) {
  const TensorView x = permute(a.in(0), perm_of(a, "perm_x1"));
  const Tensor w = to_dtype(permute(a.in(1), perm_of(a, "perm_x2")), DType::f32);
  // The result before perm_y: axis perm_y[i] of it is axis i of the output.
  const std::vector<int> py = perm_of(a, "perm_y");
  TensorView y = a.out();
  for (int i = 0; i < 3; ++i) {
    y.shape[py[static_cast<std::size_t>(i)]] = a.out().shape[i];
    y.strides[py[static_cast<std::size_t>(i)]] = a.out().strides[i];
  }
  const std::int64_t k = x.shape[2];
  const std::int64_t n = y.shape[2];
  std::vector<float> row(static_cast<std::size_t>(k));
  std::vector<float> out(static_cast<std::size_t>(n));
  for (std::int64_t b = 0; b < x.shape[0]; ++b) {
    for (std::int64_t i = 0; i < x.shape[1]; ++i) {
      read_row(x, b * x.strides[0] + i * x.strides[1], x.strides[2], k, row.data());
      std::fill(out.begin(), out.end(), 0.0F);
      for (std::int64_t q = 0; q < k; ++q)
        for (std::int64_t j = 0; j < n; ++j)
          out[static_cast<std::size_t>(j)] +=
              row[static_cast<std::size_t>(q)] * w.as<float>()[(b * k + q) * n + j];
      write_row(y, b * y.strides[0] + i * y.strides[1], y.strides[2], n, out.data());
    }
  }
}

}  // namespace

const OpDef npu_grouped_matmul{
    .name = "npu.npu_grouped_matmul",
    .schema =
        "(Tensor x, Tensor weight, Tensor? bias=None, Tensor? group_list=None, "
        "int? split_item=0, int? group_type=None, int? group_list_type=0, "
        "int? act_type=0) -> Tensor",
    .doc =
        "Rows of group e times weight[e] (+ bias[e]): x [M, K], weight [E, K, N]. group_list "
        "has running totals (type 0) or counts (1). torch_npu takes lists of tensors: these "
        "are their only members.",
    .infer = grouped_infer,
    .eval = grouped_eval,
};

const OpDef npu_transpose_batchmatmul{
    .name = "npu.npu_transpose_batchmatmul",
    .schema =
        "(Tensor input, Tensor weight, int[]? perm_x1=None, int[]? perm_x2=None, "
        "int[]? perm_y=None) -> Tensor",
    .doc =
        "y = permute(bmm(permute(input, perm_x1), permute(weight, perm_x2)), perm_y), all of "
        "rank 3.",
    .infer = transpose_bmm_infer,
    .eval = transpose_bmm_eval,
};

}  // namespace tk::ops

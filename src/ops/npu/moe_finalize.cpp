// Back from the order of experts to that of tokens; torch_npu 2.14. Sums in f32, rounded once.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/infer.h"
#include "ops/npu/int_rows.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

// ---- npu_moe_finalize_routing

constexpr int skip1 = 1, skip2 = 2, bias = 3, scales = 4, places = 5, experts = 6;

std::vector<Type> finalize_infer(const Args& args) {
  const Type& x = args.in(0);
  const Type& place = args.in(places);
  const std::int64_t mode = args.i64("drop_pad_mode");
  if (mode < 0 || mode > 3) args.fail(cat("needs drop_pad_mode 0 to 3, got ", mode));
  const bool drop = mode % 2 == 1;
  if (!is_float(x.dtype) || x.rank() < 2 || x.rank() > (drop ? 3 : 2) || place.rank() != 1 ||
      place.dtype != DType::i32)
    args.fail(cat("needs rows [T*K, H] (with dropping [E, C, H]) and places i32[T*K], got ",
                  x.str(), " and ", place.str()));
  Sym tokens = place.dim(0);
  if (args.has(scales)) {
    const Type& w = args.in(scales);
    if (w.rank() != 2 || !(w.numel() == place.dim(0)) || !is_float(w.dtype))
      args.fail(cat("needs scales [T, K] for places ", place.str(), ", got ", w.str()));
    tokens = w.dim(0);
  }
  if (!drop && !(x.dim(0) == place.dim(0)))
    args.fail(
        cat("needs a row for each place without dropping, got ", x.str(), " and ", place.str()));
  const Type out{x.dtype, {tokens, x.dim(-1)}};
  for (int i : {skip1, skip2})
    if (args.has(i) && args.in(i) != out)
      args.fail(cat("needs ", i == skip1 ? "skip1" : "skip2", " of type ", out.str(), ", got ",
                    args.in(i).str()));
  if (args.has(bias)) {
    const Type& b = args.in(bias);
    if (b.rank() != 2 || b.dtype != x.dtype || !(b.dim(1) == x.dim(-1)))
      args.fail(cat("needs a bias [E, H] of the rows' dtype, got ", b.str()));
    if (!args.has(experts)) args.fail("needs export_for_source_row with a bias");
  }
  if (args.has(experts)) {
    const Type& e = args.in(experts);
    if (e.dtype != DType::i32 || e.rank() != 2 || !(e.dim(0) == tokens) ||
        !(e.numel() == place.dim(0)))
      args.fail(cat("needs export_for_source_row i32[T, K], got ", e.str()));
  }
  return {out};
}

void finalize_eval(const EvalArgs& a) {
  const std::int64_t h = a.in(0).shape.back();
  const std::int64_t tokens = a.out().shape[0];
  const Tensor place = contiguous(a.in(places));
  const std::int64_t k = tokens == 0 ? 0 : place.numel() / tokens;
  const Tensor w = a.has(scales) ? to_dtype(a.in(scales), DType::f32) : Tensor();
  const Tensor expert = a.has(experts) ? contiguous(a.in(experts)) : Tensor();
  const RowWalk rows(a.in(0));
  const std::int64_t mode = a.i64("drop_pad_mode");
  std::vector<float> row(static_cast<std::size_t>(h));
  std::vector<float> sum(row.size());
  const auto add = [&](const TensorView& t, std::int64_t offset, float factor) {
    read_row(t, offset, t.strides.at(-1), h, row.data());
    for (std::size_t i = 0; i < row.size(); ++i) sum[i] += factor * row[i];
  };
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (int i : {skip1, skip2})
      if (a.has(i)) add(a.in(i), t * a.in(i).strides[0], 1);
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int64_t pair = mode < 2 ? j * tokens + t : t * k + j;
      const float factor = a.has(scales) ? w.as<float>()[t * k + j] : 1.0F;
      const std::int64_t at = place.as<std::int32_t>()[pair];
      if (at != -1 || mode % 2 == 0)
        add(a.in(0), rows.offset(checked_index(a, at, rows.count(), false)), factor);
      if (a.has(bias)) {
        const std::int64_t e =
            checked_index(a, expert.as<std::int32_t>()[t * k + j], a.in(bias).shape[0], false);
        add(a.in(bias), e * a.in(bias).strides[0], factor);
      }
    }
    write_row(a.out(), t * h, 1, h, sum.data());
  }
}

constexpr Limit finalize_limits[] = {
    {"moe_finalize_routing.skip", "skip2 is None or skip1 is not None",
     "op-plugin's docs: skip2 only with skip1; the wheel's text says the opposite"},
    {"moe_finalize_routing.drop", "drop_pad_mode in (0, 1, 2, 3)"},
};
constexpr std::string_view finalize_notes[] = {
    "0 column order, 1 column order with dropping, 2 row order, 3 row order with dropping; the "
    "result of init_routing_v2 is in row order, so use 2",
    "the wheel's text allows drop_pad_mode 0 only; models use 2 and op-plugin's docs list 0 to 3",
    "scales have the dtype of the rows",
    "k is a keyword of newer libraries only",
};
constexpr NpuFacts finalize_facts{
    .group = "moe",
    .signature =
        "npu_moe_finalize_routing(Tensor expanded_permuted_rows, Tensor? skip1, Tensor? skip2, "
        "Tensor? bias, Tensor? scales, Tensor expanded_src_to_dst_row, Tensor? "
        "export_for_source_row, int? drop_pad_mode=0, int? k=1) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "not named",
    .graph_mode = "stated; shape function; GE converter",
    .notes = finalize_notes,
    .limits = finalize_limits,
};

// ---- npu_moe_token_permute, npu_moe_token_unpermute

std::vector<Type> permute_infer(const Args& args) {
  const Type& x = args.in(0);
  const Type& ids = args.in(1);
  if (x.rank() != 2 || !is_float(x.dtype) || ids.rank() < 1 || ids.rank() > 2 ||
      !is_one_of(ids.dtype, {DType::i32, DType::i64}) || !(ids.dim(0) == x.dim(0)))
    args.fail(cat("needs tokens [T, H] and indices i32 or i64 [T] or [T, K], got ", x.str(),
                  " and ", ids.str()));
  if (args.flag("padded_mode")) args.fail("is known with padded_mode=False");
  Sym rows = ids.numel();
  if (args.has_attr("num_out_tokens")) {
    const Sym n = args.sym("num_out_tokens");
    if (!n.is_const() || n.value() > 0) rows = smaller(rows, n);
    if (n.is_const() && n.value() < 0) rows = larger(rows + n, 0);
  }
  return {{x.dtype, {rows, x.dim(1)}}, {DType::i32, {ids.numel()}}};
}

void permute_eval(const EvalArgs& a) {
  const Tensor ids = to_dtype(a.in(1), DType::i64);
  const std::int64_t pairs = ids.numel();
  const std::int64_t k = a.in(1).rank() == 2 ? a.in(1).shape[1] : 1;
  std::vector<std::int64_t> order(static_cast<std::size_t>(pairs));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
    return ids.as<std::int64_t>()[i] < ids.as<std::int64_t>()[j];
  });
  for (std::int64_t place = 0; place < pairs; ++place) {
    const std::int64_t pair = order[static_cast<std::size_t>(place)];
    a.out(1).as<std::int32_t>()[pair] = static_cast<std::int32_t>(place);
    if (place < a.out(0).shape[0]) copy_row(a.out(0), place, a.in(0), pair / k);
  }
}

constexpr Limit permute_limits[] = {
    {"moe_token_permute.n", "indices.numel < 16777215"},
    {"moe_token_permute.pad", "padded_mode is False"},
};
constexpr NpuFacts permute_facts{
    .group = "moe",
    .signature =
        "npu_moe_token_permute(Tensor tokens, Tensor indices, int? num_out_tokens=None, bool "
        "padded_mode=False) -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; no GE converter",
    .limits = permute_limits,
};

std::vector<Type> unpermute_infer(const Args& args) {
  const Type& x = args.in(0);
  const Type& index = args.in(1);
  if (x.rank() != 2 || !is_float(x.dtype) || index.rank() != 1 || index.dtype != DType::i32)
    args.fail(cat("needs permuted_tokens [N, H] and sorted_indices i32[T*K], got ", x.str(),
                  " and ", index.str()));
  if (args.flag("padded_mode") || args.has_attr("restore_shape"))
    args.fail("is known with padded_mode=False, without restore_shape");
  Sym tokens = index.dim(0);
  if (args.has(2)) {
    const Type& p = args.in(2);
    if (p.rank() != 2 || !is_float(p.dtype) || !(p.numel() == index.dim(0)))
      args.fail(cat("needs probs [T, K] of ", index.dim(0).str(), " pairs, got ", p.str()));
    tokens = p.dim(0);
  }
  return {{x.dtype, {tokens, x.dim(1)}}};
}

void unpermute_eval(const EvalArgs& a) {
  const std::int64_t h = a.in(0).shape[1];
  const std::int64_t k = a.has(2) ? a.in(2).shape[1] : 1;
  const Tensor index = contiguous(a.in(1));
  const Tensor p = a.has(2) ? to_dtype(a.in(2), DType::f32) : Tensor();
  std::vector<float> row(static_cast<std::size_t>(h));
  std::vector<float> sum(row.size());
  for (std::int64_t t = 0; t < a.out().shape[0]; ++t) {
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int64_t at =
          checked_index(a, index.as<std::int32_t>()[t * k + j], index.numel(), false);
      if (at >= a.in(0).shape[0]) continue;  // cut off by num_out_tokens
      read_row(a.in(0), at * a.in(0).strides[0], a.in(0).strides[1], h, row.data());
      const float factor = a.has(2) ? p.as<float>()[t * k + j] : 1.0F;
      for (std::size_t i = 0; i < row.size(); ++i) sum[i] += factor * row[i];
    }
    write_row(a.out(), t * h, 1, h, sum.data());
  }
}

constexpr Symbol unpermute_symbols[] = {
    {"topk", "1 if probs is None else probs.shape[1]", "experts of a token"},
};
constexpr Limit unpermute_limits[] = {
    {"moe_token_unpermute.k", "topk <= 512"},
};
constexpr NpuFacts unpermute_facts{
    .group = "moe",
    .signature =
        "npu_moe_token_unpermute(Tensor permuted_tokens, Tensor sorted_indices, Tensor? "
        "probs=None, bool padded_mode=False, int[]? restore_shape=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; no GE converter",
    .symbols = unpermute_symbols,
    .limits = unpermute_limits,
};

}  // namespace

const OpDef npu_moe_finalize_routing{
    .name = "npu.npu_moe_finalize_routing",
    .schema =
        "(Tensor expanded_permuted_rows, Tensor? skip1, Tensor? skip2, Tensor? bias, "
        "Tensor? scales, Tensor expanded_src_to_dst_row, Tensor? export_for_source_row, "
        "int? drop_pad_mode=0) -> Tensor",
    .doc =
        "out[t] = skip1[t] + skip2[t] + sum over j of scales[t, j] * (rows[p] + bias[expert[t, "
        "j]]), where p is place t * K + j of expanded_src_to_dst_row in row order (drop_pad_mode "
        "2, 3), j * T + t in column order (0, 1); with dropping (1, 3) the row of p = -1 is 0. "
        "torch_npu wants scales of the rows' dtype; here they may be wider.",
    .infer = finalize_infer,
    .eval = finalize_eval,
    .npu = &finalize_facts,
};

const OpDef npu_moe_token_permute{
    .name = "npu.npu_moe_token_permute",
    .schema =
        "(Tensor tokens, Tensor indices, int? num_out_tokens=None, bool padded_mode=False) -> "
        "(Tensor permuted_tokens, Tensor sorted_indices)",
    .doc =
        "Rows of tokens by expert, stable: permuted_tokens[sorted_indices[t * K + j]] = tokens[t]. "
        "num_out_tokens keeps so many rows, or, negative, leaves out so many.",
    .infer = permute_infer,
    .eval = permute_eval,
    .npu = &permute_facts,
};

const OpDef npu_moe_token_unpermute{
    .name = "npu.npu_moe_token_unpermute",
    .schema =
        "(Tensor permuted_tokens, Tensor sorted_indices, Tensor? probs=None, "
        "bool padded_mode=False, int[]? restore_shape=None) -> Tensor",
    .doc =
        "out[t] = sum over j of probs[t, j] * permuted_tokens[sorted_indices[t * K + j]]; without "
        "probs K is 1. Rows that permute left out are 0.",
    .infer = unpermute_infer,
    .eval = unpermute_eval,
    .npu = &unpermute_facts,
};

}  // namespace tk::ops

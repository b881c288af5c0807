// npu_attention_update of torch_npu 2.14: attention over shards of the keys, merged.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

std::vector<Type> update_infer(const Args& args) {
  const Type& lse = args.in(0);
  const Type& out = args.in(1);
  const std::int64_t kind = args.i64("update_type");
  if (kind != 0 && kind != 1) args.fail(cat("has update_type 0 and 1, got ", kind));
  need_float(args, 1);
  if (lse.rank() != 2 || out.rank() != 3 || lse.dtype != DType::f32 ||
      !(lse.dim(0) == out.dim(0)) || !(lse.dim(1) == out.dim(1)))
    args.fail(cat("needs for each shard lse f32[rows] and local_out [rows, D], got ", lse.str(),
                  " and ", out.str()));
  return {{out.dtype, {out.dim(1), out.dim(2)}},
          {DType::f32, kind == 1 ? SymDims{lse.dim(1)} : SymDims{0}}};
}

void update_eval(const EvalArgs& a) {
  const TensorView& lse = a.in(0);
  const TensorView& parts = a.in(1);
  const std::int64_t shards = lse.shape[0];
  const std::int64_t dim = parts.shape[2];
  std::vector<float> of(static_cast<std::size_t>(shards));
  std::vector<float> row(static_cast<std::size_t>(dim));
  std::vector<float> sum(static_cast<std::size_t>(dim));
  for (std::int64_t r = 0; r < lse.shape[1]; ++r) {
    read_row(lse, r * lse.strides[1], lse.strides[0], shards, of.data());
    for (float& x : of)
      if (x == INFINITY) x = -INFINITY;  // a shard that showed the query no key
    const float top = *std::max_element(of.begin(), of.end());
    float total = 0;
    for (const float x : of) total += top == -INFINITY ? 0 : std::exp(x - top);
    const float merged = total == 0 ? INFINITY : top + std::log(total);
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (std::int64_t s = 0; s < shards && total > 0; ++s) {
      const float weight = std::exp(of[static_cast<std::size_t>(s)] - merged);
      if (weight == 0) continue;
      read_row(parts, s * parts.strides[0] + r * parts.strides[1], parts.strides[2], dim,
               row.data());
      for (std::size_t d = 0; d < row.size(); ++d) sum[d] += weight * row[d];
    }
    write_row(a.out(0), r * dim, 1, dim, sum.data());
    if (a.out(1).numel() > 0) a.out(1).as<float>()[r] = merged;
  }
}

constexpr std::string_view notes[] = {
    "lse and local_out are lists of 1 to 16 shards of the same length; here each is one tensor of "
    "all shards",
    "lse: fp32 [B * S * heads]; local_out: fp32, fp16, bf16 [B * S * heads, D], D a multiple of 8 "
    "up to 512",
    "update_type 1 gives the merged lse too; otherwise it is empty here",
    "an lse of inf, which attention gives a query that sees no key, has no weight",
};
constexpr NpuFacts facts{
    .group = "attention",
    .signature =
        "npu_attention_update(Tensor[] lse, Tensor[] local_out, int update_type) -> (Tensor, "
        "Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = notes,
};

}  // namespace

const OpDef npu_attention_update{
    .name = "npu.npu_attention_update",
    .schema = "(Tensor lse, Tensor local_out, int update_type) -> (Tensor out, Tensor lse_out)",
    .doc =
        "Results of attention over shards of the keys, lse [shards, rows] and local_out [shards, "
        "rows, D], as one: the sum of local_out * exp(lse - lse_out), lse_out = "
        "log(sum(exp(lse))).",
    .infer = update_infer,
    .eval = update_eval,
    .cost = [](const Args& a, const Load&) { return moved(a, 3); },
    .npu = &facts,
};

}  // namespace tk::ops

// npu_moe_update_expert of torch_npu 2.14: which copy of an expert a token takes.
#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/infer.h"
#include "ops/npu/int_rows.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

constexpr int table = 1, scales = 2, threshold = 3, mask = 4;

std::vector<Type> infer(const Args& args) {
  const Type& ids = args.in(0);
  const Type& t = args.in(table);
  if (ids.rank() != 2 || !is_one_of(ids.dtype, {DType::i32, DType::i64}) || t.dtype != DType::i32 ||
      t.rank() != 2 || (t.dim(1).is_const() && t.dim(1).value() < 2))
    args.fail(
        cat("needs expert_ids i32 or i64 [BS, K] and eplb_table i32 [experts, 1 + copies], "
            "got ",
            ids.str(), " and ", t.str()));
  const std::int64_t mode = args.i64("balance_mode");
  const std::int64_t rank = args.i64("local_rank_id");
  const std::int64_t world = args.i64("world_size");
  if (mode != 0 && mode != 1) args.fail(cat("needs balance_mode 0 or 1, got ", mode));
  if (mode == 0 && (world < 1 || rank < 0 || rank >= world))
    args.fail(cat("needs 0 <= local_rank_id < world_size with balance_mode 0, got ", rank, " and ",
                  world));
  if (args.has(scales) != args.has(threshold) || (args.has(mask) && !args.has(scales)))
    args.fail("needs expert_scales and pruning_threshold together, and with an active_mask");
  if (args.has(scales) && (args.in(scales).shape != ids.shape || !is_float(args.in(scales).dtype)))
    args.fail(cat("needs expert_scales [BS, K] of floats, got ", args.in(scales).str()));
  if (args.has(threshold)) {
    const Type& p = args.in(threshold);
    if (p.dtype != DType::f32 ||
        (p.shape != SymDims{ids.dim(1)} && p.shape != SymDims{1, ids.dim(1)}))
      args.fail(cat("needs pruning_threshold f32 [K] or [1, K], got ", p.str()));
  }
  if (args.has(mask) && args.in(mask) != Type{DType::boolean, {ids.dim(0)}})
    args.fail(cat("needs active_mask bool [BS], got ", args.in(mask).str()));
  return {ids, {DType::boolean, ids.shape}};
}

std::int64_t physical(const EvalArgs& a, std::int64_t expert, std::int64_t token) {
  const TensorView& t = a.in(table);
  const std::int64_t columns = t.shape[1];
  const auto at = [&](std::int64_t j) {
    return static_cast<std::int64_t>(element(t, expert * columns + j));
  };
  const std::int64_t copies = at(0);
  if (copies < 1 || copies >= columns) bad_index(a, copies, columns, "number of copies");
  if (copies == 1) return at(1);
  if (a.i64("balance_mode") == 1) return at(1 + token % copies);
  const std::int64_t each = (a.i64("world_size") + copies - 1) / copies;
  return at(1 + a.i64("local_rank_id") / each);
}

void eval(const EvalArgs& a) {
  const std::int64_t tokens = a.in(0).shape[0];
  const std::int64_t k = a.in(0).shape[1];
  for (std::int64_t t = 0; t < tokens; ++t) {
    float sum = 0;
    for (std::int64_t j = 0; a.has(scales) && j < k; ++j) sum += scale_at(a.in(scales), t * k + j);
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int64_t i = t * k + j;
      const std::int64_t e = checked_index(a, static_cast<std::int64_t>(element(a.in(0), i)),
                                           a.in(table).shape[0], false);
      set_element(a.out(0), i, static_cast<double>(physical(a, e, t)));
      const bool active = !a.has(mask) || element(a.in(mask), t) != 0;
      a.out(1).as<bool>()[i] = active && (!a.has(scales) || sum * scale_at(a.in(threshold), j) <
                                                                scale_at(a.in(scales), i));
    }
  }
}

constexpr Limit limits[] = {
    {"moe_update_expert.mode", "balance_mode in (0, 1)"},
    {"moe_update_expert.ws", "balance_mode == 1 or 2 <= world_size <= 768"},
};
constexpr NpuFacts facts{
    .group = "moe",
    .signature =
        "npu_moe_update_expert(Tensor expert_ids, Tensor eplb_table, *, Tensor? "
        "expert_scales=None, Tensor? pruning_threshold=None, Tensor? active_mask=None, int "
        "local_rank_id=-1, int world_size=-1, int balance_mode=0) -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .limits = limits,
};

}  // namespace

const OpDef npu_moe_update_expert{
    .name = "npu.npu_moe_update_expert",
    .schema =
        "(Tensor expert_ids, Tensor eplb_table, Tensor? expert_scales=None, "
        "Tensor? pruning_threshold=None, Tensor? active_mask=None, int local_rank_id=-1, "
        "int world_size=-1, int balance_mode=0) -> "
        "(Tensor balanced_expert_ids, Tensor balanced_active_mask)",
    .doc =
        "eplb_table[e] = [n, the numbers of the n copies of expert e]. Token t takes copy "
        "local_rank_id // ceil(world_size / n) (balance_mode 0) or t % n (1). With expert_scales, "
        "pair (t, j) stays when sum(scales[t]) * pruning_threshold[j] < scales[t, j] and the token "
        "is active; without them all stay.",
    .infer = infer,
    .eval = eval,
    .npu = &facts,
};

}  // namespace tk::ops

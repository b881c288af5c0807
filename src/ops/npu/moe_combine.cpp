// npu_moe_distribute_combine of torch_npu 2.14 and the two halves it is made of on several ranks.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/infer.h"
#include "ops/npu/int_rows.h"
#include "ops/npu/moe_distribute.h"
#include "ops/npu/moe_exchange.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

// The operators have the same arguments in different places.
int place_of(const OpDef& op, std::string_view name) { return op.parsed().tensor_index(name); }
TensorView named(const EvalArgs& a, std::string_view name) {
  const int i = place_of(a.op(), name);
  return i >= 0 && a.has(i) ? a.in(i) : TensorView();
}
const Type* named(const Args& args, std::string_view name) {
  const int i = place_of(args.op(), name);
  return i >= 0 && args.has(i) ? &args.in(i) : nullptr;
}

void need(const Args& args, std::string_view name, const Type& expected) {
  const Type* t = named(args, name);
  if (t != nullptr && *t != expected)
    args.fail(cat("needs ", name, " of type ", expected.str(), ", got ", t->str()));
}

// ---- the rank with the experts

void need_rows(const Args& args, const Placement& p) {
  check_placement(args, p);
  const Type& x = *named(args, "expand_x");
  const Type& totals = *named(args, "ep_send_counts");
  if (x.rank() != 2 || !is_float(x.dtype))
    args.fail(cat("needs expand_x [A, H] of floats, got ", x.str()));
  const Sym least(p.ranks * p.local(p.rank));
  const Sym spare = totals.rank() == 1 ? totals.dim(0) - least : Sym(-1);
  if (totals.dtype != DType::i32 || (spare.is_const() && spare.value() < 0))
    args.fail(cat("needs ep_send_counts i32[", least.str(), "] or longer, got ", totals.str()));
  const std::int64_t mode = args.i64("comm_quant_mode");
  if (mode != 0 && mode != 2) args.fail(cat("needs comm_quant_mode 0 or 2, got ", mode));
}

// Counts [ranks, columns] from running totals over (local expert, source).
std::vector<std::int64_t> counts_of(const EvalArgs& a, const Placement& p, const TensorView& totals,
                                    std::int64_t rows) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(p.ranks * p.columns()), 0);
  std::int64_t before = 0;
  for (std::int64_t i = 0; i < p.local(p.rank) * p.ranks; ++i) {
    const auto total = static_cast<std::int64_t>(element(totals, i));
    if (total < before || total > rows)
      refuse(a,
             cat("has ep_send_counts that are no running totals of at most ", rows,
                 " rows: ", total, " after ", before),
             "give ep_recv_counts of the dispatch as they are");
    counts[static_cast<std::size_t>(i % p.ranks * p.columns() + i / p.ranks)] = total - before;
    before = total;
  }
  return counts;
}

[[noreturn]] void altered(const EvalArgs& a, std::int64_t place) {
  refuse(a, cat("has assist info that the dispatch did not make, at row ", place),
         "give assist_info_for_combine and ep_recv_counts of the same dispatch as they are");
}

// The row records, each checked; rows past the last are zeros.
std::vector<RowInfo> read_assist(const EvalArgs& a, const Placement& p, const TensorView& assist,
                                 const std::vector<std::int64_t>& counts) {
  const Tensor words = contiguous(assist);
  const auto* w = words.as<std::int32_t>();
  std::vector<RowInfo> infos;
  for (std::int64_t e = 0; e < p.local(p.rank); ++e)
    for (std::int64_t r = 0; r < p.ranks; ++r)
      for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(r * p.columns() + e)]; ++i) {
        const auto place = static_cast<std::int64_t>(infos.size());
        if ((place + 1) * assist_words > words.numel()) altered(a, place);
        RowInfo info{};
        std::memcpy(&info, w + place * assist_words, sizeof info);
        const auto expected = assist_row(info, place, p.rank);
        const bool shared = p.rank < p.shared_ranks;
        if (!std::equal(expected.begin(), expected.end(), w + place * assist_words) ||
            info.source != r ||
            (shared ? info.expert >= 0 : info.expert != (p.rank - p.shared_ranks) * p.each() + e))
          altered(a, place);
        infos.push_back(info);
      }
  const std::int64_t end = static_cast<std::int64_t>(infos.size()) * assist_words;
  for (std::int64_t i = end; i < words.numel(); ++i)
    if (w[i] != 0) altered(a, i / assist_words);
  return infos;
}

// Rows in the order in which they came, with their info, and how many go to each rank.
std::vector<std::int64_t> send_back(const EvalArgs& a, const Placement& p, const TensorView& assist,
                                    const TensorView& rows, const TensorView& info) {
  const TensorView x = named(a, "expand_x");
  const std::int64_t h = x.shape[1];
  const std::vector<std::int64_t> counts = counts_of(a, p, named(a, "ep_send_counts"), x.shape[0]);
  const std::vector<std::int64_t> order = expert_order(p, counts.data());
  std::vector<RowInfo> infos(order.size());
  if (assist.data != nullptr) infos = read_assist(a, p, assist, counts);
  std::vector<float> row(static_cast<std::size_t>(h));
  std::vector<std::int8_t> small(row.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto from = static_cast<std::int64_t>(i);
    std::memcpy(info.as<std::int32_t>() + order[i] * 4, &infos[i], sizeof(RowInfo));
    if (a.i64("comm_quant_mode") == 0) {
      copy_row(rows, order[i], x, from);
      continue;
    }
    read_row(x, from * x.strides[0], x.strides[1], h, row.data());
    const float scale = quantise_row(row, small.data());
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = static_cast<float>(small[j]) * scale;
    write_row(rows, order[i] * h, 1, h, row.data());
  }
  return counts;
}

std::vector<Type> send_infer(const Args& args) {
  const Placement p = placement_of(args);
  need_rows(args, p);
  const Type& x = args.in(0);
  return {x, {DType::i32, {x.dim(0), 4}}, {DType::i64, {p.ranks, p.columns()}}};
}

void send_eval(const EvalArgs& a) {
  for (int i = 0; i < 2; ++i)
    std::memset(a.out(i).data, 0, static_cast<std::size_t>(a.out(i).bytes()));
  const auto counts = send_back(a, placement_of(a), named(a, "assist_info"), a.out(0), a.out(1));
  std::copy(counts.begin(), counts.end(), a.out(2).as<std::int64_t>());
}

// ---- the rank with the tokens

Type need_tokens(const Args& args, const Placement& p, const Type& x) {
  const Type& ids = *named(args, "expert_ids");
  if (ids.dtype != DType::i32 || ids.rank() != 2)
    args.fail(cat("needs expert_ids i32[BS, K], got ", ids.str()));
  const Type out{x.dtype, {ids.dim(0), x.dim(1)}};
  need(args, "expert_scales", {DType::f32, ids.shape});
  need(args, "ori_x", out);
  for (std::string_view name : {"const_expert_alpha_1", "const_expert_alpha_2", "const_expert_v"}) {
    need(args, name, {x.dtype, {p.constant, x.dim(1)}});
    if (p.constant > 0 && named(args, name) == nullptr)
      args.fail(cat("needs ", name, " with const_expert_num ", p.constant));
  }
  if (p.copied + p.constant > 0 && named(args, "ori_x") == nullptr)
    args.fail("needs ori_x with copy_expert_num or const_expert_num");
  if (const Type* m = named(args, "x_active_mask");
      m != nullptr &&
      (m->dtype != DType::boolean || (m->shape != SymDims{ids.dim(0)} && m->shape != ids.shape)))
    args.fail(cat("needs x_active_mask bool [BS] or [BS, K], got ", m->str()));
  if (const Type* s = named(args, "shared_expert_x");
      s != nullptr && (s->dtype != x.dtype || s->rank() < 2 || s->rank() > 3 ||
                       !(s->dim(-1) == x.dim(1)) || !(s->numel() == out.numel())))
    args.fail(cat("needs shared_expert_x ", out.str(), ", got ", s->str()));
  return out;
}

// The special experts of numbers from `routed` on: zero, copy, constant.
void add_special(const EvalArgs& a, const Placement& p, std::int64_t token, std::int64_t expert,
                 float weight, std::vector<float>* sum) {
  const std::int64_t i = expert - p.routed - p.zero;
  if (i < 0) return;
  const auto n = static_cast<std::int64_t>(sum->size());
  std::vector<float> row(sum->size());
  const auto add = [&](std::string_view name, std::int64_t line, float factor,
                       std::string_view times) {
    const TensorView t = named(a, name);
    read_row(t, line * t.strides[0], t.strides[1], n, row.data());
    std::vector<float> by(row.size(), 1.0F);
    if (!times.empty()) {
      const TensorView f = named(a, times);
      read_row(f, (i - p.copied) * f.strides[0], f.strides[1], n, by.data());
    }
    for (std::size_t j = 0; j < row.size(); ++j) (*sum)[j] += factor * by[j] * row[j];
  };
  if (i < p.copied) return add("ori_x", token, weight, "");
  add("ori_x", token, weight, "const_expert_alpha_1");
  add("const_expert_v", i - p.copied, weight, "const_expert_alpha_2");
}

void check_expand_idx(const EvalArgs& a, const Sending& s, const TensorView& index,
                      std::int64_t k) {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < s.rows.size(); ++i) {
    n = i > 0 && s.rows[i].expert == s.rows[i - 1].expert ? n + 1 : 0;
    const std::int64_t pair = s.rows[i].token * k + s.rows[i].choice;
    if (s.rows[i].expert >= 0 &&
        (pair >= index.numel() || static_cast<std::int64_t>(element(index, pair)) != n))
      refuse(a, cat("has an expand_idx that the dispatch did not make, at pair ", pair),
             "give expand_idx and expert_ids of the same dispatch as they are");
  }
}

// y[t] = sum of weights * rows + what needs no exchange. `info` has null data where rows carry
// none; `index` is expand_idx of the first version.
void merge(const EvalArgs& a, const Placement& p, const TensorView& rows, const TensorView& info,
           const TensorView& index, const TensorView& out) {
  const TensorView ids = named(a, "expert_ids");
  const TensorView mask = named(a, "x_active_mask");
  const TensorView weights = named(a, "expert_scales");
  const std::int64_t tokens = ids.shape[0];
  const std::int64_t k = ids.shape[1];
  const std::int64_t h = out.shape[1];
  const Sending s = sending(a, p, ids, mask);
  if (static_cast<std::int64_t>(s.rows.size()) > rows.shape[0])
    refuse(a, cat("gets ", rows.shape[0], " rows back and sent ", s.rows.size()),
           "give the expert_ids and x_active_mask of the dispatch");
  if (index.data != nullptr) check_expand_idx(a, s, index, k);
  std::vector<std::vector<float>> sum(static_cast<std::size_t>(tokens),
                                      std::vector<float>(static_cast<std::size_t>(h), 0.0F));
  std::vector<float> row(static_cast<std::size_t>(h));
  for (std::size_t i = 0; i < s.rows.size(); ++i) {
    const Sent& r = s.rows[i];
    const auto at = static_cast<std::int64_t>(i);
    if (info.data != nullptr) {
      RowInfo found{};
      std::memcpy(&found, info.as<std::int32_t>() + at * 4, sizeof found);
      const RowInfo expected{static_cast<std::int32_t>(p.rank), static_cast<std::int32_t>(r.token),
                             static_cast<std::int32_t>(r.choice),
                             static_cast<std::int32_t>(r.expert)};
      if (!(found == expected))
        refuse(a,
               cat("gets back token ", found.token, " of expert ", found.expert, " where it sent ",
                   r.token, " to ", r.expert),
               "give assist_info_for_combine, ep_recv_counts and expert_ids of the same dispatch");
    }
    read_row(rows, at * rows.strides[0], rows.strides[1], h, row.data());
    const float w = r.choice < k ? scale_at(weights, r.token * k + r.choice) : 1.0F;
    auto& to = sum[static_cast<std::size_t>(r.token)];
    for (std::size_t j = 0; j < row.size(); ++j) to[j] += w * row[j];
  }
  const TensorView shared = named(a, "shared_expert_x");
  const RowWalk shared_rows(shared.data == nullptr ? out : shared);
  for (std::int64_t t = 0; t < tokens; ++t) {
    auto& to = sum[static_cast<std::size_t>(t)];
    for (std::int64_t j = 0; j < k; ++j) {
      const bool part =
          mask.data == nullptr || element(mask, mask.rank() == 1 ? t : t * k + j) != 0;
      const auto e = static_cast<std::int64_t>(element(ids, t * k + j));
      if (part && e >= p.routed) add_special(a, p, t, e, scale_at(weights, t * k + j), &to);
    }
    if (shared.data != nullptr) {
      read_row(shared, shared_rows.offset(t), shared.strides.at(-1), h, row.data());
      for (std::size_t j = 0; j < row.size(); ++j) to[j] += row[j];
    }
    write_row(out, t * h, 1, h, to.data());
  }
}

std::vector<Type> receive_infer(const Args& args) {
  const Placement p = placement_of(args);
  check_placement(args, p);
  const Type& x = args.in(0);
  if (x.rank() != 2 || !is_float(x.dtype))
    args.fail(cat("needs rows [R, H] of floats, got ", x.str()));
  need(args, "info", {DType::i32, {x.dim(0), 4}});
  return {need_tokens(args, p, x)};
}

void receive_eval(const EvalArgs& a) {
  const TensorView given = named(a, "info");
  const Tensor info = given.data == nullptr ? Tensor() : contiguous(given);
  merge(a, placement_of(a), a.in(0), info, named(a, "expand_idx"), a.out());
}

// ---- the whole, on one rank

std::vector<Type> combine_infer(const Args& args) {
  const Placement p = placement_of(args);
  need_rows(args, p);
  if (args.i64("expert_shard_type") != 0) args.fail("needs expert_shard_type 0");
  const Type out = need_tokens(args, p, args.in(0));
  for (std::string_view name : {"assist_info_for_combine", "expand_idx"})
    if (const Type* t = named(args, name);
        t != nullptr && (t->dtype != DType::i32 || t->rank() != 1))
      args.fail(cat("needs ", name, " i32 of one axis, got ", t->str()));
  return {out};
}

void combine(const EvalArgs& a, const TensorView& assist, const TensorView& index,
             const TensorView& out) {
  const Placement p = placement_of(a);
  if (p.ranks != 1)
    refuse(a, cat("needs the other ", p.ranks - 1, " ranks"),
           "one process computes it for ep_world_size 1; the emulation exchanges what "
           "_moe_combine_send and _moe_combine_receive make");
  const TensorView& x = a.in(0);
  const Tensor rows = Tensor::zeros(x.dtype, x.shape);
  const Tensor info = Tensor::zeros(DType::i32, {x.shape[0], 4});
  send_back(a, p, assist, rows, info);
  merge(a, p, rows, assist.data == nullptr ? TensorView() : TensorView(info), index, out);
}

void combine_v2_eval(const EvalArgs& a) {
  combine(a, named(a, "assist_info_for_combine"), {}, a.out());
}
void combine_v1_eval(const EvalArgs& a) { combine(a, {}, named(a, "expand_idx"), a.out()); }

std::vector<Type> combine_norm_infer(const Args& args) {
  const Type out = combine_infer(args)[0];
  const Type sum{out.dtype, {out.dim(0), 1, out.dim(1)}};
  need(args, "residual_x", sum);
  need(args, "gamma", {out.dtype, {out.dim(1)}});
  return {sum, {DType::f32, {out.dim(0), 1, 1}}, sum};
}

void combine_norm_eval(const EvalArgs& a) {
  const TensorView residual = named(a, "residual_x");
  Tensor combined = Tensor::empty(residual.dtype, {residual.shape[0], residual.shape[2]});
  combine(a, named(a, "expand_idx"), {}, combined);
  combined.shape = residual.shape;
  combined.strides = contiguous_strides(combined.shape);
  const std::array<TensorView, 3> in{combined, residual, named(a, "gamma")};
  const std::array<TensorView, 3> out{a.out(0), a.out(1), a.out(2)};
  const Attrs attrs{{"epsilon", a.f64("norm_eps")}};
  npu_add_rms_norm.eval(EvalArgs(npu_add_rms_norm, in, out, attrs, a.env()));
}

constexpr Symbol v2_symbols[] = {
    {"BS", "expert_ids.shape[0]", "tokens of this rank"},
    {"H", "expand_x.shape[1]", "hidden size"},
    {"K", "expert_ids.shape[1]", "experts of a token"},
    {"local_experts",
     "1 if ep_rank_id < shared_expert_rank_num else moe_expert_num // (ep_world_size - "
     "shared_expert_rank_num)",
     "experts of this rank"},
};
constexpr Limit v2_limits[] = {
    TK_DISTRIBUTE_LIMITS("moe_distribute_combine_v2"),
    {"moe_distribute_combine_v2.shared_a2",
     "shared_expert_rank_num == 0 and shared_expert_x is None",
     "no shared experts in these operators on A2", "a2"},
};
constexpr std::string_view v2_notes[] = {
    "op-plugin's docs tie shared_expert_x to ranks of shared experts and exclude A2; the recipes "
    "pass it with shared_expert_rank_num 0",
    "ids of one token are distinct and in range (moe_distribute_combine_v2.distinct)",
    "expand_scales is required on A2; comm_quant_mode 0 or 2",
};
constexpr NpuFacts v2_facts{
    .group = "moe",
    .signature =
        "npu_moe_distribute_combine_v2(Tensor expand_x, Tensor expert_ids, Tensor "
        "assist_info_for_combine, Tensor ep_send_counts, Tensor expert_scales, str group_ep, int "
        "ep_world_size, int ep_rank_id, int moe_expert_num, *, Tensor? tp_send_counts=None, "
        "Tensor? x_active_mask=None, Tensor? expand_scales=None, Tensor? shared_expert_x=None, "
        "Tensor? elastic_info=None, Tensor? ori_x=None, Tensor? const_expert_alpha_1=None, Tensor? "
        "const_expert_alpha_2=None, Tensor? const_expert_v=None, Tensor? performance_info=None, "
        "str group_tp=\"\", int tp_world_size=0, int tp_rank_id=0, int expert_shard_type=0, int "
        "shared_expert_num=1, int shared_expert_rank_num=0, int global_bs=0, int "
        "comm_quant_mode=0, str comm_alg=\"\", int zero_expert_num=0, int copy_expert_num=0, int "
        "const_expert_num=0) -> Tensor",
    .source = "op-plugin docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "static graph (op-plugin docs); shape function; GE converter",
    .notes = v2_notes,
    .symbols = v2_symbols,
    .limits = v2_limits,
};

constexpr Limit v1_limits[] = {
    {"moe_distribute_combine.experts24",
     "moe_expert_num // (ep_world_size - shared_expert_rank_num) <= 24", "", "a2"},
};
constexpr NpuFacts v1_facts{
    .group = "moe",
    .signature =
        "npu_moe_distribute_combine(Tensor expand_x, Tensor expert_ids, Tensor expand_idx, Tensor "
        "ep_send_counts, Tensor expert_scales, str group_ep, int ep_world_size, int ep_rank_id, "
        "int moe_expert_num, *, Tensor? tp_send_counts=None, Tensor? x_active_mask=None, Tensor? "
        "activation_scale=None, Tensor? weight_scale=None, Tensor? group_list=None, Tensor? "
        "expand_scales=None, Tensor? shared_expert_x=None, str group_tp=\"\", int tp_world_size=0, "
        "int tp_rank_id=0, int expert_shard_type=0, int shared_expert_num=1, int "
        "shared_expert_rank_num=0, int global_bs=0, int out_dtype=0, int comm_quant_mode=0, int "
        "group_list_type=0) -> Tensor",
    .source = "op-plugin docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "static graph (op-plugin docs); shape function; GE converter",
    .limits = v1_limits,
};

constexpr std::string_view norm_notes[] = {
    "residual_x [BS, 1, H], gamma [H]; expand_idx is the assist info of dispatch_v2",
};
constexpr NpuFacts norm_facts{
    .group = "moe",
    .signature =
        "npu_moe_distribute_combine_add_rms_norm(Tensor expand_x, Tensor expert_ids, Tensor "
        "expand_idx, Tensor ep_send_counts, Tensor expert_scales, Tensor residual_x, Tensor gamma, "
        "str group_ep, int ep_world_size, int ep_rank_id, int moe_expert_num, *, Tensor? "
        "tp_send_counts=None, Tensor? x_active_mask=None, Tensor? activation_scale=None, Tensor? "
        "weight_scale=None, Tensor? group_list=None, Tensor? expand_scales=None, Tensor? "
        "shared_expert_x=None, Tensor? elastic_info=None, Tensor? ori_x=None, Tensor? "
        "const_expert_alpha_1=None, Tensor? const_expert_alpha_2=None, Tensor? "
        "const_expert_v=None, str group_tp=\"\", int tp_world_size=0, int tp_rank_id=0, int "
        "expert_shard_type=0, int shared_expert_num=1, int shared_expert_rank_num=0, int "
        "global_bs=0, int out_dtype=0, int comm_quant_mode=0, int group_list_type=0, str "
        "comm_alg=\"\", float norm_eps=1e-06, int zero_expert_num=0, int copy_expert_num=0, int "
        "const_expert_num=0) -> (Tensor, Tensor, Tensor)",
    .source = "library schema + op-plugin docs",
    .a2 = "unknown",
    .a3 = "yes",
    .graph_mode = "static graph (op-plugin docs); shape function; GE converter",
    .notes = norm_notes,
};

}  // namespace

const OpDef npu_moe_distribute_combine_v2{
    .name = "npu.npu_moe_distribute_combine_v2",
    .schema =
        "(Tensor expand_x, Tensor expert_ids, Tensor assist_info_for_combine, "
        "Tensor ep_send_counts, Tensor expert_scales, Tensor? tp_send_counts=None, "
        "Tensor? x_active_mask=None, Tensor? expand_scales=None, Tensor? shared_expert_x=None, "
        "Tensor? ori_x=None, Tensor? const_expert_alpha_1=None, "
        "Tensor? const_expert_alpha_2=None, Tensor? const_expert_v=None, str group_ep, "
        "int ep_world_size, int ep_rank_id, int moe_expert_num, str group_tp=\"\", "
        "int tp_world_size=0, int tp_rank_id=0, int expert_shard_type=0, "
        "int shared_expert_num=1, int shared_expert_rank_num=0, int global_bs=0, "
        "int comm_quant_mode=0, str comm_alg=\"\", int zero_expert_num=0, "
        "int copy_expert_num=0, int const_expert_num=0) -> Tensor",
    .doc =
        "The way back of npu_moe_distribute_dispatch_v2: y[t] = sum of expert_scales[t, j] * the "
        "row of expert j + rows of shared experts + shared_expert_x[t]; zero experts give 0, copy "
        "experts ori_x[t], constant ones alpha_1 * ori_x[t] + alpha_2 * v. comm_quant_mode 2: rows "
        "travel as int8 with a scale. Assist info that the dispatch did not make is refused. The "
        "reference is that of one rank; on several: _moe_combine_send, an exchange, "
        "_moe_combine_receive.",
    .infer = combine_infer,
    .eval = combine_v2_eval,
    .npu = &v2_facts,
};

const OpDef npu_moe_distribute_combine{
    .name = "npu.npu_moe_distribute_combine",
    .schema =
        "(Tensor expand_x, Tensor expert_ids, Tensor expand_idx, Tensor ep_send_counts, "
        "Tensor expert_scales, Tensor? tp_send_counts=None, Tensor? x_active_mask=None, "
        "Tensor? expand_scales=None, Tensor? shared_expert_x=None, str group_ep, "
        "int ep_world_size, int ep_rank_id, int moe_expert_num, str group_tp=\"\", "
        "int tp_world_size=0, int tp_rank_id=0, int expert_shard_type=0, "
        "int shared_expert_num=1, int shared_expert_rank_num=0, int global_bs=0, "
        "int comm_quant_mode=0) -> Tensor",
    .doc = "The way back of npu_moe_distribute_dispatch; see npu_moe_distribute_combine_v2.",
    .infer = combine_infer,
    .eval = combine_v1_eval,
    .npu = &v1_facts,
};

const OpDef npu_moe_distribute_combine_add_rms_norm{
    .name = "npu.npu_moe_distribute_combine_add_rms_norm",
    .schema =
        "(Tensor expand_x, Tensor expert_ids, Tensor expand_idx, Tensor ep_send_counts, "
        "Tensor expert_scales, Tensor residual_x, Tensor gamma, Tensor? tp_send_counts=None, "
        "Tensor? x_active_mask=None, Tensor? expand_scales=None, Tensor? shared_expert_x=None, "
        "Tensor? ori_x=None, Tensor? const_expert_alpha_1=None, "
        "Tensor? const_expert_alpha_2=None, Tensor? const_expert_v=None, str group_ep, "
        "int ep_world_size, int ep_rank_id, int moe_expert_num, str group_tp=\"\", "
        "int tp_world_size=0, int tp_rank_id=0, int expert_shard_type=0, "
        "int shared_expert_num=1, int shared_expert_rank_num=0, int global_bs=0, "
        "int comm_quant_mode=0, str comm_alg=\"\", float norm_eps=1e-06, "
        "int zero_expert_num=0, int copy_expert_num=0, int const_expert_num=0) -> "
        "(Tensor y, Tensor rstd, Tensor x)",
    .doc = "npu_add_rms_norm of what npu_moe_distribute_combine_v2 gives and residual_x.",
    .infer = combine_norm_infer,
    .eval = combine_norm_eval,
    .npu = &norm_facts,
};

const OpDef moe_combine_send{
    .name = "npu._moe_combine_send",
    .schema =
        "(Tensor expand_x, Tensor ep_send_counts, Tensor? assist_info=None, int ep_world_size, "
        "int ep_rank_id, int moe_expert_num, int shared_expert_num=1, "
        "int shared_expert_rank_num=0, int comm_quant_mode=0) -> "
        "(Tensor rows, Tensor info, Tensor counts)",
    .doc =
        "What a rank sends back in a combine, in the order in which the rows came: rows and "
        "[source, token, choice, expert] from the assist info, which is checked; as many as the "
        "sum of counts [ranks, experts a rank], the number of rows for each.",
    .infer = send_infer,
    .eval = send_eval,
};

const OpDef moe_combine_receive{
    .name = "npu._moe_combine_receive",
    .schema =
        "(Tensor rows, Tensor expert_ids, Tensor expert_scales, Tensor? info=None, "
        "Tensor? expand_idx=None, Tensor? x_active_mask=None, Tensor? shared_expert_x=None, "
        "Tensor? ori_x=None, Tensor? const_expert_alpha_1=None, "
        "Tensor? const_expert_alpha_2=None, Tensor? const_expert_v=None, int ep_world_size, "
        "int ep_rank_id, int moe_expert_num, int shared_expert_num=1, "
        "int shared_expert_rank_num=0, int zero_expert_num=0, int copy_expert_num=0, "
        "int const_expert_num=0) -> Tensor",
    .doc =
        "The result of a combine from the rows that came back, in the order in which "
        "_moe_dispatch_send sent them; info, where given, must be theirs, and expand_idx that of "
        "the dispatch.",
    .infer = receive_infer,
    .eval = receive_eval,
};

}  // namespace tk::ops

// npu_moe_distribute_dispatch of torch_npu 2.14 and the two halves it is made of on several ranks.
#include <algorithm>
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

// Of all dispatches and of the sending half.
constexpr int x = 0, expert_ids = 1, scales = 2, mask = 3, expert_scales = 4;

TensorView maybe(const EvalArgs& a, int i) { return a.has(i) ? a.in(i) : TensorView(); }

DType sent_dtype(const Args& args) {
  return args.i64("quant_mode") == 2 ? DType::i8 : args.in(x).dtype;
}

void need_dispatch(const Args& args, const Placement& p) {
  check_placement(args, p);
  const Type& rows = args.in(x);
  const Type& ids = args.in(expert_ids);
  const bool packed = rows.dtype == DType::i32;
  if (rows.rank() != 2 || ids.rank() != 2 || ids.dtype != DType::i32 ||
      !(rows.dim(0) == ids.dim(0)) || !is_one_of(rows.dtype, {DType::bf16, DType::f16, DType::i32}))
    args.fail(cat("needs x bf16, f16 or packed int4 [BS, H] and expert_ids i32[BS, K], got ",
                  rows.str(), " and ", ids.str()));
  const std::int64_t quant = args.i64("quant_mode");
  if (quant != 0 && (quant != 2 || packed))
    args.fail(cat("needs quant_mode 0, or 2 for x in bf16 or f16, got ", quant));
  if (args.has(scales)) {
    const Type expected = packed ? Type{DType::f32, {rows.dim(0)}}
                                 : Type{DType::f32, {p.routed + p.extra(), rows.dim(1)}};
    if (args.in(scales) != expected || (quant == 0 && !packed))
      args.fail(cat("needs scales of type ", expected.str(),
                    " with quant_mode 2 or packed int4, got ", args.in(scales).str()));
  } else if (packed) {
    args.fail("needs scales f32[BS] for packed int4");
  }
  if (args.has(mask) &&
      (args.in(mask).dtype != DType::boolean ||
       (args.in(mask).shape != SymDims{rows.dim(0)} && args.in(mask).shape != ids.shape)))
    args.fail(cat("needs x_active_mask bool [BS] or [BS, K], got ", args.in(mask).str()));
  const Type weights{DType::f32, ids.shape};
  if (args.has(expert_scales) && args.in(expert_scales) != weights)
    args.fail(
        cat("needs expert_scales of type ", weights.str(), ", got ", args.in(expert_scales).str()));
}

// Sizes of what is received, as the library's shape function has them.
struct Room {
  Sym rows, assist, counts;
};
Room room_of(const Args& args, const Placement& p, const Type& ids, bool weighted) {
  const Sym given = args.sym("global_bs");
  const Sym all = given.is(0) ? ids.dim(0) * Sym(p.ranks) : given;
  const Sym k = ids.dim(1);
  const std::int64_t local = p.local(p.rank);
  Room r;
  if (p.rank < p.shared_ranks) {
    const std::int64_t copies = p.shared_ranks / p.shared;
    r.rows = floordiv(all, p.ranks) * Sym((p.ranks + copies - 1) / copies);
  } else {
    r.rows = all * smaller(local, k);
  }
  r.assist = larger(ids.dim(0) * k, r.rows * Sym(assist_words));
  r.counts = Sym(p.ranks * local);
  if (weighted) r.counts = r.counts + all * Sym(2) * k * Sym(p.ranks / 8);
  return r;
}

std::vector<Type> received_types(const Args& args, const Placement& p, DType dtype, const Sym& h,
                                 const Type& ids, bool weighted) {
  const Room r = room_of(args, p, ids, weighted);
  const std::int64_t type = args.i64("expert_token_nums_type");
  if (type != 0 && type != 1) args.fail(cat("needs expert_token_nums_type 0 or 1, got ", type));
  const std::int64_t tp = args.i64("tp_world_size");
  if (tp != 0 && tp != 1) args.fail(cat("needs tp_world_size 0 or 1, got ", tp));
  return {{dtype, {r.rows, h}},
          {DType::f32, {r.rows}},
          {DType::i32, {r.assist}},
          {DType::i64, {p.local(p.rank)}},
          {DType::i32, {r.counts}},
          {DType::i32, {tp}},
          {DType::f32, {weighted ? r.rows : Sym(0)}}};
}

// ---- the sending half

// Rows in the order in which they are sent; only the first `count` of the tensors are filled.
struct Packet {
  TensorView rows, scales, info, weights;
};

void pack(const EvalArgs& a, const Placement& p, const Sending& s, const Packet& to) {
  const std::int64_t h = a.in(x).shape[1];
  const std::int64_t k = a.in(expert_ids).shape[1];
  const bool quant = a.i64("quant_mode") == 2;
  std::vector<float> row(static_cast<std::size_t>(h));
  std::vector<float> smooth(row.size());
  for (std::size_t i = 0; i < s.rows.size(); ++i) {
    const Sent& r = s.rows[i];
    const auto at = static_cast<std::int64_t>(i);
    const RowInfo info{static_cast<std::int32_t>(p.rank), static_cast<std::int32_t>(r.token),
                       static_cast<std::int32_t>(r.choice), static_cast<std::int32_t>(r.expert)};
    std::memcpy(to.info.as<std::int32_t>() + at * 4, &info, sizeof info);
    to.weights.as<float>()[at] = a.has(expert_scales) && r.choice < k
                                     ? scale_at(a.in(expert_scales), r.token * k + r.choice)
                                     : 1.0F;
    float& scale = to.scales.as<float>()[at];
    scale = 0;
    if (!quant) {
      copy_row(to.rows, at, a.in(x), r.token);
      if (a.has(scales)) scale = scale_at(a.in(scales), r.token);  // of packed int4
      continue;
    }
    read_row(a.in(x), r.token * a.in(x).strides[0], a.in(x).strides[1], h, row.data());
    if (a.has(scales)) {
      // Shared experts come first there.
      const std::int64_t line = r.expert < 0 ? -1 - r.expert : p.extra() + r.expert;
      const TensorView& t = a.in(scales);
      read_row(t, line * t.strides[0], t.strides[1], h, smooth.data());
      for (std::size_t j = 0; j < row.size(); ++j) row[j] *= smooth[j];
    }
    scale = quantise_row(row, to.rows.as<std::int8_t>() + at * h);
  }
}

void clear(const TensorView& t) { std::memset(t.data, 0, static_cast<std::size_t>(t.bytes())); }

// For each pair: how many rows this rank sent to the same expert before it; -1 for none.
void write_expand_idx(const Sending& s, const TensorView& out, std::int64_t k) {
  auto* index = out.as<std::int32_t>();
  std::fill_n(index, out.numel(), -1);
  std::int32_t n = 0;
  for (std::size_t i = 0; i < s.rows.size(); ++i) {
    n = i > 0 && s.rows[i].expert == s.rows[i - 1].expert ? n + 1 : 0;
    if (s.rows[i].expert >= 0) index[s.rows[i].token * k + s.rows[i].choice] = n;
  }
}

std::vector<Type> send_infer(const Args& args) {
  const Placement p = placement_of(args);
  need_dispatch(args, p);
  const Type& ids = args.in(expert_ids);
  const Sym rows = ids.dim(0) * (ids.dim(1) + Sym(p.extra()));
  return {{sent_dtype(args), {rows, args.in(x).dim(1)}},
          {DType::f32, {rows}},
          {DType::i32, {rows, 4}},
          {DType::f32, {rows}},
          {DType::i64, {p.ranks, p.columns()}},
          {DType::i32, {ids.numel()}}};
}

void send_eval(const EvalArgs& a) {
  const Placement p = placement_of(a);
  const Sending s = sending(a, p, a.in(expert_ids), maybe(a, mask));
  for (int i = 0; i < 4; ++i) clear(a.out(i));
  pack(a, p, s, {a.out(0), a.out(1), a.out(2), a.out(3)});
  std::copy(s.counts.begin(), s.counts.end(), a.out(4).as<std::int64_t>());
  write_expand_idx(s, a.out(5), a.in(expert_ids).shape[1]);
}

// ---- the receiving half

// What arrived, into the seven results from `first` on.
void unpack(const EvalArgs& a, const Placement& p, const Packet& from, const std::int64_t* counts,
            bool assist) {
  const std::vector<std::int64_t> order = expert_order(p, counts);
  const auto n = static_cast<std::int64_t>(order.size());
  if (n > a.out(0).shape[0] || n > from.rows.shape[0])
    refuse(a, cat("receives ", n, " rows and has room for ", a.out(0).shape[0]),
           "give global_bs = the largest BS of all ranks times ep_world_size");
  for (int i = 0; i < 7; ++i)
    if (i != 2 || assist) clear(a.out(i));
  for (std::int64_t place = 0; place < n; ++place) {
    const std::int64_t i = order[static_cast<std::size_t>(place)];
    copy_row(a.out(0), place, from.rows, i);
    a.out(1).as<float>()[place] = from.scales.as<float>()[i];
    if (a.out(6).numel() > 0) a.out(6).as<float>()[place] = from.weights.as<float>()[i];
    if (!assist) continue;
    RowInfo info{};
    std::memcpy(&info, from.info.as<std::int32_t>() + i * 4, sizeof info);
    const auto words = assist_row(info, place, p.rank);
    std::copy(words.begin(), words.end(), a.out(2).as<std::int32_t>() + place * assist_words);
  }
  const bool totals = a.i64("expert_token_nums_type") == 0;
  std::int64_t total = 0;
  std::int64_t at = 0;
  for (std::int64_t e = 0; e < p.local(p.rank); ++e) {
    const std::int64_t before = total;
    for (std::int64_t r = 0; r < p.ranks; ++r) {
      total += counts[r * p.columns() + e];
      a.out(4).as<std::int32_t>()[at++] = static_cast<std::int32_t>(total);
    }
    a.out(3).as<std::int64_t>()[e] = totals ? total : total - before;
  }
}

std::vector<Type> receive_infer(const Args& args) {
  const Placement p = placement_of(args);
  check_placement(args, p);
  const Type& rows = args.in(0);
  const Type counts{DType::i64, {p.ranks, p.columns()}};
  if (rows.rank() != 2 || args.in(4) != counts)
    args.fail(cat("needs rows [R, H] and counts ", counts.str(), ", got ", rows.str(), " and ",
                  args.in(4).str()));
  if (args.in(1) != Type{DType::f32, {rows.dim(0)}} || args.in(3) != args.in(1) ||
      args.in(2) != Type{DType::i32, {rows.dim(0), 4}})
    args.fail("needs scales f32[R], info i32[R, 4] and weights f32[R] with the rows");
  return received_types(args, p, rows.dtype, rows.dim(1), args.in(5), args.flag("weighted"));
}

void receive_eval(const EvalArgs& a) {
  const Placement p = placement_of(a);
  const Tensor scale = contiguous(a.in(1));
  const Tensor info = contiguous(a.in(2));
  const Tensor weight = contiguous(a.in(3));
  const Tensor counts = contiguous(a.in(4));
  unpack(a, p, {a.in(0), scale, info, weight}, counts.as<std::int64_t>(), true);
}

// ---- the whole, on one rank

std::vector<Type> dispatch_infer(const Args& args) {
  const Placement p = placement_of(args);
  need_dispatch(args, p);
  if (args.i64("expert_shard_type") != 0) args.fail("needs expert_shard_type 0");
  return received_types(args, p, sent_dtype(args), args.in(x).dim(1), args.in(expert_ids),
                        args.has(expert_scales));
}

std::vector<Type> dispatch_v1_infer(const Args& args) {
  std::vector<Type> types = dispatch_infer(args);
  types[2].shape = {args.in(expert_ids).numel()};
  return types;
}

void dispatch(const EvalArgs& a, bool assist) {
  const Placement p = placement_of(a);
  if (p.ranks != 1)
    refuse(a, cat("needs the other ", p.ranks - 1, " ranks"),
           "one process computes it for ep_world_size 1; the emulation exchanges what "
           "_moe_dispatch_send and _moe_dispatch_receive make");
  const Sending s = sending(a, p, a.in(expert_ids), maybe(a, mask));
  const auto n = static_cast<std::int64_t>(s.rows.size());
  const Tensor rows = Tensor::zeros(a.out(0).dtype, {n, a.in(x).shape[1]});
  const Tensor scale = Tensor::zeros(DType::f32, {n});
  const Tensor info = Tensor::zeros(DType::i32, {n, 4});
  const Tensor weight = Tensor::zeros(DType::f32, {n});
  pack(a, p, s, {rows, scale, info, weight});
  unpack(a, p, {rows, scale, info, weight}, s.counts.data(), assist);
  if (!assist) write_expand_idx(s, a.out(2), a.in(expert_ids).shape[1]);
}

void dispatch_v2_eval(const EvalArgs& a) { dispatch(a, true); }
void dispatch_v1_eval(const EvalArgs& a) { dispatch(a, false); }

constexpr Symbol v2_symbols[] = {
    {"BS", "x.shape[0]", "tokens of this rank"},
    {"H", "x.shape[1]", "hidden size"},
    {"K", "expert_ids.shape[1]", "experts of a token"},
    {"local_experts",
     "1 if ep_rank_id < shared_expert_rank_num else moe_expert_num // (ep_world_size - "
     "shared_expert_rank_num)",
     "experts of this rank"},
};
constexpr Limit v2_limits[] = {
    TK_DISTRIBUTE_LIMITS("moe_distribute_dispatch_v2"),
    {"moe_distribute_dispatch_v2.shared_a2", "shared_expert_rank_num == 0",
     "no shared experts in these operators on A2", "a2"},
};
constexpr std::string_view v2_notes[] = {
    "to be paired with combine_v2 or combine_add_rms_norm, which take assist info, counts and "
    "scales as they are",
    "one EP group for all layers, and no other operator in that group; its parameters are equal on "
    "all ranks",
    "ids of one token are distinct and in range (moe_distribute_dispatch_v2.distinct)",
    "HCCL buffer, A3 \"\" and fullmesh_v1: at least 2 * (local_experts * max_bs * ep * A512(A32(2 "
    "* "
    "H) + 64) + (K + shared) * max_bs * A512(2 * H)) bytes; fullmesh_v2: ceil(.. / 480) * 512 for "
    "the first A512; A2 fullmesh: 2 * (BS * ep * min(local_experts, K) * 2 * H + 2 MB); 200 MB "
    "unless set",
    "A2's combine needs the seventh result, expand_scales",
    "x also int32 that packs int4 on A2; x_active_mask bool [BS] with the true ones first, or [BS, "
    "K]",
    "quant_mode: 0 none, 2 dynamic int8; global_bs: 0, or max_bs * ep",
};
constexpr NpuFacts v2_facts{
    .group = "moe",
    .signature =
        "npu_moe_distribute_dispatch_v2(Tensor x, Tensor expert_ids, str group_ep, int "
        "ep_world_size, int ep_rank_id, int moe_expert_num, *, Tensor? scales=None, Tensor? "
        "x_active_mask=None, Tensor? expert_scales=None, Tensor? elastic_info=None, Tensor? "
        "performance_info=None, str group_tp=\"\", int tp_world_size=0, int tp_rank_id=0, int "
        "expert_shard_type=0, int shared_expert_num=1, int shared_expert_rank_num=0, int "
        "quant_mode=0, int global_bs=0, int expert_token_nums_type=1, str comm_alg=\"\", int "
        "zero_expert_num=0, int copy_expert_num=0, int const_expert_num=0, int? y_dtype=None, int? "
        "x_dtype=None, int? scales_dtype=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, "
        "Tensor)",
    .source = "op-plugin docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "static graph (op-plugin docs); shape function; GE converter",
    .notes = v2_notes,
    .symbols = v2_symbols,
    .limits = v2_limits,
};

constexpr Limit v1_limits[] = {
    {"moe_distribute_dispatch.experts24",
     "moe_expert_num // (ep_world_size - shared_expert_rank_num) <= 24", "", "a2"},
};
constexpr std::string_view v1_notes[] = {
    "the third result is expand_idx [BS * K] instead of assist info",
};
constexpr NpuFacts v1_facts{
    .group = "moe",
    .signature =
        "npu_moe_distribute_dispatch(Tensor x, Tensor expert_ids, str group_ep, int ep_world_size, "
        "int ep_rank_id, int moe_expert_num, *, Tensor? scales=None, Tensor? x_active_mask=None, "
        "Tensor? expert_scales=None, str group_tp=\"\", int tp_world_size=0, int tp_rank_id=0, int "
        "expert_shard_type=0, int shared_expert_num=1, int shared_expert_rank_num=0, int "
        "quant_mode=0, int global_bs=0, int expert_token_nums_type=1) -> (Tensor, Tensor, Tensor, "
        "Tensor, Tensor, Tensor, Tensor)",
    .source = "op-plugin docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "static graph (op-plugin docs); shape function; GE converter",
    .notes = v1_notes,
    .limits = v1_limits,
};

}  // namespace

const OpDef npu_moe_distribute_dispatch_v2{
    .name = "npu.npu_moe_distribute_dispatch_v2",
    .schema =
        "(Tensor x, Tensor expert_ids, Tensor? scales=None, Tensor? x_active_mask=None, "
        "Tensor? expert_scales=None, str group_ep, int ep_world_size, int ep_rank_id, "
        "int moe_expert_num, str group_tp=\"\", int tp_world_size=0, int tp_rank_id=0, "
        "int expert_shard_type=0, int shared_expert_num=1, int shared_expert_rank_num=0, "
        "int quant_mode=0, int global_bs=0, int expert_token_nums_type=1, str comm_alg=\"\", "
        "int zero_expert_num=0, int copy_expert_num=0, int const_expert_num=0) -> "
        "(Tensor expand_x, Tensor dynamic_scales, Tensor assist_info_for_combine, "
        "Tensor expert_token_nums, Tensor ep_recv_counts, Tensor tp_recv_counts, "
        "Tensor expand_scales)",
    .doc =
        "Sends x[t] to the ranks of the experts expert_ids[t]; a rank gets its rows in the order "
        "(local expert, source, token): expand_x [A, H], quantised per row with quant_mode 2 (x "
        "times scales[expert], dynamic_scales), rows past those received 0; rows per local expert; "
        "running totals over (local expert, source). The reference is that of one rank; on "
        "several: _moe_dispatch_send, an exchange of its rows, _moe_dispatch_receive.",
    .infer = dispatch_infer,
    .eval = dispatch_v2_eval,
    .npu = &v2_facts,
};

const OpDef npu_moe_distribute_dispatch{
    .name = "npu.npu_moe_distribute_dispatch",
    .schema =
        "(Tensor x, Tensor expert_ids, Tensor? scales=None, Tensor? x_active_mask=None, "
        "Tensor? expert_scales=None, str group_ep, int ep_world_size, int ep_rank_id, "
        "int moe_expert_num, str group_tp=\"\", int tp_world_size=0, int tp_rank_id=0, "
        "int expert_shard_type=0, int shared_expert_num=1, int shared_expert_rank_num=0, "
        "int quant_mode=0, int global_bs=0, int expert_token_nums_type=1) -> "
        "(Tensor expand_x, Tensor dynamic_scales, Tensor expand_idx, "
        "Tensor expert_token_nums, Tensor ep_recv_counts, Tensor tp_recv_counts, "
        "Tensor expand_scales)",
    .doc =
        "As npu_moe_distribute_dispatch_v2, with expand_idx [BS * K] instead of assist info: how "
        "many rows this rank sent to the same expert before that pair (-1: it was not sent).",
    .infer = dispatch_v1_infer,
    .eval = dispatch_v1_eval,
    .npu = &v1_facts,
};

const OpDef moe_dispatch_send{
    .name = "npu._moe_dispatch_send",
    .schema =
        "(Tensor x, Tensor expert_ids, Tensor? scales=None, Tensor? x_active_mask=None, "
        "Tensor? expert_scales=None, int ep_world_size, int ep_rank_id, int moe_expert_num, "
        "int shared_expert_num=1, int shared_expert_rank_num=0, int quant_mode=0, "
        "int zero_expert_num=0, int copy_expert_num=0, int const_expert_num=0) -> "
        "(Tensor rows, Tensor row_scales, Tensor info, Tensor weights, Tensor counts, "
        "Tensor expand_idx)",
    .doc =
        "What a rank sends in a dispatch, in the order (destination, local expert, token): rows, "
        "their scales, [source, token, choice, expert], the experts' weights; as many as the sum "
        "of counts [ranks, experts a rank], the number of rows for each.",
    .infer = send_infer,
    .eval = send_eval,
};

const OpDef moe_dispatch_receive{
    .name = "npu._moe_dispatch_receive",
    .schema =
        "(Tensor rows, Tensor row_scales, Tensor info, Tensor weights, Tensor counts, "
        "Tensor expert_ids, int ep_world_size, int ep_rank_id, int moe_expert_num, "
        "int tp_world_size=0, int shared_expert_num=1, int shared_expert_rank_num=0, "
        "int global_bs=0, int expert_token_nums_type=1, bool weighted=False) -> "
        "(Tensor expand_x, Tensor dynamic_scales, Tensor assist_info_for_combine, "
        "Tensor expert_token_nums, Tensor ep_recv_counts, Tensor tp_recv_counts, "
        "Tensor expand_scales)",
    .doc =
        "The results of a dispatch from what arrived, rank after rank: counts [ranks, experts a "
        "rank] has what each rank sent here. expert_ids are this rank's own, for their shape; "
        "`weighted` when the call has expert_scales.",
    .infer = receive_infer,
    .eval = receive_eval,
};

}  // namespace tk::ops

// The rows that ranks of expert parallelism send to each other's experts, and their way back. One
// rank's part of it: what goes where is computed here, the exchange itself is somebody else's.
//
// A rank sends in the order (destination, its local expert, token). The receiver keeps the order
// (local expert, source). Results go back in the order in which the rows came.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "graph/op.h"

namespace tk::ops {

// Which rank has which experts: the first `shared_ranks` have one shared expert each, the others
// an equal part of the routed ones. Numbers from `routed` on are special experts that are computed
// at home: the zero, copy and constant experts, in that order.
struct Placement {
  std::int64_t ranks, rank, routed, shared_ranks, shared, zero, copied, constant;
  std::int64_t local(std::int64_t r) const { return r < shared_ranks ? 1 : each(); }
  std::int64_t each() const { return routed / (ranks - shared_ranks); }
  std::int64_t columns() const { return std::max<std::int64_t>(1, each()); }  // of count tables
  std::int64_t extra() const { return shared_ranks > 0 ? shared : 0; }  // shared experts of a token
  std::int64_t all() const { return routed + zero + copied + constant; }
};

template <typename A>  // Args or EvalArgs; older operators lack the special experts
Placement placement_of(const A& a) {
  const auto number = [&](std::string_view name) {
    return a.op().parsed().find_attr(name) == nullptr ? 0 : a.i64(name);
  };
  return {number("ep_world_size"),          number("ep_rank_id"),        number("moe_expert_num"),
          number("shared_expert_rank_num"), number("shared_expert_num"), number("zero_expert_num"),
          number("copy_expert_num"),        number("const_expert_num")};
}
void check_placement(const Args& args, const Placement& p);

// A row that is sent. Shared expert i is number -1 - i, and its choice is K + i.
struct Sent {
  std::int64_t token, choice, expert;
};
struct Sending {
  std::vector<Sent> rows;
  std::vector<std::int64_t> counts;  // [ranks, columns]
};
// Ids [BS, K] and the mask ([BS] or [BS, K], or none) of tokens that take part. Throws TK0501 for
// ids that are no expert, TK0312 for two equal ones of a token and for a mask with gaps.
Sending sending(const EvalArgs& a, const Placement& p, const TensorView& ids,
                const TensorView& mask);

// What travels with a row.
struct RowInfo {
  std::int32_t source, token, choice, expert;
  friend bool operator==(const RowInfo&, const RowInfo&) = default;
};
constexpr std::int64_t assist_words = 128;
// The record of the row at `place` of what a rank received: the info, where it is, a check sum.
std::array<std::int32_t, assist_words> assist_row(const RowInfo& info, std::int64_t place,
                                                  std::int64_t rank);

// Refuses values (TK0312): "op what", and what to do.
[[noreturn]] void refuse(const EvalArgs& a, std::string_view what, std::string_view help);

// Where each received row goes: place i of the experts' order takes row order[i] of the order of
// arrival.
std::vector<std::int64_t> expert_order(const Placement& p, const std::int64_t* counts);

}  // namespace tk::ops

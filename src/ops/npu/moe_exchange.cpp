#include "ops/npu/moe_exchange.h"

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"

namespace tk::ops {
namespace {

bool takes_part(const TensorView& mask, std::int64_t t, std::int64_t j, std::int64_t k) {
  return mask.data == nullptr || element(mask, mask.rank() == 1 ? t : t * k + j) != 0;
}

void check_mask(const EvalArgs& a, const TensorView& mask) {
  if (mask.data == nullptr || mask.rank() != 1) return;
  for (std::int64_t t = 1; t < mask.shape[0]; ++t)
    if (element(mask, t) != 0 && element(mask, t - 1) == 0)
      refuse(a, cat("has an x_active_mask with token ", t, " after one that takes no part"),
             "put the tokens that take part first, or give a mask [BS, K]");
}

}  // namespace

void refuse(const EvalArgs& a, std::string_view what, std::string_view help) {
  throw UserError("TK0312", cat(a.op().name, " ", what)).help(std::string(help));
}

void check_placement(const Args& args, const Placement& p) {
  if (p.ranks < 1 || p.rank < 0 || p.rank >= p.ranks)
    args.fail(cat("needs 0 <= ep_rank_id < ep_world_size, got ", p.rank, " and ", p.ranks));
  if (p.shared_ranks < 0 || p.shared_ranks >= p.ranks || p.shared < 0 ||
      (p.shared_ranks > 0 && (p.shared == 0 || p.shared_ranks % p.shared != 0)))
    args.fail(
        cat("needs shared_expert_rank_num < ep_world_size, a multiple of shared_expert_num; "
            "got ",
            p.shared_ranks, " ranks for ", p.shared, " experts"));
  if (p.routed < 1 || p.routed % (p.ranks - p.shared_ranks) != 0)
    args.fail(cat("needs moe_expert_num to be a multiple of the ", p.ranks - p.shared_ranks,
                  " ranks with routed experts, got ", p.routed));
  if (p.zero < 0 || p.copied < 0 || p.constant < 0)
    args.fail("needs zero_expert_num, copy_expert_num and const_expert_num >= 0");
}

Sending sending(const EvalArgs& a, const Placement& p, const TensorView& ids,
                const TensorView& mask) {
  check_mask(a, mask);
  const std::int64_t tokens = ids.shape[0];
  const std::int64_t k = ids.shape[1];
  const std::int64_t columns = p.columns();
  std::vector<std::vector<Sent>> to(static_cast<std::size_t>(p.ranks * columns));
  std::vector<std::int64_t> last(static_cast<std::size_t>(p.all()), -1);  // token of each expert
  for (std::int64_t t = 0; t < tokens; ++t) {
    bool any = false;
    for (std::int64_t j = 0; j < k; ++j) {
      if (!takes_part(mask, t, j, k)) continue;
      any = true;
      const auto e =
          checked_index(a, static_cast<std::int64_t>(element(ids, t * k + j)), p.all(), false);
      if (std::exchange(last[static_cast<std::size_t>(e)], t) == t)
        refuse(a, cat("has expert ", e, " twice for token ", t),
               "expert_ids of one token must be distinct (moe_distribute_dispatch_v2.distinct)");
      if (e >= p.routed) continue;  // computed at home
      const std::int64_t rank = p.shared_ranks + e / p.each();
      to[static_cast<std::size_t>(rank * columns + e % p.each())].push_back({t, j, e});
    }
    for (std::int64_t i = 0; any && i < p.extra(); ++i) {
      const std::int64_t copies = p.shared_ranks / p.shared;
      const std::int64_t rank = i * copies + p.rank % copies;
      to[static_cast<std::size_t>(rank * columns)].push_back({t, k + i, -1 - i});
    }
  }
  Sending s;
  for (const auto& list : to) {
    s.counts.push_back(static_cast<std::int64_t>(list.size()));
    s.rows.insert(s.rows.end(), list.begin(), list.end());
  }
  return s;
}

std::array<std::int32_t, assist_words> assist_row(const RowInfo& info, std::int64_t place,
                                                  std::int64_t rank) {
  std::array<std::int32_t, assist_words> words{info.source,
                                               info.token,
                                               info.choice,
                                               info.expert,
                                               static_cast<std::int32_t>(place),
                                               static_cast<std::int32_t>(rank)};
  std::uint32_t sum = 2166136261U;  // FNV-1a
  for (std::size_t i = 0; i < 6; ++i)
    sum = (sum ^ static_cast<std::uint32_t>(words[i])) * 16777619U;
  words[6] = static_cast<std::int32_t>(sum);
  return words;
}

std::vector<std::int64_t> expert_order(const Placement& p, const std::int64_t* counts) {
  const std::int64_t columns = p.columns();
  const std::int64_t local = p.local(p.rank);
  std::vector<std::int64_t> start;  // of (source, local expert) in the order of arrival
  std::int64_t total = 0;
  for (std::int64_t r = 0; r < p.ranks; ++r)
    for (std::int64_t e = 0; e < local; ++e) {
      start.push_back(total);
      total += counts[r * columns + e];
    }
  std::vector<std::int64_t> order;
  for (std::int64_t e = 0; e < local; ++e)
    for (std::int64_t r = 0; r < p.ranks; ++r)
      for (std::int64_t i = 0; i < counts[r * columns + e]; ++i)
        order.push_back(start[static_cast<std::size_t>(r * local + e)] + i);
  return order;
}

}  // namespace tk::ops

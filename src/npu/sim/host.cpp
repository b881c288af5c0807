// The host: one thread that issues in order, a second one that hands over, and replays of a graph
// (VN-50, VN-51). Asked for the issue of a unit it works as far as that unit and no farther.
#include <algorithm>

#include "npu/sim/loop.h"

namespace tk::sim {
namespace {
std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
}  // namespace

Ps Loop::issue_time(std::int32_t unit) {
  if (s.issued[at(unit)] >= 0) return s.issued[at(unit)];
  const std::int32_t rank = r.units[at(unit)].rank;
  RankState& rk = s.ranks[at(rank)];
  if (!host_issues()) return s.issued[at(unit)] = rk.graph_at;
  const std::vector<std::int32_t>& order = r.host[at(rank)];
  while (rk.host_next <= r.host_position[at(unit)]) {
    if (rk.host_needs != none) {
      if (s.ended[at(rk.host_needs)] < 0) return -1;
      rk.host_at = std::max(rk.host_at, s.ended[at(rk.host_needs)]);
      rk.host_needs = none;
    }
    const std::int32_t v = order[at(rk.host_next)];
    const std::int32_t index = r.parts[at(r.units[at(v)].first)];
    const Launch& l = p.launches[at(index)];
    const std::int32_t behind = r.position[at(index)] - d.queue_depth;
    if (behind >= 0) {  // a full queue takes no more until a task of it is done
      const std::int32_t w = r.queue[at(l.stream)][at(behind)];
      if (s.ended[at(w)] < 0) {
        rk.host_needs = w;
        return -1;
      }
      rk.host_at = std::max(rk.host_at, s.ended[at(w)]);
    }
    const Ps work = l.host >= 0 ? l.host : d.host_per_launch;
    const Ps hand = l.dispatch >= 0 ? l.dispatch : d.dispatch_per_launch;
    rk.host_at += work;
    rk.host_busy += work;
    Ps issue = rk.host_at;
    if (hand > 0) issue = rk.dispatch_at = std::max(rk.dispatch_at, rk.host_at) + hand;
    s.issued[at(v)] = issue;
    s.frontier = std::max(s.frontier, r.units[at(v)].last_launch + 1);
    ++rk.host_next;
    if (l.host_sync) rk.host_needs = v;
  }
  return s.issued[at(unit)];
}

void Loop::host_go_on(std::int32_t rank) {
  if (s.ranks[at(rank)].host_needs == none) return;
  if (s.ended[at(s.ranks[at(rank)].host_needs)] < 0) return;
  for (std::size_t k = 0; k < s.streams.size(); ++k)
    if (s.streams[k].stage == Stage::issue && p.streams[k].rank == rank)
      try_issue(static_cast<std::int32_t>(k));
}

}  // namespace tk::sim

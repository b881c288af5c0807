#include "npu/sim/collective.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "base/error.h"

namespace tk::sim {
namespace {

using Kind = CollectiveKind;

// Rate of a level that algorithms reach, bytes per second.
std::int64_t reached(const DeviceParams& d, std::size_t level) {
  return d.links[level].rate / 1000 * d.link_permille;
}

std::int64_t part(std::int64_t bytes, std::int64_t of, std::int64_t n) {
  return static_cast<std::int64_t>(static_cast<__int128>(bytes) * of / n);
}

bool is_traffic(Kind k) {
  return k == Kind::all_to_all || k == Kind::dispatch || k == Kind::combine;
}

// Reduce-scatter or all-gather of `bytes` among n on one level: one pass over the links.
std::optional<CommPhase> one_pass(const DeviceParams& d, std::size_t level, std::int64_t n,
                                  std::int64_t bytes, Algorithm a) {
  const LinkLevel& l = d.links[level];
  CommPhase p;
  p.bytes[level] = part(bytes, n - 1, n);
  if (a == Algorithm::ring) {
    p.latency = (n - 1) * l.latency;
    p.of_links = l.links;  // a ring goes over one link of a mesh
  } else if (a == Algorithm::mesh) {
    // To every peer at once, each over its own link; a peer more is a Write Value and a Notify
    // more.
    p.latency = l.latency + (n - 1) * d.per_peer;
    p.links = static_cast<std::int32_t>(std::min<std::int64_t>(n - 1, l.links));
    p.of_links = l.links;
  } else {
    if (!std::has_single_bit(static_cast<std::uint64_t>(n))) return std::nullopt;
    p.latency = static_cast<Ps>(std::bit_width(static_cast<std::uint64_t>(n)) - 1) * l.latency;
    p.of_links = l.links;
  }
  return p;
}

// How many passes a kind makes over the data: what a reduce-scatter and an all-gather are one of.
int passes(Kind k) { return k == Kind::all_reduce || k == Kind::broadcast ? 2 : 1; }

std::optional<CommCost> flat(const DeviceParams& d, std::size_t level, std::int64_t n,
                             const Collective& c, Algorithm a) {
  CommCost cost;
  cost.algorithm = a;
  if (c.kind == Kind::broadcast && a == Algorithm::ring) {  // a pipeline: every link carries all
    CommPhase p;
    p.latency = (n - 1) * d.links[level].latency;
    p.bytes[level] = c.bytes;
    p.of_links = d.links[level].links;
    cost.phases = {p};
    return cost;
  }
  const auto p = one_pass(d, level, n, c.bytes, a);
  if (!p) return std::nullopt;
  cost.phases.assign(static_cast<std::size_t>(passes(c.kind)), *p);
  return cost;
}

// Members in each block of a level if that is the same everywhere, else 0.
std::int64_t members_per_block(const DeviceParams& d, std::size_t level,
                               std::vector<std::int32_t> blocks) {
  for (std::int32_t& b : blocks) b /= d.links[level].size;
  std::sort(blocks.begin(), blocks.end());
  std::int64_t each = 0;
  for (std::size_t i = 0; i < blocks.size();) {
    std::size_t j = i;
    while (j < blocks.size() && blocks[j] == blocks[i]) ++j;
    if (each != 0 && each != static_cast<std::int64_t>(j - i)) return 0;
    each = static_cast<std::int64_t>(j - i);
    i = j;
  }
  return each;
}

// Die pair, then node, then beyond: reduce-scatter inwards, all-gather outwards, what is left of
// the data on each farther level.
std::optional<CommCost> hierarchical(const DeviceParams& d,
                                     const std::vector<std::int32_t>& members, std::size_t top,
                                     const Collective& c) {
  CommCost cost;
  cost.algorithm = Algorithm::hierarchical;
  std::int64_t bytes = c.bytes, inner = 1;
  std::vector<CommPhase> out;
  for (std::size_t level = 0; level <= top; ++level) {
    const std::int64_t all = members_per_block(d, level, members);
    if (all == 0 || all % inner != 0) return std::nullopt;
    const std::int64_t n = all / inner;
    inner = all;
    if (n == 1) continue;
    std::optional<CommPhase> best;
    Ps fastest = 0;
    for (const Algorithm a : {Algorithm::ring, Algorithm::mesh, Algorithm::halving_doubling}) {
      const auto p = one_pass(d, level, n, bytes, a);
      if (!p) continue;
      CommCost one;
      one.phases = {*p};
      const Ps t = one.alone(d);
      if (!best || t < fastest) best = p, fastest = t;
    }
    out.push_back(*best);
    bytes /= n;
  }
  if (out.size() < 2) return std::nullopt;
  if (c.kind != Kind::all_gather) cost.phases = out;
  if (c.kind != Kind::reduce_scatter)
    cost.phases.insert(cost.phases.end(), out.rbegin(), out.rend());
  return cost;
}

// Of one member: what goes over its links of each level, by the pairs' bytes.
CommPhase exchange(const DeviceParams& d, const std::vector<std::int32_t>& members, std::size_t me,
                   const std::vector<std::int64_t>& pairs) {
  const std::size_t n = members.size();
  CommPhase p;
  std::array<std::int64_t, max_levels> send{}, receive{}, pair{}, peers{};
  for (std::size_t j = 0; j < n; ++j) {
    if (j == me) continue;
    const std::size_t level = level_of(d, members[me], members[j]);
    send[level] += pairs[me * n + j];
    receive[level] += pairs[j * n + me];
    pair[level] = std::max({pair[level], pairs[me * n + j], pairs[j * n + me]});
    ++peers[level];
  }
  for (std::size_t l = 0; l < d.links.size(); ++l) {
    if (peers[l] == 0) continue;
    // In a mesh the link to one peer can be the hottest: it has rate / links.
    p.bytes[l] = std::max(send[l], receive[l]);
    if (d.links[l].links > 1) p.bytes[l] = std::max(p.bytes[l], pair[l] * d.links[l].links);
    p.latency = std::max<Ps>(p.latency, d.links[l].latency);
    p.latency += peers[l] * d.per_peer;
  }
  return p;
}

CommCost traffic_cost(const Plan& plan, const DeviceParams& d, const Collective& c,
                      const std::vector<std::int32_t>& members, std::int32_t device_number) {
  const std::size_t n = members.size();
  std::vector<std::int64_t> pairs;
  if (c.traffic != none)
    pairs = plan.traffic[static_cast<std::size_t>(c.traffic)].bytes;
  else
    pairs.assign(n * n, c.bytes / static_cast<std::int64_t>(n));
  CommCost worst;
  Ps longest = -1;
  for (std::size_t i = 0; i < n; ++i) {
    if (device_number != none && members[i] != device_number) continue;
    CommCost one;
    one.algorithm = Algorithm::mesh;
    one.phases = {exchange(d, members, i, pairs)};
    const Ps t = one.alone(d);
    if (t > longest) longest = t, worst = one;
  }
  return worst;
}

}  // namespace

Ps CommCost::alone(const DeviceParams& d) const {
  Ps t = setup;
  for (const CommPhase& p : phases) {
    Ps slowest = 0;
    for (std::size_t l = 0; l < d.links.size(); ++l) {
      if (p.bytes[l] == 0) continue;
      const __int128 rate = static_cast<__int128>(reached(d, l)) * p.links / p.of_links;
      const __int128 ps = (static_cast<__int128>(p.bytes[l]) * 1'000'000'000'000 + rate - 1) / rate;
      slowest = std::max(slowest, static_cast<Ps>(ps));
    }
    t += p.latency + slowest;
  }
  return t;
}

std::size_t level_of(const DeviceParams& d, std::int32_t a, std::int32_t b) {
  for (std::size_t l = 0; l < d.links.size(); ++l)
    if (a / d.links[l].size == b / d.links[l].size) return l;
  throw UserError("TK1401", cat("nothing links device ", a, " and device ", b, ": ",
                                d.links.empty() ? "the device has no links"
                                                : cat("the farthest level, ", d.links.back().name,
                                                      ", joins ", d.links.back().size)));
}

CommCost cost_of_collective(const Plan& plan, const Collective& c, const DeviceParams& d,
                            std::int32_t device_number) {
  const std::vector<std::int32_t>& members = plan.groups[static_cast<std::size_t>(c.group)].devices;
  const auto n = static_cast<std::int64_t>(members.size());
  CommCost best;
  if (n <= 1) return best;
  std::size_t top = 0;
  for (const std::int32_t m : members) top = std::max(top, level_of(d, members[0], m));
  const Ps setup =
      c.engine == CollectiveEngine::ai_cpu ? d.collective_setup_ai_cpu : d.collective_setup;
  if (is_traffic(c.kind)) {
    best = traffic_cost(plan, d, c, members, device_number);
    best.setup = setup;
    return best;
  }
  if (c.kind == Kind::send_recv) {
    CommPhase p;
    p.latency = d.links[top].latency;
    p.bytes[top] = c.bytes;
    p.of_links = d.links[top].links;
    best.algorithm = Algorithm::mesh;
    best.phases = {p};
    best.setup = setup;
    return best;
  }
  Ps fastest = -1;
  for (const Algorithm a :
       {Algorithm::ring, Algorithm::mesh, Algorithm::halving_doubling, Algorithm::hierarchical}) {
    if (c.algorithm != Algorithm::fastest && c.algorithm != a) continue;
    const auto cost =
        a == Algorithm::hierarchical ? hierarchical(d, members, top, c) : flat(d, top, n, c, a);
    if (!cost) continue;
    const Ps t = cost->alone(d);
    if (fastest < 0 || t < fastest) fastest = t, best = *cost;
  }
  if (fastest < 0)
    throw UserError("TK1401", cat(collective_name(c.kind), " by ", algorithm_name(c.algorithm),
                                  " is not possible among ", n, " devices"))
        .help("leave the algorithm to be chosen: Algorithm::fastest");
  best.setup = setup;
  return best;
}

std::string_view algorithm_name(Algorithm a) {
  constexpr std::array<std::string_view, 5> names = {"fastest", "ring", "mesh", "halving-doubling",
                                                     "hierarchical"};
  return names[static_cast<std::size_t>(a)];
}

std::string_view collective_name(CollectiveKind k) {
  constexpr std::array<std::string_view, 8> names = {"all_reduce", "reduce_scatter", "all_gather",
                                                     "all_to_all", "broadcast",      "send_recv",
                                                     "dispatch",   "combine"};
  return names[static_cast<std::size_t>(k)];
}

}  // namespace tk::sim

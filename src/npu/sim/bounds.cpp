// What no schedule can beat and none needs: the bounds of VN-84.
#include <algorithm>
#include <tuple>

#include "npu/sim/loop.h"

namespace tk::sim {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

Ps over(__int128 work, __int128 rate) {
  return work == 0 ? 0 : static_cast<Ps>((work + rate - 1) / rate);
}

// Two flows on one resource, from the same moment: when each is done.
std::pair<Ps, Ps> both(__int128 a, Work cap_a, __int128 b, Work cap_b, Work capacity) {
  cap_a = std::min(cap_a, capacity), cap_b = std::min(cap_b, capacity);
  if (a == 0 || b == 0) return {over(a, cap_a), over(b, cap_b)};
  Work rate_a = std::min(cap_a, capacity / 2), rate_b = std::min(cap_b, capacity / 2);
  if (rate_a < capacity / 2) rate_b = std::min(cap_b, capacity - rate_a);
  if (rate_b < capacity / 2) rate_a = std::min(cap_a, capacity - rate_b);
  const Ps ta = over(a, rate_a), tb = over(b, rate_b);
  if (ta == tb) return {ta, tb};
  if (ta < tb) return {ta, ta + over(std::max<__int128>(0, b - __int128{rate_b} * ta), cap_b)};
  return {tb + over(std::max<__int128>(0, a - __int128{rate_a} * tb), cap_a), tb};
}

// The terms of `blocks` of the launch on `slots`, in rounds. `least`: as if reads and writes shared
// the bus in the best way.
std::array<Ps, term_count> terms_of(const Loop& e, const Span& span, std::int32_t slots,
                                    std::int64_t blocks, std::int64_t rounds, bool first,
                                    bool least) {
  const Launch& l = e.p.launches[at(span.launch)];
  const Unit& u = e.r.units[at(e.r.unit_of[at(span.launch)])];
  const std::int64_t all = std::max(1, slots == 0 ? 1 : l.blocks);
  if (slots == 0) blocks = 1, rounds = 1;
  const auto share = [&](std::int64_t bytes) { return (__int128{bytes} * blocks + all - 1) / all; };
  // A prefetch reads in pieces and writes what had to go meanwhile.
  const auto cost = l.engine == Engine::prefetch ? hbm_cost(e.d, 1, 0)
                                                 : hbm_cost(e.d, span.hbm_read, span.hbm_write);
  const auto work = [&](__int128 bytes, std::int64_t c) -> __int128 {
    return (bytes * c << work_bits) / 1000;
  };
  const std::int64_t cores = slots * e.movers(u, l);
  const auto cap = [&](std::int64_t milli, std::int64_t c) -> Work {
    if (cores == 0) return INT64_MAX;
    return static_cast<Work>((__int128{milli} * cores * e.d.mhz * c << work_bits) / 1'000'000 /
                             1'000'000);
  };
  const std::size_t base = at(u.rank) * e.per_rank;
  const auto capacity = [&](std::size_t which) { return e.s.resources[base + which].capacity; };
  std::array<Ps, term_count> t{};
  t[0] = over(__int128{e.jittered(span.launch, l.cube_cycles * rounds, 1)} * 1'000'000, e.d.mhz);
  t[1] = over(__int128{e.jittered(span.launch, l.vector_cycles * rounds, 1)} * 1'000'000, e.d.mhz);
  const __int128 read = work(share(span.hbm_read), cost[0]);
  const __int128 write = work(share(span.hbm_write), cost[1]);
  const Work read_cap = cap(e.d.core_hbm_read * 1000LL, cost[0]);
  const Work write_cap = cap(e.d.core_hbm_write * 1000LL, cost[1]), bus = capacity(res_hbm);
  if (l.engine == Engine::prefetch || least) {
    t[2] = over(read, std::min(read_cap, bus)), t[3] = over(write, std::min(write_cap, bus));
    if (least) (t[2] > t[3] ? t[2] : t[3]) = std::max({t[2], t[3], over(read + write, bus)});
  } else {
    std::tie(t[2], t[3]) = both(read, read_cap, write, write_cap, bus);
  }
  std::int64_t written = 0;
  for (std::int32_t k = 0; k < l.accesses.count; ++k) {
    const Access& a = e.p.accesses[at(l.accesses.begin + k)];
    if (a.write) written += a.bytes;
  }
  if (span.l2_bytes > 0 && l.engine != Engine::prefetch)
    t[4] = over(work(share(span.l2_bytes), 1000),
                std::min(capacity(res_l2), e.l2_cap(span.l2_bytes - written, written, cores)));
  if (first && l.collective != none && !e.without(Effect::links)) {
    const CommCost& c = e.comm_of(l, u.rank);
    t[5] = c.alone(e.d) - c.setup;
  }
  if (first && l.engine == Engine::dma) t[5] = over(work(l.link_bytes, 1000), capacity(res_pcie));
  if (l.engine == Engine::prefetch) t[5] = over(work(span.hbm_read, 1000), capacity(res_prefetch));
  if (first) t[6] = e.jittered(span.launch, l.fixed, 1);
  if (first && l.engine == Engine::dma) t[6] = std::max(t[6], e.d.pcie_floor);
  return t;
}

}  // namespace

Alone alone(const Loop& e, const Span& span) {
  const Launch& l = e.p.launches[at(span.launch)];
  const Unit& u = e.r.units[at(e.r.unit_of[at(span.launch)])];
  const std::int32_t slots = u.parts > 1 ? slots_of(e.p, e.d, l) : u.slots;
  Alone a;
  const std::int64_t blocks = slots == 0 ? 1 : l.blocks;
  const std::int64_t rounds = slots == 0 ? 1 : (blocks + slots - 1) / slots;
  a.term = terms_of(e, span, slots, blocks, rounds, true, true);
  const auto whole = terms_of(e, span, slots, blocks, rounds, true, false);
  std::array<Ps, term_count> t = whole;
  if (rounds > 1) {  // round by round, the last one on fewer cores
    const std::int64_t full = blocks / slots, rest = blocks % slots;
    t = terms_of(e, span, slots, full * slots, full, true, false);
    if (rest > 0) {
      const auto last = terms_of(e, span, static_cast<std::int32_t>(rest), rest, 1, false, false);
      const Ps before = *std::max_element(t.begin(), t.end());
      for (std::size_t k = 0; k < term_count; ++k)
        if (last[k] > 0) t[k] = before + last[k];
    }
  }
  // Beside others it may begin on fewer cores; then the last block can be alone in a round of its
  // own, as in any schedule from a list.
  Ps straggler = 0;
  if (e.p.streams.size() > 1 && slots > 1 && !u.gang) {
    const auto one = terms_of(e, span, 1, 1, 1, false, false);
    straggler = *std::max_element(one.begin(), one.end());
  }
  if (l.engine == Engine::prefetch) t[5] = std::max({t[5], t[2]}) + t[3];  // piece by piece
  a.rounds = std::max(with_overlap(l, t), with_overlap(l, whole)) + straggler;
  return a;
}

Bounds bounds_of(const Loop& e, const std::vector<Span>& spans, Ps from) {
  Bounds b;
  const std::size_t n = e.p.launches.size();
  std::vector<Ps> end(n, 0);
  std::vector<Ps> issued(e.r.units.size(), 0), host(e.p.devices.size(), 0);
  for (std::size_t rank = 0; rank < e.r.host.size(); ++rank) {
    const bool graph = !e.host_issues();
    Ps t = graph ? 0 : e.s.ranks[rank].graph_at - from;
    for (const std::int32_t u : e.r.host[rank]) {
      const Launch& l = e.p.launches[at(e.r.parts[at(e.r.units[at(u)].first)])];
      if (graph) {
        t = e.s.ranks[rank].graph_at - from;
      } else {
        t += l.host >= 0 ? l.host : e.d.host_per_launch;
        b.serial += l.dispatch >= 0 ? l.dispatch : e.d.dispatch_per_launch;
      }
      issued[at(u)] = t;
    }
    b.serial += t;
  }
  // Spans are in the order of ends: what a launch depends on comes before it.
  std::vector<Ps> stream_end(e.p.streams.size(), 0);
  for (const Span& span : spans) {
    const Launch& l = e.p.launches[at(span.launch)];
    const Alone own = alone(e, span);
    const Ps least = *std::max_element(own.term.begin(), own.term.end());
    Ps start = std::max(issued[at(e.r.unit_of[at(span.launch)])], stream_end[at(l.stream)]);
    for (const Slice& w : {l.waits, l.inner_waits})
      for (std::int32_t k = 0; k < w.count; ++k)
        start = std::max(start, end[at(e.r.recorder[at(e.p.events[at(w.begin + k)])])]);
    end[at(span.launch)] = start + span.head + least + span.tail;
    stream_end[at(l.stream)] = end[at(span.launch)];
    b.critical_path = std::max(b.critical_path, end[at(span.launch)]);
    // One after the other, with everything that can stand between two.
    b.serial += span.head + own.rounds + span.tail + std::max(e.d.gap, e.d.gap_mix) +
                l.records.count * e.d.record + l.waits.count * e.d.wait +
                (l.waits.count > 0 ? e.d.after_wait : 0);
  }
  for (std::size_t rank = 0; rank < e.p.devices.size(); ++rank) {
    std::array<__int128, 2> cycles{};
    for (const Span& span : spans) {
      const Launch& l = e.p.launches[at(span.launch)];
      if (at(e.p.streams[at(l.stream)].rank) != rank) continue;
      const BlockCores c = block_cores(e.p, l);
      cycles[0] += __int128{l.cube_cycles} * l.blocks * c.cube;
      cycles[1] += __int128{l.vector_cycles} * l.blocks * c.vector;
    }
    const auto take = [&](Ps t, const std::string& name) {
      if (t > b.busiest) b.busiest = t, b.busiest_name = name;
    };
    std::int32_t mhz = e.d.mhz;
    for (const auto& [time, f] : e.o.mhz_from) mhz = std::max(mhz, f);
    take(static_cast<Ps>(cycles[0] * 1'000'000 / mhz / e.d.cube_cores), "cube");
    take(static_cast<Ps>(cycles[1] * 1'000'000 / mhz / e.d.vector_cores), "vector");
    if (e.without(Effect::sharing)) continue;
    for (std::size_t k = 0; k < e.per_rank; ++k) {
      const Resource& res = e.s.resources[rank * e.per_rank + k];
      take(
          static_cast<Ps>((res.demanded - e.demanded_before[rank * e.per_rank + k]) / res.capacity),
          resource_name(e.d, k));
    }
  }
  return b;
}

std::string resource_name(const DeviceParams& d, std::size_t k) {
  constexpr std::array<std::string_view, 4> names = {"HBM", "L2", "prefetch", "PCIe"};
  return k < names.size() ? std::string(names[k]) : d.links[k - res_links].name;
}

}  // namespace tk::sim

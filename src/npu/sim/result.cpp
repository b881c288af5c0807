#include "npu/sim/result.h"

#include <algorithm>

namespace tk::sim {
namespace {
std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
std::size_t at(Cause c) { return static_cast<std::size_t>(c); }

// From the last end back to what let each launch start (VN-90).
std::vector<std::int32_t> chain(const Plan& p, const std::vector<Span>& spans, std::size_t begin) {
  std::vector<std::int32_t> where(p.launches.size(), none), path;
  for (std::size_t i = begin; i < spans.size(); ++i)
    where[at(spans[i].launch)] = static_cast<std::int32_t>(i);
  std::vector<bool> seen(p.launches.size(), false);
  for (std::int32_t i = begin < spans.size() ? static_cast<std::int32_t>(spans.size()) - 1 : none;
       i != none && !seen[at(spans[at(i)].launch)];) {
    seen[at(spans[at(i)].launch)] = true;
    path.push_back(i);
    const std::int32_t blocker = spans[at(i)].blocker;
    i = blocker == none ? none : where[at(blocker)];
  }
  std::reverse(path.begin(), path.end());
  return path;
}

// Idle time of each stream by cause; with its busy time it is all of the time (VN-91).
void idle_of(const Plan& p, Result* r) {
  const std::size_t n = p.streams.size();
  r->idle.assign(n, {});
  r->stream_busy.assign(n, 0);
  std::vector<Ps> until(n, 0);
  std::vector<std::int32_t> order(r->spans.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const Span &x = r->spans[at(a)], &y = r->spans[at(b)];
    return x.start != y.start ? x.start < y.start : x.end != y.end ? x.end < y.end : a < b;
  });
  for (const std::int32_t i : order) {
    const Span& s = r->spans[at(i)];
    const auto k = at(p.launches[at(s.launch)].stream);
    Ps rest = s.start - until[k];
    for (std::size_t c = 0; c < cause_count; ++c) {
      const Ps t = std::min(rest, s.idle[c]);
      r->idle[k][c] += t;
      rest -= t;
    }
    // Another stream's parts of its segment ran, or the step ended elsewhere.
    r->idle[k][at(s.idle == decltype(s.idle){} ? Cause::event : Cause::empty)] += rest;
    r->stream_busy[k] += s.end - s.start;
    until[k] = s.end;
  }
  for (std::size_t k = 0; k < n; ++k) r->idle[k][at(Cause::empty)] += r->total - until[k];
}

std::uint64_t add(std::uint64_t h, std::uint64_t x) {  // FNV-1a, by bytes
  for (int i = 0; i < 8; ++i) h = (h ^ (x >> (8 * i) & 0xff)) * 1099511628211ULL;
  return h;
}

}  // namespace

Sums sums_of(const Loop& loop) {
  Sums x;
  for (const Resource& res : loop.s.resources) {
    x.busy.push_back(res.busy);
    x.bytes.push_back(res.bytes);
  }
  for (const RankState& rk : loop.s.ranks) {
    x.cores.insert(x.cores.end(), {rk.cube_time, rk.vector_time, rk.ai_cpu_time});
    x.host_busy += rk.host_busy;
  }
  x.l2_hit = loop.s.l2_hit, x.l2_miss = loop.s.l2_miss, x.l2_dirty = loop.s.l2_dirty;
  for (std::size_t i = 0; i < loop.s.prefetches.size(); ++i) {
    PrefetchUse u = loop.s.prefetches[i];
    const auto [rank, owner] = loop.s.prefetch_owner[i];
    L2& l2 = const_cast<Loop&>(loop).s.ranks[at(rank)].l2;
    const L2Owner& o = l2.owners()[at(owner)];
    u.bytes = o.brought, u.used = o.used, u.evicted_unused = o.evicted;
    u.resident = l2.unread(owner);
    x.prefetches.push_back(u);
  }
  return x;
}

Sums repeated(const Sums& a, const Sums& b, std::int64_t times) {
  Sums x = a;
  for (std::size_t i = 0; i < x.busy.size(); ++i) {
    x.busy[i] += (a.busy[i] - b.busy[i]) * times;
    x.bytes[i] += (a.bytes[i] - b.bytes[i]) * times;
  }
  for (std::size_t i = 0; i < x.cores.size(); ++i) x.cores[i] += (a.cores[i] - b.cores[i]) * times;
  x.l2_hit += (a.l2_hit - b.l2_hit) * times;
  x.l2_miss += (a.l2_miss - b.l2_miss) * times;
  x.l2_dirty += (a.l2_dirty - b.l2_dirty) * times;
  x.host_busy += (a.host_busy - b.host_busy) * times;
  return x;
}

void take_step(Loop* loop, Ps from, Result* result) {
  std::vector<Span>& spans = loop->s.spans;
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.end != b.end ? a.end < b.end : a.launch < b.launch;
  });
  const std::size_t begin = result->spans.size();
  if (begin == 0) {
    result->bounds = bounds_of(*loop, spans, from);
    result->spans = std::move(spans);
  } else {
    result->spans.insert(result->spans.end(), spans.begin(), spans.end());
  }
  spans.clear();
  result->critical_path = chain(loop->p, result->spans, begin);
  result->step_end.push_back(loop->s.now);
  ++result->steps_simulated;
}

void finish(const Loop& loop, const Sums& sums, Result* r) {
  r->total = r->step_end.empty() ? 0 : r->step_end.back();
  r->prefetches = sums.prefetches;
  r->l2_hit = sums.l2_hit, r->l2_miss = sums.l2_miss, r->l2_evicted_dirty = sums.l2_dirty;
  r->host_busy = sums.host_busy;
  r->events = loop.s.events;
  const DeviceParams& d = loop.d;
  const std::array<std::pair<std::string, std::int32_t>, 3> cores = {
      {{"cube", d.cube_cores}, {"vector", d.vector_cores}, {"ai_cpu", d.ai_cpu_cores}}};
  for (std::size_t rank = 0; rank < loop.p.devices.size(); ++rank) {
    for (std::size_t k = 0; k < cores.size(); ++k) {
      ResourceUse u;
      u.name = cores[k].first;
      u.rank = static_cast<std::int32_t>(rank);
      u.capacity = cores[k].second;
      u.amount = static_cast<std::int64_t>(sums.cores[rank * 3 + k]);
      u.busy = u.capacity > 0 ? u.amount / u.capacity : 0;
      r->resources.push_back(u);
    }
    for (std::size_t k = 0; k < loop.per_rank; ++k) {
      ResourceUse u;
      u.name = resource_name(d, k);
      u.rank = static_cast<std::int32_t>(rank);
      u.busy = sums.busy[rank * loop.per_rank + k];
      u.amount = sums.bytes[rank * loop.per_rank + k];
      u.capacity = k == res_hbm        ? d.hbm_rate
                   : k == res_l2       ? d.l2_rate
                   : k == res_prefetch ? d.prefetch_rate
                   : k == res_pcie     ? d.pcie_rate
                                       : d.links[k - res_links].rate;
      r->resources.push_back(u);
    }
  }
  idle_of(loop.p, r);
}

std::uint64_t Result::hash() const {
  std::uint64_t h = add(14695981039346656037ULL, static_cast<std::uint64_t>(total));
  for (const Span& s : spans) {
    for (const std::int64_t x : {std::int64_t{s.launch}, std::int64_t{s.step}, s.start, s.end,
                                 s.peers, std::int64_t{s.cubes}, std::int64_t{s.vectors},
                                 s.hbm_read, s.hbm_write, s.l2_hit, std::int64_t{s.blocker}})
      h = add(h, static_cast<std::uint64_t>(x));
    for (const Ps t : s.term) h = add(h, static_cast<std::uint64_t>(t));
    for (const Ps t : s.idle) h = add(h, static_cast<std::uint64_t>(t));
  }
  return h;
}

}  // namespace tk::sim

#include "npu/sim/search.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "npu/sim/result.h"

namespace tk::sim {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

struct Snapshot {
  State state;  // without its spans
  std::size_t spans = 0;
};

bool same_stream(const Stream& a, const Stream& b) {
  return std::tie(a.rank, a.priority, a.cube_limit, a.vector_limit) ==
         std::tie(b.rank, b.priority, b.cube_limit, b.vector_limit);
}

template <typename T, typename Equal>
bool same_slice(const Slice& a, const std::vector<T>& va, const Slice& b, const std::vector<T>& vb,
                Equal equal) {
  if (a.count != b.count) return false;
  for (std::int32_t k = 0; k < a.count; ++k)
    if (!equal(va[at(a.begin + k)], vb[at(b.begin + k)])) return false;
  return true;
}

bool same_collective(const Plan& p, std::int32_t a, const Plan& q, std::int32_t b) {
  if ((a == none) != (b == none)) return false;
  if (a == none) return true;
  const Collective &x = p.collectives[at(a)], &y = q.collectives[at(b)];
  const auto traffic = [](const Plan& plan, const Collective& c) {
    return c.traffic == none ? std::vector<std::int64_t>{} : plan.traffic[at(c.traffic)].bytes;
  };
  return std::tie(x.kind, x.algorithm, x.engine, x.group, x.bytes) ==
             std::tie(y.kind, y.algorithm, y.engine, y.group, y.bytes) &&
         p.groups[at(x.group)].devices == q.groups[at(y.group)].devices &&
         traffic(p, x) == traffic(q, y);
}

bool same_segment(const Plan& p, std::int32_t a, const Plan& q, std::int32_t b) {
  if (a != b) return false;
  return a == none || (p.segments[at(a)].preload == q.segments[at(a)].preload &&
                       p.segments[at(a)].stream_fusion == q.segments[at(a)].stream_fusion);
}

// All that times depend on; texts are not.
bool same_launch(const Plan& p, const Launch& a, const Plan& q, const Launch& b) {
  const auto numbers = [](const Launch& l) {
    return std::tie(l.stream, l.engine, l.vectors_per_cube, l.gang, l.host_sync, l.blocks,
                    l.cube_limit, l.vector_limit, l.cube_cycles, l.vector_cycles, l.hbm_read,
                    l.hbm_write, l.l2_bytes, l.link_bytes, l.head, l.tail, l.fixed, l.overlap_ppm,
                    l.host, l.dispatch);
  };
  const auto same = [](std::int32_t x, std::int32_t y) { return x == y; };
  const auto same_access = [](const Access& x, const Access& y) {
    return x.address == y.address && x.bytes == y.bytes && x.write == y.write;
  };
  return numbers(a) == numbers(b) &&
         same_slice(a.accesses, p.accesses, b.accesses, q.accesses, same_access) &&
         same_slice(a.waits, p.events, b.waits, q.events, same) &&
         same_slice(a.records, p.events, b.records, q.events, same) &&
         same_slice(a.inner_waits, p.events, b.inner_waits, q.events, same) &&
         same_collective(p, a.collective, q, b.collective) &&
         same_segment(p, a.segment, q, b.segment);
}

// How many launches from the start are the same; 0 if the frame of the Plans differs.
std::int32_t common_prefix(const Plan& p, const Plan& q) {
  if (p.mode != q.mode || p.host_tiles != q.host_tiles || p.devices != q.devices ||
      p.input_bytes != q.input_bytes || p.updates != q.updates ||
      q.streams.size() < p.streams.size())
    return 0;
  for (std::size_t k = 0; k < p.streams.size(); ++k)
    if (!same_stream(p.streams[k], q.streams[k])) return 0;
  const std::size_t n = std::min(p.launches.size(), q.launches.size());
  std::size_t i = 0;
  while (i < n && same_launch(p, p.launches[i], q, q.launches[i])) ++i;
  return static_cast<std::int32_t>(i);
}

}  // namespace

struct Search::Impl {
  Plan plan;
  DeviceParams device;
  SimOptions options;
  Prepared prepared;
  std::vector<Snapshot> snapshots;
  std::vector<Span> spans;  // of the base, in the order in which they ended
  Result result;
  std::int32_t reused = 0;

  bool fits(const Snapshot& snap, const Prepared& candidate) const;
  void resume(const Snapshot& snap, const Prepared& candidate, Loop* loop) const;
};

// Whether the candidate would be in that state too: what was looked at is the same in both.
bool Search::Impl::fits(const Snapshot& snap, const Prepared& c) const {
  const State& s = snap.state;
  for (std::size_t k = 0; k < c.queue.size(); ++k) {
    const bool known = k < s.streams.size();
    const auto next = known ? at(s.streams[k].next) : 0;
    // A stream that had come to its end must have come to it in the candidate.
    const bool ended = !known || next >= prepared.queue[k].size();
    if (ended && next < c.queue[k].size()) return false;
  }
  for (std::size_t u = 0; u < prepared.units.size(); ++u) {
    const Unit& a = prepared.units[u];
    if (prepared.parts[at(a.first)] >= s.frontier) break;
    if (u >= c.units.size()) return false;
    const Unit& b = c.units[u];
    if (std::tie(a.first, a.parts, a.streams, a.last_launch, a.slots, a.gang) !=
        std::tie(b.first, b.parts, b.streams, b.last_launch, b.slots, b.gang))
      return false;
  }
  for (std::int32_t i = 0; i < s.frontier; ++i) {
    const std::int32_t a = prepared.instance[at(i)], b = c.instance[at(i)];
    if (a != none && prepared.members[at(a)] != c.members[at(b)]) return false;
  }
  return true;
}

void Search::Impl::resume(const Snapshot& snap, const Prepared& c, Loop* loop) const {
  const auto demanded = loop->s.resources.size();
  loop->s = snap.state;
  State& s = loop->s;
  s.spans.assign(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(snap.spans));
  loop->demanded_before.assign(demanded, 0);
  s.streams.resize(c.queue.size());
  s.issued.resize(c.units.size(), -1);
  s.ended.resize(c.units.size(), -1);
  s.joined.resize(c.units.size(), 0);
  s.recorded.resize(c.recorder.size(), -1);
  // Units and events beyond the frontier have no state in the base: it was not there yet.
  s.open_units = static_cast<std::int32_t>(std::count(s.ended.begin(), s.ended.end(), Ps{-1}));
  s.arrived.assign(c.members.size(), 0);
  s.last_arrival.assign(c.members.size(), none);
  for (std::int32_t i = 0; i < s.frontier; ++i) {
    const std::int32_t a = prepared.instance[at(i)], b = c.instance[at(i)];
    if (a == none) continue;
    s.arrived[at(b)] = snap.state.arrived[at(a)];
    s.last_arrival[at(b)] = snap.state.last_arrival[at(a)];
  }
  for (RankState& rk : s.ranks) rk.l2.grow(c.span);
}

Search::Search(Plan base, DeviceParams device, SimOptions options, std::int32_t every)
    : impl_(std::make_unique<Impl>()) {
  Impl& m = *impl_;
  m.plan = std::move(base);
  m.device = std::move(device);
  m.options = std::move(options);
  m.options.steps = 1;
  m.prepared = prepare(m.plan, m.device);
  Loop loop(m.prepared, m.device, m.options);
  loop.begin_step(0, 0, 0);
  std::int32_t next = every;
  while (loop.run_to(next)) {
    Snapshot snap;
    std::vector<Span> spans = std::move(loop.s.spans);
    snap.state = loop.s;
    snap.spans = spans.size();
    loop.s.spans = std::move(spans);
    m.snapshots.push_back(std::move(snap));
    next = std::max(next, loop.s.frontier) + every;
  }
  m.spans = loop.s.spans;
  take_step(&loop, 0, &m.result);
  finish(loop, sums_of(loop), &m.result);
}

Search::~Search() = default;

const Result& Search::base() const { return impl_->result; }
std::int32_t Search::reused() const { return impl_->reused; }

Result Search::simulate(const Plan& candidate) {
  Impl& m = *impl_;
  const Prepared prepared = prepare(candidate, m.device);
  Loop loop(prepared, m.device, m.options);
  const std::int32_t same = common_prefix(m.plan, candidate);
  const Snapshot* from = nullptr;
  for (const Snapshot& snap : m.snapshots)
    if (snap.state.frontier <= same && m.fits(snap, prepared)) from = &snap;
  m.reused = from == nullptr ? 0 : static_cast<std::int32_t>(from->spans);
  if (from == nullptr)
    loop.begin_step(0, 0, 0);
  else
    m.resume(*from, prepared, &loop);
  loop.run();
  Result result;
  take_step(&loop, 0, &result);
  finish(loop, sums_of(loop), &result);
  return result;
}

}  // namespace tk::sim

#include "npu/sim/loop.h"

#include <algorithm>
#include <limits>

namespace tk::sim {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
std::size_t at(Cause c) { return static_cast<std::size_t>(c); }

// The order of events at one time (VN-80); the greatest is last in a heap of the standard library.
bool after(const Event& a, const Event& b) {
  if (a.time != b.time) return a.time > b.time;
  if (a.kind != b.kind) return a.kind > b.kind;
  if (a.rank != b.rank) return a.rank > b.rank;
  if (a.stream != b.stream) return a.stream > b.stream;
  if (a.issue != b.issue) return a.issue > b.issue;
  return a.version > b.version;
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64, public domain
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Loop::Loop(const Prepared& prepared, const DeviceParams& device, const SimOptions& options)
    : r(prepared), p(*prepared.plan), d(device), o(options) {
  per_rank = res_links + d.links.size();
  s.mhz = d.mhz;
  s.ranks.resize(p.devices.size());
  s.resources.resize(p.devices.size() * per_rank);
  for (std::size_t k = 0; k < p.devices.size(); ++k) {
    RankState& rk = s.ranks[k];
    rk.cube = d.cube_cores, rk.vector = d.vector_cores, rk.ai_cpu = d.ai_cpu_cores;
    rk.l2 = L2(d.l2_bytes, d.l2_pages, d.l2_keep_permille, r.span);
    const auto rank = static_cast<std::int32_t>(k);
    resource(rank, res_hbm).capacity = rate_of(d.hbm_rate);
    resource(rank, res_l2).capacity = rate_of(d.l2_rate);
    resource(rank, res_prefetch).capacity = rate_of(d.prefetch_rate);
    resource(rank, res_pcie).capacity = rate_of(d.pcie_rate);
    for (std::size_t l = 0; l < d.links.size(); ++l)
      resource(rank, res_links + l).capacity = rate_of(d.links[l].rate / 1000 * d.link_permille);
  }
  for (const Collective& c : p.collectives)
    for (const std::int32_t number : p.devices) {
      const auto& members = p.groups[at(c.group)].devices;
      const bool in = std::find(members.begin(), members.end(), number) != members.end();
      // With one rank the others are as it is, so the hottest member decides.
      comm.push_back(in ? cost_of_collective(p, c, d, p.devices.size() == 1 ? none : number)
                        : CommCost{});
    }
}

void Loop::push(const Event& e) {
  s.heap.push_back(e);
  std::push_heap(s.heap.begin(), s.heap.end(), after);
}

void Loop::timer(std::int32_t stream, Ps time) {
  push({time, ev_stream, p.streams[at(stream)].rank, stream, 0, ++s.streams[at(stream)].version});
}

// A duration with its jitter: a number for each (launch, step), whatever the order of events is.
Ps Loop::jittered(std::int32_t launch, Ps t, std::uint64_t what) const {
  if (o.jitter_ppm == 0 || t == 0) return t;
  std::uint64_t x = mix(o.jitter_seed) ^ mix(static_cast<std::uint64_t>(launch) << 32 |
                                             static_cast<std::uint32_t>(s.step));
  std::int64_t sum = -6 * 65535;  // twelve uniform numbers: about normal, of variance 1
  for (int i = 0; i < 3; ++i) {
    x = mix(x + what);
    for (int k = 0; k < 4; ++k) sum += static_cast<std::int64_t>(x >> (16 * k) & 0xffff);
  }
  const std::int64_t ppm =
      std::max<std::int64_t>(100'000, 1'000'000 + std::int64_t{o.jitter_ppm} * sum / 65535);
  return static_cast<Ps>(static_cast<__int128>(t) * ppm / 1'000'000);
}

Ps Loop::graph_entry() const {
  Ps t = d.graph_entry;
  if (p.mode == Mode::npugraph_ex) t += p.updates * d.graph_update;
  // Inputs are read and written once more, by a copy that is mixed traffic.
  const __int128 rate = static_cast<__int128>(d.hbm_rate) * d.hbm_mixed_permille / 1000;
  return t + static_cast<Ps>(static_cast<__int128>(p.input_bytes) * 2 * 1'000'000'000'000 / rate);
}

void Loop::begin_step(std::int32_t step, Ps time, Ps launched) {
  s.step = step;
  s.now = time;
  s.heap.clear();
  demanded_before.clear();
  for (Resource& res : s.resources) {
    res.updated = time;
    demanded_before.push_back(res.demanded);
  }
  s.streams.assign(p.streams.size(), {});
  s.issued.assign(r.units.size(), -1);
  s.ended.assign(r.units.size(), -1);
  s.joined.assign(r.units.size(), 0);
  s.recorded.assign(r.recorder.size(), -1);
  s.arrived.assign(r.members.size(), 0);
  s.last_arrival.assign(r.members.size(), none);
  s.open_units = static_cast<std::int32_t>(r.units.size());
  s.frontier = 0;
  const bool graph = p.mode != Mode::eager && !without(Effect::host);
  for (RankState& rk : s.ranks) {
    rk.waiting.clear();
    rk.prefetch_queue.clear();
    rk.prefetching = 0;
    rk.host_next = 0;
    rk.host_needs = none;
    rk.graph_at = graph ? std::max(time, launched + d.graph_launch) + graph_entry() : time;
    rk.host_at = rk.dispatch_at = rk.graph_at;
    if (graph) rk.host_busy += d.graph_launch;
    rk.last_release = none;
  }
  if (s.mhz_next < o.mhz_from.size())
    push({std::max(time, o.mhz_from[s.mhz_next].first), ev_mhz, 0, 0, 0, 0});
  for (std::size_t k = 0; k < s.streams.size(); ++k) {
    s.streams[k].since = s.streams[k].free_at = time;
    next_unit(static_cast<std::int32_t>(k));
  }
}

void Loop::run() { run_to(std::numeric_limits<std::int32_t>::max()); }

bool Loop::run_to(std::int32_t frontier) {
  while (s.open_units > 0) {
    while (!s.dirty.empty()) {
      const std::int32_t rank = s.dirty.back();
      s.dirty.pop_back();
      assign(rank);
    }
    if (s.frontier >= frontier) return true;
    bool live = false;
    while (!s.heap.empty()) {
      const Ps time = s.heap.front().time;
      if (live && time != s.now) break;
      const Event e = s.heap.front();
      std::pop_heap(s.heap.begin(), s.heap.end(), after);
      s.heap.pop_back();
      const bool is_void =
          (e.kind == ev_resource && e.version != s.resources[at(e.stream)].version) ||
          ((e.kind == ev_stream || e.kind == ev_phase) &&
           e.version != s.streams[at(e.stream)].version);
      if (is_void) continue;
      s.now = time;
      live = true;
      ++s.events;
      handle(e);
    }
    if (!live && s.open_units > 0 && s.dirty.empty()) note_deadlock();
  }
  return false;
}

void Loop::handle(const Event& e) {
  switch (e.kind) {
    case ev_resource:
      return resource_event(at(e.stream));
    case ev_batch: {
      const StreamState& st = s.streams[at(e.stream)];
      if (st.stage != Stage::work || at(e.issue) >= st.batches.size()) return;
      const Batch& b = st.batches[at(e.issue)];
      if (b.live && b.version == e.version) term_done(e.stream, e.issue, Term::fixed);
      return;
    }
    case ev_phase:
      return phase_flows(e.stream, e.issue);
    case ev_mhz:
      set_mhz(o.mhz_from[s.mhz_next].second);
      if (++s.mhz_next < o.mhz_from.size())
        push({std::max(s.now, o.mhz_from[s.mhz_next].first), ev_mhz, 0, 0, 0, 0});
      return;
    default:
      break;
  }
  switch (s.streams[at(e.stream)].stage) {
    case Stage::ready:
      return become_ready(e.stream);
    case Stage::inner:
      return try_inner(e.stream);
    case Stage::head:
      return begin_work(e.stream);
    default:
      return end_part(e.stream);
  }
}

void Loop::next_unit(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const auto& queue = r.queue[at(stream)];
  st.unit = none;
  st.stage = Stage::done;
  if (at(st.next) >= queue.size()) return;
  const std::int32_t unit = queue[at(st.next)];
  const Unit& u = r.units[at(unit)];
  s.frontier = std::max(s.frontier, u.last_launch + 1);
  if (u.streams > 1) {
    if (++s.joined[at(unit)] < u.streams) {
      st.stage = Stage::join;
      return;
    }
    stream = u.stream;  // its own stream runs it, the other one waits
    if (&s.streams[at(stream)] != &st) st.stage = Stage::join;
  }
  StreamState& own = s.streams[at(stream)];
  own.unit = unit;
  own.part = 0;
  own.span = {};
  own.last_event = 0;
  own.last_recorder = none;
  try_issue(stream);
}

void Loop::try_issue(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const Ps t = issue_time(st.unit);
  if (t < 0) {
    st.stage = Stage::issue;
    return;
  }
  st.issued = t;
  try_events(stream);
}

void Loop::try_events(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  const Slice& waits = launch_at(st).waits;
  const bool free_events = without(Effect::events);
  Ps t = std::max({st.free_at, st.issued, u.streams > 1 ? s.now : 0});
  for (std::int32_t k = 0; k < waits.count; ++k) {
    const std::int32_t e = p.events[at(waits.begin + k)];
    const Ps recorded = s.recorded[at(e)];
    if (recorded < 0) {
      st.stage = Stage::event;
      return;
    }
    if (recorded > st.last_event) st.last_event = recorded, st.last_recorder = r.recorder[at(e)];
    t = std::max(t, recorded) + (free_events ? 0 : d.wait);
  }
  if (waits.count > 0 && u.slots > 0 && !free_events) t += d.after_wait;
  if (st.ran && !without(Effect::gaps))
    t = std::max(t, st.since + (u.mix || st.mix_before ? d.gap_mix : d.gap));
  st.stage = Stage::ready;
  if (t <= s.now) return become_ready(stream);
  timer(stream, t);
}

void Loop::become_ready(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  st.ready = s.now;
  if (u.slots > 0) {
    st.stage = Stage::cores;
    wait_for_cores(stream);
    return;
  }
  if (launch_at(st).engine == Engine::prefetch) {
    RankState& rk = s.ranks[at(u.rank)];
    if (rk.prefetching >= d.prefetch_depth) {
      st.stage = Stage::queue;
      rk.prefetch_queue.push_back(stream);
      return;
    }
    ++rk.prefetching;
  }
  start(stream);
}

// It has its cores. Why it did not begin before is settled here (VN-91).
void Loop::start(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  Span& span = st.span;
  span.launch = launch_index(st);
  span.step = s.step;
  span.start = s.now;
  Ps cursor = st.since;
  span.blocker = st.before;
  span.blocked_by = st.ran ? Cause::gap : Cause::empty;
  const auto idle = [&](Ps until, Cause c, std::int32_t blocker) {
    if (until <= cursor) return;
    span.idle[at(c)] += until - cursor;
    cursor = until;
    if (c == Cause::gap) return;  // in between, but not what it waited for
    span.blocked_by = c;
    span.blocker = blocker;
  };
  idle(st.issued, Cause::host, none);
  idle(st.last_event, Cause::event, st.last_recorder);
  idle(st.ready, Cause::gap, none);
  const bool coreless = u.slots == 0;
  idle(s.now, coreless ? Cause::queue : Cause::core, s.ranks[at(u.rank)].last_release);
  st.part_from = s.now;
  arrive(stream);
}

// Where it communicates: wait for the other ranks (VN-72).
void Loop::arrive(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const std::int32_t index = launch_index(st);
  const std::int32_t inst = launch_at(st).collective == none ? none : r.instance[at(index)];
  if (inst == none) return try_inner(stream);
  st.span.algorithm = comm_of(launch_at(st), unit_at(st).rank).algorithm;
  if (++s.arrived[at(inst)] < r.members[at(inst)]) {
    st.stage = Stage::peers;
    return;
  }
  s.last_arrival[at(inst)] = index;
  if (r.members[at(inst)] > 1)
    for (std::size_t k = 0; k < s.streams.size(); ++k) {
      StreamState& other = s.streams[k];
      if (other.stage != Stage::peers || r.instance[at(launch_index(other))] != inst) continue;
      other.span.peers = s.now - other.part_from;
      if (other.span.peers > 0) {
        other.span.blocked_by = Cause::peers;
        other.span.blocker = index;
      }
      try_inner(static_cast<std::int32_t>(k));
    }
  try_inner(stream);
}

// Flags in memory that it polls with its cores taken; of later parts of a segment all waits.
void Loop::try_inner(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const Launch& l = launch_at(st);
  st.stage = Stage::inner;
  Ps t = s.now;
  for (const Slice& waits : {l.inner_waits, st.part > 0 ? l.waits : Slice{}})
    for (std::int32_t k = 0; k < waits.count; ++k) {
      const Ps recorded = s.recorded[at(p.events[at(waits.begin + k)])];
      if (recorded < 0) return;
      t = std::max(t, recorded);
    }
  if (t > s.now) return timer(stream, t);
  begin_head(stream);
}

void Loop::begin_head(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  const Launch& l = launch_at(st);
  Ps t = 0;
  if (!without(Effect::heads)) {
    if (st.part == 0) {
      t = l.head + (l.engine == Engine::ai_cpu ? d.ai_cpu_launch : 0);
    } else {
      const Launch& prev = p.launches[at(r.parts[at(u.first + st.part - 1)])];
      const BlockCores a = block_cores(p, prev), b = block_cores(p, l);
      const std::int32_t all = d.cube_cores + d.vector_cores;
      std::int32_t set = u.cube + u.vector;  // who is synchronised (SK-32)
      if (a.cube == 0 && b.cube == 0) set = u.vector;
      if (a.vector == 0 && b.vector == 0) set = u.cube;
      t = p.segments[at(l.segment)].preload ? d.part_preloaded : d.part_cold;
      // One core alone has nobody to wait for.
      if (set > 1) t += d.sync_base + (d.sync_full - d.sync_base) * set / all;
    }
  }
  if (l.collective != none && !without(Effect::links)) t += comm_of(l, u.rank).setup;
  t = jittered(launch_index(st), t, 2);
  st.span.head = t;
  st.stage = Stage::head;
  if (t == 0) return begin_work(stream);
  timer(stream, s.now + t);
}

void Loop::record(const Launch& l, std::int32_t index, Ps time) {
  (void)index;
  for (std::int32_t k = 0; k < l.records.count; ++k) {
    if (!without(Effect::events)) time += d.record;
    s.recorded[at(p.events[at(l.records.begin + k)])] = time;
  }
  if (l.records.count == 0) return;
  for (std::size_t k = 0; k < s.streams.size(); ++k) {
    if (s.streams[k].stage == Stage::event) try_events(static_cast<std::int32_t>(k));
    if (s.streams[k].stage == Stage::inner) try_inner(static_cast<std::int32_t>(k));
  }
}

void Loop::end_part(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  const std::int32_t index = launch_index(st);
  st.span.end = s.now;
  s.spans.push_back(st.span);
  if (st.part + 1 < u.parts) {
    const std::int32_t before = index;
    record(launch_at(st), index, s.now);
    ++st.part;
    const Span last = st.span;
    st.span = {};
    st.span.launch = launch_index(st);
    st.span.step = s.step;
    st.span.start = st.part_from = s.now;
    st.span.cubes = last.cubes, st.span.vectors = last.vectors;
    st.span.blocker = before;
    st.span.blocked_by = Cause::gap;
    return arrive(stream);
  }
  end_unit(stream);
}

void Loop::end_unit(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const std::int32_t unit = st.unit, index = launch_index(st);
  const Unit& u = r.units[at(unit)];
  const Launch& l = launch_at(st);
  release(stream, st.held);
  st.spare = 0;
  s.ended[at(unit)] = s.now;
  --s.open_units;
  if (l.engine == Engine::prefetch) {
    RankState& rk = s.ranks[at(u.rank)];
    --rk.prefetching;
    s.prefetches.push_back({index, 0, 0, 0, 0});
    s.prefetch_owner.emplace_back(u.rank, st.owner);
    if (!rk.prefetch_queue.empty()) {
      const std::int32_t next = rk.prefetch_queue.front();
      rk.prefetch_queue.erase(rk.prefetch_queue.begin());
      ++rk.prefetching;
      start(next);
    }
  }
  const Ps free_at = s.now + (without(Effect::events) ? 0 : l.records.count * d.record);
  st.unit = none;
  st.stage = Stage::done;
  record(l, index, s.now);
  host_go_on(u.rank);
  for (std::size_t k = 0; k < s.streams.size(); ++k) {
    StreamState& other = s.streams[k];
    const auto& queue = r.queue[k];
    const bool joined =
        u.streams > 1 && other.stage == Stage::join && queue[at(other.next)] == unit;
    if (static_cast<std::int32_t>(k) != stream && !joined) continue;
    other.since = s.now;
    other.free_at = free_at;
    other.ran = true;
    other.mix_before = u.mix;
    other.before = index;
    ++other.next;
    other.stage = Stage::done;
  }
  if (u.streams == 1) return next_unit(stream);
  for (std::size_t k = 0; k < s.streams.size(); ++k) {
    const StreamState& other = s.streams[k];
    if (other.stage == Stage::done && other.next > 0 && r.queue[k][at(other.next - 1)] == unit)
      next_unit(static_cast<std::int32_t>(k));
  }
}

}  // namespace tk::sim

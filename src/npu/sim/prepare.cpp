#include "npu/sim/prepare.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace tk::sim {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

[[noreturn]] void refuse(const Plan& plan, std::int32_t launch, const std::string& what,
                         std::string_view help) {
  UserError e("TK1401", cat(describe(plan, launch), ": ", what));
  const std::int32_t text = plan.launches[at(launch)].text;
  if (text != none && !plan.texts[at(text)].place.empty())
    std::move(e).note(plan.texts[at(text)].place);  // returns e itself
  throw std::move(e).help(help);
}

template <typename T>
bool within(const Slice& s, const std::vector<T>& v) {
  return s.begin >= 0 && s.count >= 0 && at(s.begin) + at(s.count) <= v.size();
}

void check_launch(const Plan& p, const DeviceParams& d, std::int32_t i) {
  const Launch& l = p.launches[at(i)];
  const auto bad = [&](const std::string& what, std::string_view help) {
    refuse(p, i, what, help);
  };
  if (l.stream < 0 || at(l.stream) >= p.streams.size())
    bad(cat("stream ", l.stream, " is not one of the Plan's ", p.streams.size()),
        "add the stream, or launch on one that is there");
  if (l.blocks < 0 || (l.blocks == 0 && l.engine != Engine::communication))
    bad(cat("has ", l.blocks, " blocks"), "a kernel has at least one block");
  constexpr std::int64_t most_bytes = std::int64_t{1} << 38, most_cycles = std::int64_t{1} << 42;
  for (const std::int64_t b : {l.hbm_read, l.hbm_write, l.l2_bytes, l.link_bytes})
    if (b < 0 || b > most_bytes)
      bad(cat("moves ", b, " bytes"), "bytes of a launch are from 0 to 256 GiB");
  for (const std::int64_t c : {l.cube_cycles, l.vector_cycles})
    if (c < 0 || c > most_cycles) bad(cat("takes ", c, " cycles"), "cycles are from 0 to 2^42");
  for (const Ps t : {l.head, l.tail, l.fixed})
    if (t < 0) bad(cat("takes ", t, " ps"), "times are not negative");
  if (!within(l.accesses, p.accesses) || !within(l.waits, p.events) ||
      !within(l.records, p.events) || !within(l.inner_waits, p.events))
    bad("a list of it reaches beyond the Plan's", "fill it with append()");
  if (l.collective != none && (l.collective < 0 || at(l.collective) >= p.collectives.size()))
    bad(cat("collective ", l.collective, " is not there"), "add it to the Plan");
  if (l.engine == Engine::prefetch &&
      (l.cube_cycles | l.vector_cycles | l.hbm_read | l.hbm_write | l.l2_bytes | l.fixed) != 0)
    bad("a prefetch has work beyond the ranges that it brings", "give it accesses only");
  if (l.collective == none && l.engine == Engine::communication)
    bad("communicates without a collective", "set Launch::collective");
  if (l.segment != none && (l.segment < 0 || at(l.segment) >= p.segments.size()))
    bad(cat("segment ", l.segment, " is not there"), "add it to the Plan");
  if (l.text != none && (l.text < 0 || at(l.text) >= p.texts.size()))
    throw UserError("TK1401", cat("launch ", i, ": text ", l.text, " is not there"));
  if (l.host_sync && p.mode != Mode::eager)
    bad("the host waits for it, inside a graph", "read values of the device outside of the graph");
  for (std::int32_t k = 0; k < l.accesses.count; ++k) {
    const Access& a = p.accesses[at(l.accesses.begin + k)];
    if (a.address < 0 || a.bytes < 0 || a.bytes > most_bytes || a.address > most_bytes * 64)
      bad(cat("reads or writes ", a.bytes, " bytes at ", a.address),
          "addresses count from the start of the device's memory");
  }
  const Stream& s = p.streams[at(l.stream)];
  const auto limit = [&](std::int32_t n, std::int32_t have, std::string_view what) {
    if (n < 0 || n > have)
      bad(cat("limit of ", n, " ", what, " cores; the device has ", have),
          cat("limit it to 1 to ", have, ", or 0 for none"));
  };
  limit(l.cube_limit, d.cube_cores, "cube");
  limit(l.vector_limit, d.vector_cores, "vector");
  limit(s.cube_limit, d.cube_cores, "cube");
  limit(s.vector_limit, d.vector_cores, "vector");
  const BlockCores b = block_cores(p, l);
  if (b.cube + b.vector + b.ai_cpu > 0 && slots_of(p, d, l) == 0)
    bad("no block of it fits into its core limits", "raise the limit to what one block takes");
}

void check_tables(const Plan& p, const DeviceParams& d) {
  const auto fail = [](const std::string& what) { throw UserError("TK1401", what); };
  if (p.devices.empty()) fail("the Plan has no device");
  if (d.cube_cores <= 0 || d.vector_cores <= 0 || d.mhz <= 0 || d.hbm_rate <= 0 || d.l2_rate <= 0 ||
      d.l2_pages <= 0 || d.l2_bytes < d.l2_pages || d.hbm_read_permille <= 0 ||
      d.hbm_write_permille <= 0 || d.hbm_mixed_permille <= 0 || d.prefetch_rate <= 0 ||
      d.pcie_rate <= 0 || d.link_permille <= 0 || d.prefetch_depth <= 0 || d.queue_depth <= 0)
    fail("the device has a rate, a size or a count that is not positive");
  if (d.links.size() > max_levels) fail(cat("more than ", max_levels, " levels of links"));
  for (const LinkLevel& l : d.links)
    if (l.rate < 1000 || l.size <= 0 || l.links <= 0 || l.latency < 0)
      fail(cat("links ", l.name, ": rate, size and number must be positive"));
  for (std::size_t i = 0; i < p.streams.size(); ++i)
    if (p.streams[i].rank < 0 || at(p.streams[i].rank) >= p.devices.size())
      fail(cat("stream ", i, " is of rank ", p.streams[i].rank, "; there are ", p.devices.size()));
  for (std::size_t i = 0; i < p.collectives.size(); ++i) {
    const Collective& c = p.collectives[i];
    if (c.group < 0 || at(c.group) >= p.groups.size())
      fail(cat("collective ", i, ": group ", c.group, " is not there"));
    if (c.bytes < 0 || c.bytes > (std::int64_t{1} << 38))
      fail(cat("collective ", i, " moves ", c.bytes, " bytes"));
    const std::size_t n = p.groups[at(c.group)].devices.size();
    if (c.traffic != none && (c.traffic < 0 || at(c.traffic) >= p.traffic.size() ||
                              p.traffic[at(c.traffic)].bytes.size() != n * n))
      fail(cat("collective ", i, ": traffic ", c.traffic, " is not a matrix of ", n, " by ", n));
  }
  for (const Traffic& t : p.traffic)
    for (const std::int64_t b : t.bytes)
      if (b < 0) fail(cat("traffic of ", b, " bytes"));
}

// Who records each event, and that each one that is waited for is recorded, once.
void find_recorders(Prepared* r) {
  const Plan& p = *r->plan;
  std::int32_t events = 0;
  for (const std::int32_t e : p.events) {
    if (e < 0 || e > (1 << 28)) throw UserError("TK1401", cat("an event is called ", e));
    events = std::max(events, e + 1);
  }
  r->recorder.assign(at(events), none);
  for (std::size_t i = 0; i < p.launches.size(); ++i) {
    const Slice& s = p.launches[i].records;
    for (std::int32_t k = 0; k < s.count; ++k) {
      std::int32_t& who = r->recorder[at(p.events[at(s.begin + k)])];
      if (who != none)
        refuse(p, static_cast<std::int32_t>(i),
               cat("records event ", p.events[at(s.begin + k)], ", which ", describe(p, who),
                   " records already"),
               "one event a record");
      who = static_cast<std::int32_t>(i);
    }
  }
  for (std::size_t i = 0; i < p.launches.size(); ++i)
    for (const Slice& s : {p.launches[i].waits, p.launches[i].inner_waits})
      for (std::int32_t k = 0; k < s.count; ++k)
        if (r->recorder[at(p.events[at(s.begin + k)])] == none)
          refuse(p, static_cast<std::int32_t>(i),
                 cat("waits for event ", p.events[at(s.begin + k)], ", which nothing records"),
                 "record it after the launch that it is to wait for, or drop the wait");
}

// The unit of launches of one segment that take part in one launch; a unit each otherwise.
void make_units(Prepared* r) {
  const Plan& p = *r->plan;
  const auto n = static_cast<std::int32_t>(p.launches.size());
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> open;  // segment, stream -> unit
  std::map<std::int32_t, std::vector<std::int32_t>> segment_streams;
  r->units.reserve(at(n));
  r->host_position.reserve(at(n));
  for (std::int32_t i = 0; i < n; ++i) {
    const Launch& l = p.launches[at(i)];
    std::int32_t unit = none;
    if (l.segment != none) {
      if (p.mode == Mode::eager)
        refuse(p, i, "is in a SuperKernel; eager mode has none", "choose ge_graph or npugraph_ex");
      if (l.engine == Engine::ai_cpu || l.engine == Engine::dma || l.engine == Engine::prefetch)
        refuse(p, i, "cannot be a part of a SuperKernel", "end the segment before it");
      const Segment& s = p.segments[at(l.segment)];
      auto& streams = segment_streams[l.segment];
      if (std::find(streams.begin(), streams.end(), l.stream) == streams.end())
        streams.push_back(l.stream);
      if (streams.size() > 2)
        refuse(p, i, cat("segment ", s.name, " has more than 2 streams"), "split the segment");
      if (p.streams[at(l.stream)].rank != p.streams[at(streams[0])].rank)
        refuse(p, i, cat("segment ", s.name, " is on two ranks"), "a segment each");
      const auto key = std::pair(l.segment, s.stream_fusion ? l.stream : none);
      const auto [it, fresh] = open.emplace(key, static_cast<std::int32_t>(r->units.size()));
      unit = it->second;
      if (!fresh) {
        for (const std::int32_t other : streams)
          if (!r->queue[at(other)].empty() && r->queue[at(other)].back() > unit &&
              (!s.stream_fusion || other == l.stream))
            refuse(p, i, cat("segment ", s.name, " is interrupted on stream ", other),
                   "launches of a segment follow each other; make it two segments");
      }
    }
    if (unit == none || at(unit) == r->units.size()) {
      unit = static_cast<std::int32_t>(r->units.size());
      Unit u;
      u.stream = l.stream;
      u.rank = p.streams[at(l.stream)].rank;
      u.streams = u.parts = 0;
      r->units.push_back(u);
      r->host_position.push_back(static_cast<std::int32_t>(r->host[at(u.rank)].size()));
      r->host[at(u.rank)].push_back(unit);
    }
    auto& queue = r->queue[at(l.stream)];
    if (queue.empty() || queue.back() != unit) {
      queue.push_back(unit);
      ++r->units[at(unit)].streams;
    }
    r->position[at(i)] = static_cast<std::int32_t>(queue.size()) - 1;
    r->unit_of[at(i)] = unit;
    r->units[at(unit)].last_launch = i;
    ++r->units[at(unit)].parts;
  }
  std::int32_t first = 0;
  for (Unit& u : r->units) {
    u.first = first;
    first += u.parts;
    u.parts = 0;
  }
  r->parts.resize(at(n));
  for (std::int32_t i = 0; i < n; ++i) {
    Unit& u = r->units[at(r->unit_of[at(i)])];
    r->parts[at(u.first + u.parts++)] = i;
  }
}

// The cores of a unit: of a segment the most that any part takes, all at once (SK-33).
void give_cores(Prepared* r) {
  const Plan& p = *r->plan;
  for (Unit& u : r->units) {
    const Launch& first = p.launches[at(r->parts[at(u.first)])];
    const BlockCores one = block_cores(p, first);
    if (u.parts == 1) {
      u.cube = one.cube, u.vector = one.vector, u.ai_cpu = one.ai_cpu;
      u.slots = slots_of(p, *r->device, first);
      u.gang = first.gang || (first.collective != none && u.slots > 0);
      u.mix = is_mix(first.engine);
      continue;
    }
    for (std::int32_t k = 0; k < u.parts; ++k) {
      const Launch& l = p.launches[at(r->parts[at(u.first + k)])];
      const BlockCores b = block_cores(p, l);
      const std::int32_t slots = slots_of(p, *r->device, l);
      u.cube = std::max(u.cube, b.cube * slots);
      u.vector = std::max(u.vector, b.vector * slots);
      u.mix |= is_mix(l.engine);
    }
    u.slots = u.cube + u.vector > 0 ? 1 : 0;  // one slot: all of its cores
    u.gang = true;
  }
}

// The k-th collective of a group is the same on all of its ranks, or they hang (VN-74).
void match_collectives(Prepared* r) {
  const Plan& p = *r->plan;
  const std::size_t ranks = p.devices.size();
  std::vector<std::vector<std::vector<std::int32_t>>> order(
      p.groups.size(), std::vector<std::vector<std::int32_t>>(ranks));
  for (std::size_t i = 0; i < p.launches.size(); ++i) {
    const Launch& l = p.launches[i];
    if (l.collective == none) continue;
    const Collective& c = p.collectives[at(l.collective)];
    const auto rank = at(p.streams[at(l.stream)].rank);
    const auto& members = p.groups[at(c.group)].devices;
    if (std::find(members.begin(), members.end(), p.devices[rank]) == members.end())
      refuse(p, static_cast<std::int32_t>(i),
             cat("device ", p.devices[rank], " is not in group ", c.group),
             "launch a collective on members of its group");
    order[at(c.group)][rank].push_back(static_cast<std::int32_t>(i));
  }
  r->instance.assign(p.launches.size(), none);
  for (std::size_t g = 0; g < order.size(); ++g) {
    std::vector<std::size_t> in;
    for (std::size_t k = 0; k < ranks; ++k) {
      const auto& members = p.groups[g].devices;
      if (std::find(members.begin(), members.end(), p.devices[k]) != members.end()) in.push_back(k);
    }
    if (in.empty()) continue;
    const auto& first = order[g][in[0]];
    const auto base = static_cast<std::int32_t>(r->members.size());
    r->members.resize(r->members.size() + first.size(), 0);
    for (const std::size_t k : in) {
      const auto& mine = order[g][k];
      for (std::size_t i = 0; i < std::max(first.size(), mine.size()); ++i) {
        const auto name = [&](const std::vector<std::int32_t>& v, std::size_t rank) {
          return i < v.size() ? cat("rank ", rank, " has ", describe(p, v[i]))
                              : cat("rank ", rank, " has none");
        };
        const auto same = [&] {
          if (i >= first.size() || i >= mine.size()) return false;
          const Collective& a = p.collectives[at(p.launches[at(first[i])].collective)];
          const Collective& b = p.collectives[at(p.launches[at(mine[i])].collective)];
          return a.kind == b.kind && a.bytes == b.bytes && a.traffic == b.traffic;
        };
        if (!same())
          throw UserError("TK1403", cat("group ", g, " hangs at its collective ", i, ": ",
                                        name(first, in[0]), ", ", name(mine, k)))
              .help("launch the collectives of a group in one order on all ranks");
        r->instance[at(mine[i])] = base + static_cast<std::int32_t>(i);
        ++r->members[at(base) + i];
      }
    }
  }
}

}  // namespace

std::string describe(const Plan& plan, std::int32_t launch) {
  const Launch& l = plan.launches[at(launch)];
  std::string name = "launch", module;
  if (l.text != none) {
    name = plan.texts[at(l.text)].name;
    if (!plan.texts[at(l.text)].module.empty()) module = ", " + plan.texts[at(l.text)].module;
  }
  const bool has_stream = l.stream >= 0 && at(l.stream) < plan.streams.size();
  const std::string rank =
      has_stream && plan.devices.size() > 1 ? cat(", rank ", plan.streams[at(l.stream)].rank) : "";
  return cat(name, " (launch ", launch, rank, ", stream ", l.stream, module, ")");
}

BlockCores block_cores(const Plan& p, const Launch& l) {
  switch (l.engine) {
    case Engine::ai_core:
      return {1, 0, 0};
    case Engine::ai_vector:
      return {0, 1, 0};
    case Engine::mix_aic:
    case Engine::mix_aiv:
      return {1, l.vectors_per_cube, 0};
    case Engine::ai_cpu:
      return {0, 0, 1};
    case Engine::communication:
      if (l.collective != none && l.blocks > 0 &&
          p.collectives[at(l.collective)].engine == CollectiveEngine::aiv)
        return {0, 1, 0};
      return {};
    case Engine::dma:
    case Engine::prefetch:
      return {};
  }
  return {};
}

std::int32_t slots_of(const Plan& p, const DeviceParams& d, const Launch& l) {
  const BlockCores b = block_cores(p, l);
  const Stream& s = p.streams[at(l.stream)];
  const auto least = [](std::int32_t have, std::int32_t x, std::int32_t y) {
    if (x > 0) have = std::min(have, x);
    return y > 0 ? std::min(have, y) : have;
  };
  std::int32_t n = b.cube + b.vector + b.ai_cpu > 0 ? l.blocks : 0;
  if (b.cube > 0) n = std::min(n, least(d.cube_cores, l.cube_limit, s.cube_limit) / b.cube);
  if (b.vector > 0)
    n = std::min(n, least(d.vector_cores, l.vector_limit, s.vector_limit) / b.vector);
  if (b.ai_cpu > 0) n = std::min(n, d.ai_cpu_cores / b.ai_cpu);
  return n;
}

Prepared prepare(const Plan& plan, const DeviceParams& device) {
  check_tables(plan, device);
  Prepared r;
  r.plan = &plan;
  r.device = &device;
  const std::size_t n = plan.launches.size();
  for (std::size_t i = 0; i < n; ++i) check_launch(plan, device, static_cast<std::int32_t>(i));
  r.queue.resize(plan.streams.size());
  r.host.resize(plan.devices.size());
  r.position.assign(n, 0);
  r.unit_of.assign(n, 0);
  find_recorders(&r);
  make_units(&r);
  give_cores(&r);
  match_collectives(&r);
  for (const Access& a : plan.accesses) r.span = std::max(r.span, a.address + a.bytes);
  return r;
}

}  // namespace tk::sim

// A part at work: its blocks in batches, each with terms that run at the same time (VN-20, VN-34).
#include <algorithm>

#include "npu/sim/loop.h"

namespace tk::sim {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
std::size_t at(Term t) { return static_cast<std::size_t>(t); }

Work work_of(std::int64_t bytes, std::int64_t cost_permille) {
  return static_cast<Work>((static_cast<__int128>(bytes) * cost_permille << work_bits) / 1000);
}

// `bytes_per_cycle` of so many cores, Work per ps.
Work core_rate(std::int64_t bytes_milli, std::int64_t cores, std::int64_t mhz, std::int64_t cost) {
  const __int128 per_s = static_cast<__int128>(bytes_milli) * cores * mhz * cost;  // 10^-6 B/us
  return static_cast<Work>((per_s << work_bits) / 1'000'000 / 1'000'000);
}

std::int64_t l2_per_core_milli(const DeviceParams& d, std::int64_t read, std::int64_t written) {
  if (read + written == 0) return std::int64_t{d.core_l2_read} * 1000;
  const __int128 cycles = static_cast<__int128>(read) * 1'000'000 / d.core_l2_read +
                          static_cast<__int128>(written) * 1'000'000 / d.core_l2_write;
  if (cycles == 0) return std::int64_t{d.core_l2_read} * 1000;
  return static_cast<std::int64_t>(static_cast<__int128>(read + written) * 1'000'000'000 / cycles);
}

}  // namespace

// Of a mix the side that leads.
std::int64_t Loop::movers(const Unit& u, const Launch& l) const {
  const BlockCores b = u.parts > 1 ? block_cores(p, l) : BlockCores{u.cube, u.vector, u.ai_cpu};
  if (l.engine == Engine::mix_aiv) return b.vector;
  return b.cube > 0 ? b.cube : b.vector + b.ai_cpu;
}

std::int32_t Loop::part_slots(const StreamState& st) const {
  const Unit& u = unit_at(st);
  return u.parts == 1 ? u.slots : slots_of(p, d, launch_at(st));
}

Work Loop::cap_of(std::int32_t stream, const Batch& b, Term term) const {
  const StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  const Launch& l = launch_at(st);
  const std::int64_t cores = b.slots * movers(u, l);
  if (cores == 0) return INT64_MAX;  // moved by an engine of its own
  if (term == Term::hbm_read)
    return core_rate(std::int64_t{d.core_hbm_read} * 1000, cores, s.mhz, st.cost[0]);
  if (term == Term::hbm_write)
    return core_rate(std::int64_t{d.core_hbm_write} * 1000, cores, s.mhz, st.cost[1]);
  return l2_cap(st.span.l2_bytes - st.l2_written, st.l2_written, cores);
}

Work Loop::l2_cap(std::int64_t read, std::int64_t written, std::int64_t cores) const {
  if (cores == 0) return INT64_MAX;
  return core_rate(l2_per_core_milli(d, read, written), cores, s.mhz, 1000);
}

void Loop::look_into_l2(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const Launch& l = launch_at(st);
  RankState& rk = s.ranks[at(unit_at(st).rank)];
  st.pool = {l.hbm_read, l.hbm_write, l.l2_bytes};
  st.l2_written = 0;
  for (std::int32_t k = 0; k < l.accesses.count; ++k) {
    const Access& a = p.accesses[at(l.accesses.begin + k)];
    if (without(Effect::l2)) {
      st.pool[a.write ? 1 : 0] += a.bytes;
      if (!a.write) s.l2_miss += a.bytes;
      continue;
    }
    const L2Traffic t = a.write ? rk.l2.write(a.address, a.bytes) : rk.l2.read(a.address, a.bytes);
    st.pool[0] += t.miss;
    st.pool[1] += t.written;
    st.pool[2] += a.bytes;
    if (a.write) st.l2_written += a.bytes;
    st.span.l2_hit += t.hit;
    s.l2_hit += t.hit;
    s.l2_miss += t.miss;
    s.l2_dirty += t.written;
  }
  st.span.hbm_read = st.pool[0];
  st.span.hbm_write = st.pool[1];
  st.span.l2_bytes = st.pool[2];
  st.cost = hbm_cost(d, st.pool[0], st.pool[1]);
}

void Loop::begin_work(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  st.stage = Stage::work;
  st.work_from = s.now;
  st.first_batch = true;
  st.rounds_done = 0;
  st.batches.clear();
  if (launch_at(st).engine == Engine::prefetch) {
    st.access = 0, st.offset = 0;
    st.pool = {};
    st.cost = hbm_cost(d, 1, 0);
    st.blocks_left = 0;
    L2& l2 = s.ranks[at(u.rank)].l2;
    st.owner = static_cast<std::int32_t>(l2.owners().size());
    l2.owners().emplace_back();
    if (!next_chunk(stream)) begin_batch(stream, 0);
    return;
  }
  look_into_l2(stream);
  const std::int32_t slots = part_slots(st);
  if (slots == 0) {
    st.blocks_left = 1;
    begin_batch(stream, 0);
    return;
  }
  st.blocks_left = launch_at(st).blocks;
  const std::int32_t now = u.gang ? slots : st.spare;
  st.spare = 0;
  begin_batch(stream, now);
  if (wants_cores(st)) wait_for_cores(stream);
}

void Loop::more_slots(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const std::int32_t n = st.spare;
  st.spare = 0;
  begin_batch(stream, n);
}

// `slots` of 0: without cores, one block.
void Loop::begin_batch(std::int32_t stream, std::int32_t slots) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  const Launch& l = launch_at(st);
  RankState& rk = s.ranks[at(u.rank)];
  const auto index = static_cast<std::int32_t>(st.batches.size());
  st.batches.emplace_back();
  Batch& b = st.batches.back();
  const std::int32_t run = std::min(std::max(slots, 1), st.blocks_left);
  b.slots = slots;
  b.live = true;
  if (slots > run && !u.gang) {  // the last round needs fewer cores
    b.slots = run;
    release(stream, slots - run);
  }
  // Alone it does all its rounds in one batch; whoever comes can have the later ones cut off.
  const bool contended =
      !u.gang && !rk.waiting.empty() && !(rk.waiting.size() == 1 && rk.waiting[0] == stream);
  if (run > 0 && slots > 0 && !contended) b.waves = (st.blocks_left + run - 1) / run;
  if (b.waves > 1 && !u.gang) ++rk.merged;
  b.blocks = std::min(run * b.waves, st.blocks_left);
  b.from = s.now;
  b.round = st.rounds_done + 1;
  st.span.waves = std::max(st.span.waves, b.round + b.waves - 1);
  std::array<std::int64_t, 3> bytes{};
  for (std::size_t k = 0; k < 3; ++k) {
    if (b.blocks == 0) break;
    bytes[k] = b.blocks == st.blocks_left
                   ? st.pool[k]
                   : static_cast<std::int64_t>(static_cast<__int128>(st.pool[k]) * b.blocks /
                                               st.blocks_left);
    st.pool[k] -= bytes[k];
  }
  st.blocks_left -= b.blocks;
  if (b.blocks > 0) {
    const std::int32_t i = launch_index(st);
    b.left[0] = jittered(i, l.cube_cycles * b.waves, 1) * 1'000'000;
    b.left[1] = jittered(i, l.vector_cycles * b.waves, 1) * 1'000'000;
    if (st.first_batch) b.left[2] = jittered(i, l.fixed, 1);
    if (st.first_batch && l.engine == Engine::dma) b.left[2] = std::max(b.left[2], d.pcie_floor);
  }
  b.total = {b.left[0], b.left[1], bytes[0], bytes[1], bytes[2], 0, 0};
  b.open = 1;  // held until all are added
  const bool first = st.first_batch;
  st.first_batch = false;
  const auto flow = [&](std::size_t which, Term term, std::int64_t n, std::int64_t cost, Work cap) {
    if (n == 0) return;
    Flow f;
    f.stream = stream, f.batch = index, f.term = term;
    f.left = work_of(n, cost);
    f.cap = cap;
    ++st.batches[at(index)].open;
    add_flow(u.rank, which, f, n);
  };
  flow(res_hbm, Term::hbm_read, bytes[0], st.cost[0], cap_of(stream, b, Term::hbm_read));
  flow(res_hbm, Term::hbm_write, bytes[1], st.cost[1], cap_of(stream, b, Term::hbm_write));
  flow(res_l2, Term::l2, bytes[2], 1000, cap_of(stream, b, Term::l2));
  if (first && l.engine == Engine::dma) flow(res_pcie, Term::link, l.link_bytes, 1000, INT64_MAX);
  if (first && l.collective != none) {
    st.phase = -1;
    next_phase(stream, index);
  }
  Batch& done = st.batches[at(index)];
  const bool timed = done.left[0] > 0 || done.left[1] > 0 || done.left[2] > 0;
  if (timed || done.open == 1)
    batch_timer(stream, index);  // also ends a batch without any work
  else
    --done.open;
}

void Loop::batch_timer(std::int32_t stream, std::int32_t batch) {
  StreamState& st = s.streams[at(stream)];
  Batch& b = st.batches[at(batch)];
  // Numbers are not used again: a timer that a cut left behind must not end a later batch.
  b.version = ++st.timers;
  Ps t = b.left[2];
  for (std::size_t k = 0; k < 2; ++k) t = std::max(t, (b.left[k] + s.mhz - 1) / s.mhz);
  push({b.from + t, ev_batch, p.streams[at(stream)].rank, stream, batch, b.version});
}

// The compute terms of a batch are over.
void Loop::term_done(std::int32_t stream, std::int32_t batch, Term term) {
  StreamState& st = s.streams[at(stream)];
  Batch& b = st.batches[at(batch)];
  const Ps since = s.now - st.work_from;
  if (term == Term::fixed) {  // the timer: of cube, vector and fixed together
    for (std::size_t k = 0; k < 2; ++k)
      if (b.left[k] > 0)
        st.span.term[k] =
            std::max(st.span.term[k], b.from + (b.left[k] + s.mhz - 1) / s.mhz - st.work_from);
    if (b.left[2] > 0)
      st.span.term[at(Term::fixed)] =
          std::max(st.span.term[at(Term::fixed)], b.from + b.left[2] - st.work_from);
    b.left = {};
  } else {
    st.span.term[at(term)] = std::max(st.span.term[at(term)], since);
    if (term == Term::link && launch_at(st).collective != none) {
      if (--st.link_flows > 0) return;
      next_phase(stream, batch);
      return;
    }
  }
  if (--b.open == 0) batch_done(stream, batch);
}

// A latency, then bytes on the links; the chain of them is one open term of the batch.
void Loop::next_phase(std::int32_t stream, std::int32_t batch) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  const CommCost& c = comm_of(launch_at(st), u.rank);
  if (st.phase < 0)
    ++st.batches[at(batch)].open;
  else
    st.span.term[at(Term::link)] = s.now - st.work_from;
  ++st.phase;
  if (at(st.phase) >= c.phases.size() || without(Effect::links)) {
    // Its end is an event too, so that a batch does not end while it begins.
    st.phase = static_cast<std::int32_t>(c.phases.size());
    push({s.now, ev_phase, u.rank, stream, batch, ++st.version});
    return;
  }
  push({s.now + c.phases[at(st.phase)].latency, ev_phase, u.rank, stream, batch, ++st.version});
}

void Loop::phase_flows(std::int32_t stream, std::int32_t batch) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  const CommCost& c = comm_of(launch_at(st), u.rank);
  if (at(st.phase) >= c.phases.size()) {
    if (--st.batches[at(batch)].open == 0) batch_done(stream, batch);
    return;
  }
  const CommPhase& phase = c.phases[at(st.phase)];
  st.link_flows = 0;
  for (std::size_t l = 0; l < d.links.size(); ++l) st.link_flows += phase.bytes[l] > 0;
  if (st.link_flows == 0) return next_phase(stream, batch);
  for (std::size_t l = 0; l < d.links.size(); ++l) {
    if (phase.bytes[l] == 0) continue;
    Flow f;
    f.stream = stream, f.batch = batch, f.term = Term::link;
    f.left = work_of(phase.bytes[l], 1000);
    f.cap = static_cast<Work>(static_cast<__int128>(resource(u.rank, res_links + l).capacity) *
                              phase.links / phase.of_links);
    add_flow(u.rank, res_links + l, f, phase.bytes[l]);
  }
}

void Loop::batch_done(std::int32_t stream, std::int32_t batch) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  RankState& rk = s.ranks[at(u.rank)];
  Batch& b = st.batches[at(batch)];
  b.live = false;
  if (b.waves > 1 && !u.gang) --rk.merged;
  st.rounds_done = std::max(st.rounds_done, b.round + b.waves - 1);
  if (launch_at(st).engine == Engine::prefetch) {
    if (st.chunk > 0) {
      const Access& a = p.accesses[at(launch_at(st).accesses.begin + st.access)];
      const L2Traffic t = rk.l2.bring(a.address + st.offset, st.chunk, st.owner);
      s.l2_dirty += t.written;
      st.pool[1] += t.written;
      st.offset += st.chunk;
      st.chunk = 0;
    }
    if (!next_chunk(stream)) end_work(stream);
    return;
  }
  if (st.blocks_left > 0) {
    if (u.gang || rk.waiting.empty() || rk.waiting[0] == stream ||
        before_in_order(stream, rk.waiting[0])) {
      begin_batch(stream, u.gang ? part_slots(st) : b.slots);
    } else {
      release(stream, b.slots);
      wait_for_cores(stream);
    }
    return;
  }
  for (const Batch& other : st.batches)
    if (other.live) {
      if (!u.gang) release(stream, b.slots);
      return;
    }
  end_work(stream);
}

void Loop::end_work(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  const Launch& l = launch_at(st);
  const Ps work = s.now - st.work_from;
  Ps extra = with_overlap(l, st.span.term) - work;
  if (extra < 0) extra = 0;
  if (st.part + 1 == u.parts && !without(Effect::heads)) {
    st.span.tail = l.tail;
    extra += l.tail;
  }
  st.stage = Stage::tail;
  if (extra == 0) return end_part(stream);
  timer(stream, s.now + extra);
}

Ps with_overlap(const Launch& l, const std::array<Ps, term_count>& term) {
  const Ps longest = *std::max_element(term.begin(), term.end());
  if (l.overlap_ppm == 0) return longest;
  std::int64_t active = 0;
  for (const Ps t : term) active += 2 * t >= longest && t > 0;
  if (active < 2) return longest;
  return longest +
         static_cast<Ps>(static_cast<__int128>(longest) * (active - 1) * l.overlap_ppm / 1'000'000);
}

// Rounds of a batch that have not begun go back to the blocks that wait (see assign); false: all
// have.
bool Loop::cut_waves(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  bool changed = false;
  for (std::size_t i = 0; i < st.batches.size(); ++i) {
    Batch& b = st.batches[i];
    if (!b.live || b.waves == 1) continue;
    for (const std::size_t which : {res_hbm, res_l2}) settle(&resource(u.rank, which));
    std::array<Flow*, 3> flows{};
    for (const std::size_t which : {res_hbm, res_l2})
      for (Flow& f : resource(u.rank, which).flows)
        if (f.stream == stream && f.batch == static_cast<std::int32_t>(i))
          flows[at(f.term) - at(Term::hbm_read)] = &f;
    const auto cost = [&](std::size_t k) { return k < 2 ? st.cost[k] : 1000; };
    // Rounds done: as many as the slowest term has.
    const Ps dt = s.now - b.from;
    std::int32_t done = b.waves - 1;
    const auto progress = [&](__int128 total, __int128 left) {
      if (total > 0)
        done = std::min(done, static_cast<std::int32_t>((total - left) * b.waves / total));
    };
    for (std::size_t k = 0; k < 2; ++k)
      progress(b.total[k], std::max<Work>(0, b.left[k] - dt * s.mhz));
    for (std::size_t k = 0; k < 3; ++k)
      progress(work_of(b.total[2 + k], cost(k)), flows[k] != nullptr ? flows[k]->left : 0);
    const std::int32_t back = b.waves - done - 1;
    if (back == 0) continue;
    changed = true;
    const std::int32_t blocks = b.blocks - b.slots * (b.waves - back);
    for (std::size_t k = 0; k < 2; ++k) {
      const Work each = b.total[k] / b.waves;
      b.left[k] = std::max<Work>(b.left[k] - each * back, std::min<Work>(b.left[k], dt * s.mhz));
      b.total[k] -= each * back;
    }
    for (std::size_t k = 0; k < 3; ++k) {
      if (flows[k] == nullptr) continue;
      // Whole bytes go back, so that none is lost.
      const auto fits = static_cast<std::int64_t>(
          static_cast<__int128>(flows[k]->left) * 1000 / cost(k) >> work_bits);
      const std::int64_t bytes = std::min(
          fits,
          static_cast<std::int64_t>(static_cast<__int128>(b.total[2 + k]) * blocks / b.blocks));
      const Work w = std::min(flows[k]->left, work_of(bytes, cost(k)));
      flows[k]->left -= w;
      b.total[2 + k] -= bytes;
      st.pool[k] += bytes;
      Resource& res = resource(u.rank, k < 2 ? res_hbm : res_l2);
      res.bytes -= bytes;
      res.demanded -= w;
    }
    st.blocks_left += blocks;
    b.blocks -= blocks;
    b.waves -= back;
    if (b.waves == 1) --s.ranks[at(u.rank)].merged;
    refill(static_cast<std::size_t>(u.rank) * per_rank + res_hbm);
    refill(static_cast<std::size_t>(u.rank) * per_rank + res_l2);
    if (b.left[0] > 0 || b.left[1] > 0 || b.left[2] > 0)
      batch_timer(stream, static_cast<std::int32_t>(i));
  }
  if (changed && wants_cores(st)) wait_for_cores(stream);
  return changed;
}

// The next piece of a prefetch that is not in L2 yet; false: nothing is left.
bool Loop::next_chunk(std::int32_t stream) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  const Launch& l = launch_at(st);
  RankState& rk = s.ranks[at(u.rank)];
  std::int64_t missing = 0;
  const bool idle = without(Effect::prefetch) || without(Effect::l2);
  for (; !idle && st.access < l.accesses.count; ++st.access, st.offset = 0) {
    const Access& a = p.accesses[at(l.accesses.begin + st.access)];
    while (st.offset < a.bytes) {
      const std::int64_t from = a.address + st.offset;
      const std::int64_t page_end = (from / rk.l2.page_bytes() + 1) * rk.l2.page_bytes();
      st.chunk = std::min(a.address + a.bytes, page_end) - from;
      missing = st.chunk - rk.l2.resident(from, st.chunk);
      if (missing > 0) break;
      st.offset += st.chunk;
      st.chunk = 0;
    }
    if (missing > 0) break;
  }
  if (missing == 0 && st.pool[1] == 0) return false;
  const std::int64_t write = st.pool[1];
  st.pool[1] = 0;
  st.batches.clear();
  st.batches.emplace_back();
  Batch& b = st.batches.back();
  b.live = true;
  b.from = s.now;
  b.open = (missing > 0 ? 2 : 0) + (write > 0 ? 1 : 0);
  const auto flow = [&](std::size_t which, Term term, std::int64_t n, std::int64_t cost) {
    Flow f;
    f.stream = stream, f.batch = 0, f.term = term;
    f.left = work_of(n, cost);
    f.cap = INT64_MAX;
    if (n > 0) add_flow(u.rank, which, f, n);
  };
  flow(res_hbm, Term::hbm_read, missing, st.cost[0]);
  flow(res_prefetch, Term::link, missing, 1000);
  flow(res_hbm, Term::hbm_write, write, st.cost[1]);
  st.span.hbm_read += missing;
  st.span.hbm_write += write;
  return true;
}

void Loop::set_mhz(std::int32_t mhz) {
  const std::int32_t before = s.mhz;
  for (Resource& res : s.resources) settle(&res);
  for (std::size_t k = 0; k < s.streams.size(); ++k) {
    StreamState& st = s.streams[k];
    if (st.stage != Stage::work) continue;
    for (std::size_t i = 0; i < st.batches.size(); ++i) {
      Batch& b = st.batches[i];
      if (!b.live || (b.left[0] == 0 && b.left[1] == 0 && b.left[2] == 0)) continue;
      const Ps dt = s.now - b.from;
      for (std::size_t c = 0; c < 2; ++c) b.left[c] = std::max<Work>(0, b.left[c] - dt * before);
      b.left[2] = std::max<Ps>(0, b.left[2] - dt);
      b.from = s.now;
      s.mhz = mhz;
      batch_timer(static_cast<std::int32_t>(k), static_cast<std::int32_t>(i));
    }
  }
  s.mhz = mhz;
  for (std::size_t i = 0; i < s.resources.size(); ++i) {
    for (Flow& f : s.resources[i].flows)
      if (f.term != Term::link && f.cap != INT64_MAX)
        f.cap = cap_of(f.stream, s.streams[at(f.stream)].batches[at(f.batch)], f.term);
    refill(i);
  }
}

}  // namespace tk::sim

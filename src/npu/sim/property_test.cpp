// What holds for every Plan (VN-81, VN-84), tried on random ones with fixed seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "npu/sim/loop.h"
#include "npu/sim/plans_test_util.h"

namespace tk::sim {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

struct Dice {
  std::mt19937_64 engine;
  explicit Dice(std::uint64_t seed) : engine(seed) {}
  std::int64_t up_to(std::int64_t n) {  // 0 .. n, the same on every machine
    return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(n + 1));
  }
  bool one_in(int n) { return up_to(n - 1) == 0; }
};

struct Mixed {
  int streams = 1;
  bool prefetch = false, collectives = false, segments = false;
};

// Events are recorded by earlier launches than those that wait, so it can always run.
Plan random_plan(Dice* dice, const Mixed& mixed) {
  Plan p = plan_of(mixed.streams);
  p.mode = static_cast<Mode>(mixed.segments ? 2 : dice->up_to(2));
  for (Stream& s : p.streams) s.priority = static_cast<std::int32_t>(dice->up_to(1));
  p.groups.push_back({{0, 1, 2, 3, 4, 5, 6, 7}});
  const auto n = static_cast<int>(5 + dice->up_to(45));
  std::vector<std::int32_t> recorded;
  std::int32_t segment_stream = none;
  for (int i = 0; i < n; ++i) {
    Launch l;
    l.stream = static_cast<std::int32_t>(dice->up_to(mixed.streams - 1));
    if (segment_stream != none && !dice->one_in(3)) {
      l.stream = segment_stream;
      l.segment = static_cast<std::int32_t>(p.segments.size()) - 1;
    } else {
      segment_stream = none;
    }
    constexpr Engine engines[] = {Engine::ai_core, Engine::ai_vector, Engine::mix_aic,
                                  Engine::mix_aiv, Engine::ai_cpu};
    l.engine = engines[dice->up_to(l.segment != none ? 3 : 4)];
    l.vectors_per_cube = static_cast<std::uint8_t>(1 + dice->up_to(1));
    l.blocks = static_cast<std::int32_t>(1 + dice->up_to(dice->one_in(4) ? 150 : 40));
    l.gang = dice->one_in(6);
    if (dice->one_in(4)) l.cube_limit = static_cast<std::int32_t>(1 + dice->up_to(19));
    if (dice->one_in(4)) l.vector_limit = static_cast<std::int32_t>(2 + dice->up_to(38));
    if (l.engine != Engine::ai_vector && l.engine != Engine::ai_cpu)
      l.cube_cycles = dice->up_to(20'000);
    if (l.engine != Engine::ai_core) l.vector_cycles = dice->up_to(20'000);
    l.head = dice->up_to(2 * us), l.tail = dice->up_to(us / 2);
    l.overlap_ppm = static_cast<std::int32_t>(dice->one_in(2) ? 0 : dice->up_to(300'000));
    if (dice->one_in(3)) l.hbm_read = dice->up_to(40'000'000);
    if (dice->one_in(3)) l.hbm_write = dice->up_to(10'000'000);
    if (dice->one_in(5)) l.fixed = dice->up_to(10 * us);
    std::vector<Access> accesses;
    for (std::int64_t k = dice->up_to(3); k > 0; --k)
      accesses.push_back({dice->up_to(400) << 20,
                          dice->up_to(dice->one_in(5) ? 150'000'000 : 5'000'000), dice->one_in(3)});
    if (mixed.collectives && dice->one_in(6) && l.segment == none) {
      Collective c;
      c.kind = static_cast<CollectiveKind>(dice->up_to(7));
      c.bytes = dice->up_to(30'000'000);
      c.engine = dice->one_in(3) ? CollectiveEngine::aiv : CollectiveEngine::sdma;
      l.collective = static_cast<std::int32_t>(p.collectives.size());
      p.collectives.push_back(c);
      if (!dice->one_in(4)) l.engine = Engine::communication;
    }
    if (mixed.prefetch && dice->one_in(6) && l.segment == none && l.collective == none) {
      l.engine = Engine::prefetch;
      l.hbm_read = l.hbm_write = l.fixed = l.cube_cycles = l.vector_cycles = 0;
      accesses = {{dice->up_to(400) << 20, dice->up_to(30'000'000), false}};
    }
    l.accesses = append(p.accesses, accesses);
    // A part of a SuperKernel that waits holds its cores: a deadlock with a gang, and a true one.
    if (mixed.streams > 1 && !recorded.empty() && l.segment == none && dice->one_in(4))
      l.waits = append(p.events, {recorded[at(static_cast<std::int32_t>(dice->up_to(
                                     static_cast<std::int64_t>(recorded.size()) - 1)))]});
    if (mixed.streams > 1 && dice->one_in(4)) {
      const auto e = static_cast<std::int32_t>(recorded.size());
      l.records = append(p.events, {e});
      recorded.push_back(e);
    }
    p.launches.push_back(l);
    if (mixed.segments && segment_stream == none && dice->one_in(5)) {
      segment_stream = l.stream;
      p.segments.push_back({"scope", dice->one_in(2), false});
    }
  }
  return p;
}

DeviceParams random_device(Dice* dice) {
  DeviceParams d;
  d.host_per_launch = dice->up_to(20 * us);
  d.dispatch_per_launch = dice->one_in(2) ? 0 : dice->up_to(10 * us);
  d.queue_depth = static_cast<std::int32_t>(1 + dice->up_to(10));
  d.graph_launch = 10 * us, d.graph_entry = 5 * us;
  d.prefetch_depth = static_cast<std::int32_t>(1 + dice->up_to(3));
  return d;
}

void expect_sound(const Plan& p, const DeviceParams& d, std::uint64_t seed) {
  SCOPED_TRACE(seed);
  const Prepared prepared = prepare(p, d);
  const SimOptions options;
  Loop loop(prepared, d, options);
  loop.begin_step(0, 0, 0);
  loop.run();
  std::int64_t read = 0, written = 0, l2 = 0;
  for (const Span& s : loop.s.spans) {
    read += s.hbm_read, written += s.hbm_write;
    l2 += s.l2_bytes;
  }
  ASSERT_EQ(loop.s.spans.size(), p.launches.size());
  for (const Resource& res : loop.s.resources) {
    EXPECT_TRUE(res.delivered == res.demanded);  // nothing is lost by rounding (VN-80)
    EXPECT_TRUE(res.flows.empty());
  }
  EXPECT_EQ(loop.resource(0, res_hbm).bytes, read + written);
  EXPECT_EQ(loop.resource(0, res_l2).bytes, l2);
  EXPECT_EQ(loop.s.ranks[0].cube, d.cube_cores);  // all given back
  EXPECT_EQ(loop.s.ranks[0].vector, d.vector_cores);

  const Result r = simulate(p, d);
  EXPECT_EQ(r.hash(), simulate(p, d).hash());
  for (const ResourceUse& u : r.resources) {
    EXPECT_LE(u.busy, r.total) << u.name;
    EXPECT_GE(u.busy, 0) << u.name;
  }
  std::vector<const Span*> of(p.launches.size(), nullptr);
  for (const Span& s : r.spans) of[at(s.launch)] = &s;
  std::vector<const Span*> last(p.streams.size(), nullptr);
  for (std::size_t i = 0; i < p.launches.size(); ++i) {  // no start before what it depends on
    const Launch& l = p.launches[i];
    const Span& s = *of[i];
    EXPECT_LE(s.start, s.end);
    if (last[at(l.stream)] != nullptr) {
      EXPECT_GE(s.start, last[at(l.stream)]->end);
    }
    last[at(l.stream)] = &s;
    const std::int32_t unit = prepared.unit_of[i];
    const bool first = prepared.parts[at(prepared.units[at(unit)].first)] == s.launch;
    for (std::int32_t k = 0; k < l.waits.count && first; ++k)
      EXPECT_GE(s.start, of[at(prepared.recorder[at(p.events[at(l.waits.begin + k)])])]->end);
    // No term is done sooner than alone, but for what is rounded; reads and writes share a bus.
    const std::array<Ps, term_count> least = alone(loop, s).term;
    for (const std::size_t t : {0, 1, 4, 5, 6})
      EXPECT_GE(s.term[t] + 5, least[t]) << i << " " << term_name(static_cast<Term>(t));
    EXPECT_GE(std::max(s.term[2], s.term[3]) + 5, std::max(least[2], least[3])) << i;
  }
  for (std::size_t k = 0; k < p.streams.size(); ++k) {  // VN-91: idle time has a reason, all of it
    Ps all = r.stream_busy[k];
    for (const Ps t : r.idle[k]) {
      EXPECT_GE(t, 0);
      all += t;
    }
    EXPECT_EQ(all, r.total);
  }
  const auto slack = static_cast<Ps>(10 * p.launches.size());  // ps: rates are rounded down
  EXPECT_LE(r.bounds.critical_path, r.total + slack);
  EXPECT_LE(r.bounds.busiest, r.total + slack) << r.bounds.busiest_name;
  EXPECT_LE(r.total, r.bounds.serial + r.total / 100'000 + slack);
  ASSERT_FALSE(r.critical_path.empty());
  EXPECT_EQ(r.spans[at(r.critical_path.back())].end, r.total);
}

TEST(Property, VN84_BytesCoresDependenciesAndBounds) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    Dice dice(seed);
    Mixed m;
    m.streams = static_cast<int>(1 + dice.up_to(3));
    m.prefetch = dice.one_in(2), m.collectives = dice.one_in(2), m.segments = dice.one_in(3);
    const Plan p = random_plan(&dice, m);
    expect_sound(p, random_device(&dice), seed);
    if (HasFailure()) return;
  }
}

// On one stream: removing a kernel, more cores, more bandwidth never lengthen. Removing is tried
// without L2: a kernel on all cores that reads what one on a single core reads again does the work
// of a prefetch, and to remove it can lengthen (found by seed 1). And without lambda: VN-20 counts
// pipes within 50 % of the largest, so a faster largest one can make others count (found by seed
// 104).
TEST(Property, VN84_MonotoneOnOneStream) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    Mixed m;
    m.collectives = dice.one_in(2);
    Plan p = random_plan(&dice, m);
    for (Launch& l : p.launches) l.overlap_ppm = 0;
    const DeviceParams d = random_device(&dice);
    const Ps total = simulate(p, d).total;
    const auto slack = static_cast<Ps>(10 * p.launches.size());
    Plan without = p;
    without.launches.erase(without.launches.begin() +
                           dice.up_to(static_cast<std::int64_t>(p.launches.size()) - 1));
    SimOptions no_l2;
    no_l2.without = 1U << static_cast<unsigned>(Effect::l2);
    EXPECT_LE(simulate(without, d, no_l2).total, simulate(p, d, no_l2).total + slack)
        << "without a kernel";
    DeviceParams more = d;
    more.cube_cores += 4, more.vector_cores += 8;
    EXPECT_LE(simulate(p, more).total, total + slack) << "more cores";
    more = d;
    more.hbm_rate *= 2;
    EXPECT_LE(simulate(p, more).total, total + slack) << "HBM";
    more = d;
    more.l2_rate *= 2;
    EXPECT_LE(simulate(p, more).total, total + slack) << "L2";
    more = d;
    for (LinkLevel& l : more.links) l.rate *= 2;
    EXPECT_LE(simulate(p, more).total, total + slack) << "links";
    if (HasFailure()) return;
  }
}

// Two streams that read memory: equal shares, and one that needs less leaves the rest (VN-34).
TEST(Property, VN34_MaxMinFairShares) {
  DeviceParams d = bare_device();
  d.hbm_rate = 1'000'000'000'000;  // 1 byte a ps
  d.core_hbm_read = 10;            // a core: 10 bytes a ns
  const auto reader = [](std::int32_t stream, std::int32_t cores, std::int64_t bytes) {
    Launch l = kernel(stream, Engine::ai_vector, cores, 0);
    l.hbm_read = bytes;
    return l;
  };
  d.vector_cores = 200;
  Plan p = plan_of(3);
  add(&p, reader(0, 20, 1'000'000));  // can use 0.2 bytes a ps
  add(&p, reader(1, 90, 4'000'000));  // 0.9: gets 0.4
  add(&p, reader(2, 90, 8'000'000));  // 0.9: gets 0.4, then 0.8 when the others are done
  const Result r = simulate(p, d);
  EXPECT_NEAR(static_cast<double>(span_of(r, 0).end), 5e6, 50);
  // 2 MB each by then; then half of it each.
  EXPECT_NEAR(static_cast<double>(span_of(r, 1).end), 5e6 + 4e6, 50);
  EXPECT_NEAR(static_cast<double>(span_of(r, 2).end), 9e6 + 4e6 / 0.9, 50);
  SimOptions alone;
  alone.without = 1U << static_cast<unsigned>(Effect::sharing);
  EXPECT_NEAR(static_cast<double>(simulate(p, d, alone).total), 8e6 / 0.9, 50);
}

// Several ranks with their own lengths: a collective starts when the last one is there (VN-72).
TEST(Property, VN72_RanksWaitForTheLast) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    const auto ranks = static_cast<std::int32_t>(2 + dice.up_to(6));
    Plan p;
    p.devices.clear();
    p.groups.resize(1);
    p.collectives.resize(1);
    p.collectives[0].bytes = 1 << 20;
    for (std::int32_t k = 0; k < ranks; ++k) {
      p.devices.push_back(k);
      p.groups[0].devices.push_back(k);
      Stream s;
      s.rank = k;
      p.streams.push_back(s);
    }
    const int rounds = 5;
    for (std::int32_t k = 0; k < ranks; ++k)
      for (int i = 0; i < rounds; ++i) {
        add(&p, kernel(k, Engine::ai_vector, 40, (1 + dice.up_to(50)) * us));
        Launch l;
        l.stream = k, l.engine = Engine::communication, l.collective = 0, l.blocks = 0;
        add(&p, l);
      }
    const DeviceParams d;
    const Result r = simulate(p, d);
    for (int i = 0; i < rounds; ++i) {
      Ps last = 0;
      bool someone_did_not_wait = false;
      for (std::int32_t k = 0; k < ranks; ++k)
        last = std::max(last, span_of(r, (k * rounds + i) * 2 + 1).start);
      for (std::int32_t k = 0; k < ranks; ++k) {
        const Span s = span_of(r, (k * rounds + i) * 2 + 1);
        EXPECT_EQ(s.start + s.peers, last);
        someone_did_not_wait |= s.peers == 0;
        EXPECT_EQ(s.end, span_of(r, i * 2 + 1).end);
      }
      EXPECT_TRUE(someone_did_not_wait);
    }
  }
}

// VN-36: at half the clock compute takes twice as long, memory does not.
TEST(Property, VN36_FrequencyDrop) {
  const DeviceParams d = bare_device();
  SimOptions o;
  o.mhz_from = {{30 * us, 500}};
  Plan p = plan_of(1);
  add(&p, kernel(0, Engine::ai_vector, 48, 50 * us));
  EXPECT_EQ(simulate(p, d, o).total, 30 * us + 2 * 20 * us);
  p.launches[0].vector_cycles = 0;
  p.launches[0].hbm_read = 64'000'000;
  EXPECT_EQ(simulate(p, d, o).total, simulate(p, d).total);
}

// VN-82: a span is most of what a launch takes; 80 bytes of the loop's state are beside it.
TEST(Property, VN82_SpansAreSmall) { EXPECT_LE(sizeof(Span), 216U); }

// VN-82: steps after the first one that starts as the one before it are not run again.
TEST(Property, VN82_StepsRepeat) {
  int repeated = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    Mixed m;
    m.streams = static_cast<int>(1 + dice.up_to(2));
    m.prefetch = dice.one_in(2);
    const Plan p = random_plan(&dice, m);
    const DeviceParams d = random_device(&dice);
    SimOptions o;
    o.steps = 6;
    o.launch_ahead = dice.one_in(2);
    const Result r = simulate(p, d, o);
    repeated += r.steps_simulated < 6;
    EXPECT_EQ(r.spans.size(), 6 * p.launches.size());
    SimOptions all = o;
    all.mhz_from = {{Ps{1} << 60, d.mhz}};  // no step is taken as the one before
    const Result full = simulate(p, d, all);
    EXPECT_EQ(full.steps_simulated, 6);
    EXPECT_EQ(r.hash(), full.hash());
    for (std::size_t k = 0; k < r.resources.size(); ++k) {
      EXPECT_EQ(r.resources[k].amount, full.resources[k].amount) << r.resources[k].name;
      EXPECT_EQ(r.resources[k].busy, full.resources[k].busy) << r.resources[k].name;
    }
    EXPECT_EQ(r.l2_hit, full.l2_hit);
  }
  EXPECT_GT(repeated, 45);  // where streams race for L2 it need not come to rest
}

}  // namespace
}  // namespace tk::sim

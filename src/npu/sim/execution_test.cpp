// Streams, events, graphs, L2 and prefetch on a device with its overheads (VN-30 to VN-62, PRE-61).
#include <gtest/gtest.h>

#include "npu/sim/plans_test_util.h"

namespace tk::sim {
namespace {

constexpr Engine C = Engine::ai_core, V = Engine::ai_vector;

DeviceParams device() {  // an A2, without the host
  DeviceParams d;
  d.graph_launch = d.graph_entry = 0;
  return d;
}

Launch lasting(std::int32_t stream, Engine e, Ps t) {
  Launch l;
  l.stream = stream, l.engine = e, l.blocks = 8, l.fixed = t;
  return l;
}

SimOptions without(Effect e) {
  SimOptions o;
  o.without = 1U << static_cast<unsigned>(e);
  return o;
}

TEST(Execution, VN30_GapsBetweenKernels) {
  const DeviceParams d = device();
  Plan p = plan_of(1);
  for (const Engine e : {V, C, Engine::mix_aic, V}) add(&p, lasting(0, e, 10 * us));
  const Result r = simulate(p, d);
  EXPECT_EQ(span_of(r, 1).start - span_of(r, 0).end, 20'000);
  EXPECT_EQ(span_of(r, 2).start - span_of(r, 1).end, 1'100'000);  // before a MIX kernel
  EXPECT_EQ(span_of(r, 3).start - span_of(r, 2).end, 1'100'000);  // and behind it
  EXPECT_EQ(simulate(p, d, without(Effect::gaps)).total, 40 * us);
}

TEST(Execution, VN31_Events) {
  const DeviceParams d = device();
  Plan p = plan_of(2);
  Launch first = lasting(0, C, 10 * us), second = lasting(1, V, 5 * us);
  first.records = append(p.events, {0});
  second.waits = append(p.events, {0});
  add(&p, first);
  add(&p, second);
  // Not there yet: until the record, then what a wait costs, then what a kernel behind it does.
  EXPECT_EQ(span_of(simulate(p, d), 1).start, 10 * us + d.record + d.wait + d.after_wait);
  EXPECT_EQ(span_of(simulate(p, d), 1).blocked_by, Cause::event);
  EXPECT_EQ(span_of(simulate(p, d), 1).blocker, 0);
  EXPECT_EQ(span_of(simulate(p, d, without(Effect::events)), 1).start, 10 * us);
  // There already: only the costs.
  p.launches.insert(p.launches.begin(), lasting(1, V, 30 * us));
  EXPECT_EQ(span_of(simulate(p, d), 2).start, 30 * us + d.wait + d.after_wait);
}

// VN-35: a 1:1 MIX kernel leaves the other vector cores to others.
TEST(Execution, VN35_MixKernelsHoldTheirCores) {
  const DeviceParams d = bare_device();
  for (const std::uint8_t ratio : {1, 2}) {
    Plan p = plan_of(2);
    Launch mix = kernel(0, Engine::mix_aic, 24, 10 * us);
    mix.vectors_per_cube = ratio;
    add(&p, mix);
    add(&p, kernel(1, V, 24, 10 * us));
    EXPECT_EQ(simulate(p, d).total, (ratio == 1 ? 10 : 20) * us);
  }
}

TEST(Execution, VN50_SynchronisingLaunchesStallTheHost) {
  DeviceParams d = bare_device();
  d.host_per_launch = 10 * us;
  Plan p = plan_of(1);
  p.mode = Mode::eager;
  for (int i = 0; i < 4; ++i) add(&p, kernel(0, V, 48, 50 * us));
  EXPECT_EQ(simulate(p, d).total, (10 + 4 * 50) * us);
  p.launches[1].host_sync = true;
  EXPECT_EQ(simulate(p, d).total, (10 + 4 * 50 + 10) * us);
  // A second thread that hands over: 10 us and 15 us, one after the other for each, in a pipeline.
  d.dispatch_per_launch = 15 * us;
  for (Launch& l : p.launches) l.vector_cycles = 1000, l.host_sync = false;
  EXPECT_EQ(simulate(p, d).total, (10 + 4 * 15 + 1) * us);
}

TEST(Execution, VN51_ReplaysOfAGraph) {
  DeviceParams d;
  Plan p = plan_of(1);
  add(&p, lasting(0, V, 100 * us));
  const Ps ge = simulate(p, d).total;
  EXPECT_EQ(ge, d.graph_launch + d.graph_entry + 100 * us);
  p.mode = Mode::npugraph_ex;
  p.updates = 10;
  EXPECT_EQ(simulate(p, d).total, ge + 10 * d.graph_update);
  p.mode = Mode::ge_graph;
  p.input_bytes = 672'000;  // copied in at 0.42 of 1.6 TB/s, read and written
  EXPECT_EQ(simulate(p, d).total, ge + 2 * us);
  p.input_bytes = 0;
  SimOptions o;
  o.steps = 10;
  EXPECT_EQ(simulate(p, d, o).total, 10 * ge);
  o.launch_ahead = true;  // the host's part hides behind the step before, if that is long enough
  p.launches[0].fixed = 1000 * us;
  EXPECT_EQ(simulate(p, d, o).total, d.graph_launch + 10 * (d.graph_entry + 1000 * us));
}

TEST(Execution, VN54_VN61_OtherEngines) {
  const DeviceParams d = device();
  Plan p = plan_of(1);
  Launch cpu = lasting(0, Engine::ai_cpu, 100 * us);
  cpu.blocks = 12;
  add(&p, cpu);
  EXPECT_EQ(simulate(p, d).total, d.ai_cpu_launch + 100 * us);
  EXPECT_EQ(simulate(p, d).spans[0].waves, 2);  // on six cores
  Plan copies = plan_of(1);
  Launch dma;
  dma.engine = Engine::dma;
  for (const std::int64_t bytes : {64, 64'000'000}) {
    dma.link_bytes = bytes;
    add(&copies, dma);
  }
  const Result r = simulate(copies, d);
  EXPECT_EQ(span_of(r, 0).end, d.pcie_floor);
  EXPECT_NEAR(static_cast<double>(span_of(r, 1).end - span_of(r, 1).start), 1e9, 1e5);
}

// VN-42: what one kernel of a decode step writes the next one reads from L2.
TEST(Execution, VN42_ActivationsStay) {
  Plan p = plan_of(1);
  for (int i = 0; i < 20; ++i) {
    Launch l = lasting(0, V, 2 * us);
    const std::int64_t in = (i % 2) << 20, out = ((i + 1) % 2) << 20;
    l.accesses = append(p.accesses, {Access{in, 256 << 10, false}, Access{out, 256 << 10, true}});
    add(&p, l);
  }
  const Result r = simulate(p, device());
  EXPECT_EQ(r.l2_miss, 256 << 10);  // the first input only
  for (std::size_t i = 1; i < r.spans.size(); ++i) EXPECT_EQ(r.spans[i].hbm_read, 0);
  EXPECT_EQ(r.l2_evicted_dirty, 0);
}

// VN-40: dirty pages that have to go are written to memory.
TEST(Execution, VN40_DirtyPagesAreWritten) {
  Plan p = plan_of(1);
  for (const std::int64_t at : {0, 100, 200}) {
    Launch l = lasting(0, V, 1 * us);
    l.blocks = 40;
    l.accesses = append(p.accesses, {Access{at << 20, 90 << 20, true}});
    add(&p, l);
  }
  const Result r = simulate(p, device());
  EXPECT_EQ(span_of(r, 0).hbm_write + span_of(r, 1).hbm_write, 0);
  EXPECT_GE(span_of(r, 2).hbm_write, (270 - 192) << 20);
  EXPECT_EQ(span_of(r, 2).hbm_write, r.l2_evicted_dirty);
}

struct Prefetched {
  Ps window, target, total;
  PrefetchUse use;
};

// A window, then a matmul on 20 MB of weight; `bytes` of it are prefetched while the window runs,
// and `between` bytes of something else are read before the target.
Prefetched prefetch(const Launch& window, std::int64_t bytes, std::int64_t between,
                    std::int64_t weight) {
  Plan p = plan_of(2);
  add(&p, window);
  std::int32_t other = none;
  for (std::int64_t done = 0; done < between; done += 50'000'000) {
    Launch l = lasting(0, V, 0);
    l.blocks = 40;
    l.accesses = append(p.accesses, {Access{(std::int64_t{1} << 32) + done, 50'000'000, false}});
    other = add(&p, l);
  }
  (void)other;
  Launch target = lasting(0, C, 0);
  target.blocks = 20;
  target.accesses = append(p.accesses, {Access{0, weight, false}});
  const std::int32_t t = add(&p, target);
  if (bytes > 0) {
    Launch l;
    l.stream = 1, l.engine = Engine::prefetch;
    l.accesses = append(p.accesses, {Access{0, bytes, false}});
    add(&p, l);
  }
  const Result r = simulate(p, device());
  const auto length = [&](std::int32_t i) { return span_of(r, i).end - span_of(r, i).start; };
  return {length(0), length(t), span_of(r, t).end,
          r.prefetches.empty() ? PrefetchUse{} : r.prefetches[0]};
}

TEST(Execution, VN60_PRE61_Prefetch) {
  constexpr std::int64_t mb = 1'000'000;
  const Launch idle = lasting(0, V, 10 * us);
  const Prefetched none_ = prefetch(idle, 0, 0, 20 * mb);
  const Prefetched half = prefetch(idle, 10 * mb, 0, 20 * mb);
  EXPECT_EQ(half.use.bytes, 10 * mb);  // 10 us at 1 TB/s, 62.5 % of the nominal rate
  EXPECT_EQ(half.use.used, 10 * mb);
  EXPECT_EQ(half.window, none_.window);
  EXPECT_LT(half.target, none_.target);
  // A busy window: the target is faster, the window slower, the whole the same within 2 %.
  Launch busy = lasting(0, C, 0);
  busy.blocks = 20;
  busy.hbm_read = 40 * mb;
  const Prefetched before = prefetch(busy, 0, 0, 20 * mb),
                   after = prefetch(busy, 10 * mb, 0, 20 * mb);
  EXPECT_LT(after.target, before.target);
  EXPECT_GT(after.window, before.window);
  // 20 cores reach less than the bus gives (VN-23), so what is left of it is all that can be won.
  const double reached = 20 * 36 * 1800e6, bus = 0.9 * 1.6e12;
  const double least = static_cast<double>(before.total) * reached / bus;
  EXPECT_GE(static_cast<double>(after.total), 0.98 * least);
  EXPECT_LE(static_cast<double>(after.total), 1.02 * static_cast<double>(before.total));
  // 150 MB early, then 100 MB of other traffic: gone before they are read.
  const Launch long_ = lasting(0, V, 200 * us);
  const Prefetched evicted = prefetch(long_, 150 * mb, 100 * mb, 20 * mb);
  EXPECT_GE(evicted.use.evicted_unused, 40 * mb);
  EXPECT_EQ(evicted.use.bytes,
            evicted.use.used + evicted.use.evicted_unused + evicted.use.resident);
  EXPECT_EQ(evicted.target, prefetch(long_, 0, 100 * mb, 20 * mb).target);
}

// VN-41: what each prefetch brought was used, thrown out unread, or lies there still.
TEST(Execution, VN41_UseOfEachPrefetch) {
  constexpr std::int64_t mib = 1 << 20;
  Plan p = plan_of(2);
  const auto bring = [&](std::int64_t from, std::int64_t bytes) {
    Launch l;
    l.stream = 1, l.engine = Engine::prefetch;
    l.accesses = append(p.accesses, {Access{from, bytes, false}});
    return add(&p, l);
  };
  const std::int32_t early = bring(0, 60 * mib);  // then 180 MiB of other traffic: out again
  Launch other = lasting(0, V, 100 * us);
  other.blocks = 40;
  add(&p, other);
  for (int k = 0; k < 3; ++k) {
    other = lasting(0, V, 0);
    other.blocks = 40;
    other.accesses = append(p.accesses, {Access{(1LL << 32) + k * 60 * mib, 60 * mib, false}});
    if (k == 2) other.records = append(p.events, {0});
    add(&p, other);
  }
  const std::int32_t late = bring(1LL << 40, 30 * mib);
  p.launches[static_cast<std::size_t>(late)].waits = append(p.events, {0});
  p.launches[static_cast<std::size_t>(late)].records = append(p.events, {1});
  Launch target = lasting(0, C, 0);
  target.waits = append(p.events, {1});
  target.accesses = append(p.accesses, {Access{1LL << 40, 10 * mib, false}});
  add(&p, target);
  const Result r = simulate(p, device());
  ASSERT_EQ(r.prefetches.size(), 2U);
  ASSERT_EQ(r.prefetches[0].launch, early);
  EXPECT_EQ(r.prefetches[0].used, 0);
  EXPECT_GE(r.prefetches[0].evicted_unused, 48 * mib);
  ASSERT_EQ(r.prefetches[1].launch, late);
  EXPECT_EQ(r.prefetches[1].used, 10 * mib);  // of 30: the rest lies there
  EXPECT_EQ(r.prefetches[1].resident, 20 * mib);
  EXPECT_EQ(r.prefetches[1].evicted_unused, 0);
  for (const PrefetchUse& u : r.prefetches)
    EXPECT_EQ(u.bytes, u.used + u.evicted_unused + u.resident);
}

// VN-24: 50 MB through L2 take 17.1 us on all cores (measured, a TensorMove); few cores have their
// own ports of 110 bytes a cycle for reads and 86 for writes as the limit.
TEST(Execution, VN24_BytesThroughL2) {
  constexpr std::int64_t bytes = 50'000'000;
  const auto term = [&](std::int32_t blocks, bool write) {
    Plan p = plan_of(1);
    Launch l = lasting(0, V, 0);
    l.blocks = blocks;
    // The first one fills L2, so that the second finds it all.
    l.accesses = append(p.accesses, {Access{0, bytes, write}});
    add(&p, l);
    const std::int32_t i = add(&p, l);
    const Span s = span_of(simulate(p, device()), i);
    if (!write) {
      EXPECT_EQ(s.l2_hit, bytes);
    }
    EXPECT_EQ(s.hbm_read + s.hbm_write, 0);
    return static_cast<double>(s.term[static_cast<std::size_t>(Term::l2)]) * 1e-12;
  };
  EXPECT_NEAR(term(40, false), 17.1e-6, 0.05 * 17.1e-6);
  EXPECT_NEAR(term(4, false), bytes / (4 * 110 * 1800e6), 1e-9);
  EXPECT_NEAR(term(4, true), bytes / (4 * 86 * 1800e6), 1e-9);
}

// T = head + max (1 + (n - 1) lambda) + tail; a pipe counts from 50 % of the longest on.
TEST(Execution, VN20_TermsOverlap) {
  const DeviceParams d = bare_device();
  Plan p = plan_of(1);
  Launch l = kernel(0, Engine::mix_aic, 24, 10 * us);
  l.head = 2 * us, l.tail = 1 * us, l.overlap_ppm = 200'000;
  l.vector_cycles = 4'900;  // 4.9 us
  add(&p, l);
  EXPECT_EQ(simulate(p, d).total, (2 + 10 + 1) * us);
  p.launches[0].vector_cycles = 5'000;
  EXPECT_EQ(simulate(p, d).total, (2 + 12 + 1) * us);
  p.launches[0].fixed = 9 * us;
  EXPECT_EQ(simulate(p, d).total, (2 + 14 + 1) * us);
  EXPECT_EQ(simulate(p, d, without(Effect::heads)).total, 14 * us);
}

// VN-23: 24 cores x 32 B x 1.8 GHz = 1.38 TB/s, 12 cores half of it; VN-33: by a limit too.
TEST(Execution, VN23_CoresDecideForMemoryBoundKernels) {
  DeviceParams d = device();
  d.cube_cores = 24;
  d.core_hbm_read = 32;
  const auto time = [&](std::int32_t blocks, std::int32_t limit) {
    Plan p = plan_of(1);
    Launch l = lasting(0, C, 0);
    l.blocks = blocks, l.cube_limit = limit;
    l.hbm_read = 1'382'400'000;
    add(&p, l);
    return static_cast<double>(simulate(p, d).total);
  };
  EXPECT_NEAR(time(24, 0), 1e9, 1e4);
  EXPECT_NEAR(time(12, 0), 2e9, 1e4);
  EXPECT_NEAR(time(24, 12), 2e9, 1e4);
}

// Section 1: each effect can be switched off, and where it matters the time changes.
TEST(Execution, WithoutAnEffect) {
  DeviceParams d;
  Plan p = plan_of(3);
  p.groups = {{{0, 1, 2, 3, 4, 5, 6, 7}}};
  p.collectives.resize(1);
  p.collectives[0].bytes = 1 << 20;
  Launch a = lasting(0, C, 10 * us), b = lasting(1, C, 10 * us);
  a.blocks = b.blocks = 20;
  a.head = 2 * us;
  b.hbm_read = 20'000'000;
  add(&p, a);
  add(&p, b);
  Launch prefetch;
  prefetch.stream = 2, prefetch.engine = Engine::prefetch;
  prefetch.accesses = append(p.accesses, {Access{0, 16 << 20, false}});
  add(&p, prefetch);
  Launch c = lasting(0, V, 1 * us);
  c.blocks = 40;
  c.accesses = append(p.accesses, {Access{0, 16 << 20, false}, Access{0, 16 << 20, false}});
  c.records = append(p.events, {0});
  add(&p, c);
  Launch e = lasting(1, V, 1 * us);
  e.waits = append(p.events, {0});
  add(&p, e);
  Launch r;
  r.stream = 1, r.engine = Engine::communication, r.collective = 0, r.blocks = 0;
  add(&p, r);
  const Ps all = simulate(p, d).total;
  for (std::size_t k = 0; k < effect_count; ++k) {
    const auto effect = static_cast<Effect>(k);
    EXPECT_NE(simulate(p, d, without(effect)).total, all) << effect_name(effect);
  }
}

}  // namespace
}  // namespace tk::sim

// The goldens of VN-120 to VN-133, with their figures.
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "npu/sim/plans_test_util.h"

namespace tk::sim {
namespace {

constexpr Engine C = Engine::ai_core, V = Engine::ai_vector;

// MS-70: S0 V20,C40,V20; S1 V30,C20,V20; every kernel takes its whole engine. S1 comes first.
Plan two_streams(const DeviceParams& d) {
  Plan p = plan_of(2);
  constexpr std::int32_t s0 = 1, s1 = 0;
  const auto v = [&](std::int32_t s, Ps t) { return kernel(s, V, d.vector_cores, t * us); };
  const auto c = [&](std::int32_t s, Ps t) { return kernel(s, C, d.cube_cores, t * us); };
  for (const Launch& l : {v(s0, 20), c(s0, 40), v(s0, 20), v(s1, 30), c(s1, 20), v(s1, 20)})
    add(&p, l);
  return p;
}

TEST(Golden, VN120_TwoStreams) {
  const DeviceParams d = bare_device();
  Plan p = two_streams(d);
  EXPECT_EQ(simulate(p, d).total, 110 * us);
  p.launches[0].records = append(p.events, {0});
  p.launches[3].waits = append(p.events, {0});
  EXPECT_EQ(simulate(p, d).total, 100 * us);  // MS-71: an added wait shortens
}

// VN-121, MS-72: a matmul of 36 tiles takes two rounds on 24 cores (T) and three on 12 (1.5 T).
TEST(Golden, VN121_CoreSplit) {
  const DeviceParams d = bare_device();
  const Launch whole = kernel(0, C, 36, 10 * us);
  Plan serial = plan_of(1);
  add(&serial, whole);
  const Ps t = simulate(serial, d).total;
  EXPECT_EQ(t, 20 * us);
  add(&serial, whole);
  EXPECT_EQ(simulate(serial, d).total, 2 * t);
  Plan split = plan_of(2);
  for (const std::int32_t s : {0, 1}) {
    Launch half = whole;
    half.stream = s, half.cube_limit = 12;
    add(&split, half);
  }
  const Result r = simulate(split, d);
  EXPECT_EQ(r.total, t + t / 2);  // 25 % less than 2 T
  for (const Span& s : r.spans) EXPECT_EQ(s.cubes, 12);
  // The limit of the stream does the same (VN-33).
  for (Launch& l : split.launches) l.cube_limit = 0;
  for (Stream& s : split.streams) s.cube_limit = 12;
  EXPECT_EQ(simulate(split, d).total, t + t / 2);
}

double overlap(const Span& a, const Span& b) {
  const Ps both = std::min(a.end, b.end) - std::max(a.start, b.start);
  return static_cast<double>(std::max<Ps>(0, both)) /
         static_cast<double>(std::min(a.end - a.start, b.end - b.start));
}

// VN-122, MS-34: the side's Swish is needed by a light kernel that GE puts on the main stream
// before the dominator: nothing overlaps. Pinned to the side, it does.
TEST(Golden, VN122_Barrier) {
  const DeviceParams d = bare_device();
  for (const bool pinned : {false, true}) {
    Plan p = plan_of(2);
    Launch side = kernel(1, V, 48, 20 * us);
    side.records = append(p.events, {0});
    const std::int32_t s = add(&p, side);
    Launch light = kernel(pinned ? 1 : 0, V, 8, 1 * us);
    light.waits = append(p.events, {0});
    light.records = append(p.events, {1});
    add(&p, light);
    const std::int32_t dominator = add(&p, kernel(0, C, 24, 23 * us));
    Launch join = kernel(0, V, 48, 2 * us);
    join.waits = append(p.events, {1});
    add(&p, join);
    const Result r = simulate(p, d);
    const double o = overlap(span_of(r, s), span_of(r, dominator));
    if (pinned)
      EXPECT_GE(o, 0.5);
    else
      EXPECT_EQ(o, 0.0);
    EXPECT_EQ(r.total, (pinned ? 25 : 46) * us);
  }
}

// VN-123, MS-41: a kernel that needs all 48 vector cores at once, a reduce-scatter that holds 16
// and a combine that holds 24. On each rank one of the two is there and waits for its peer, which
// is behind the large kernel.
TEST(Golden, VN123_GangDeadlock) {
  DeviceParams d = bare_device();
  Plan p;
  p.devices = {0, 1};
  for (const std::int32_t rank : {0, 0, 1, 1}) {
    Stream s;
    s.rank = rank;
    p.streams.push_back(s);
  }
  p.groups = {{{0, 1}}, {{0, 1}}};
  Collective rs, combine;
  rs.kind = CollectiveKind::reduce_scatter, rs.group = 0;
  combine.kind = CollectiveKind::combine, combine.group = 1;
  rs.bytes = combine.bytes = 1 << 20;
  rs.engine = combine.engine = CollectiveEngine::aiv;
  p.collectives = {rs, combine};
  const auto collective = [&](std::int32_t stream, std::int32_t which) {
    Launch l;
    l.stream = stream, l.engine = Engine::communication, l.collective = which;
    l.blocks = which == 0 ? 16 : 24;
    name(&p, add(&p, l), which == 0 ? "ReduceScatter" : "Combine");
  };
  const auto large = [&](std::int32_t stream) {
    Launch l = kernel(stream, V, 48, 5 * us);
    l.gang = true;
    name(&p, add(&p, l), "SyncAll48");
  };
  collective(0, 0);
  large(1), collective(1, 1);  // rank 0: 16 held, the combine behind the large one
  large(2), collective(2, 0);
  collective(3, 1);  // rank 1: 24 held, the reduce-scatter behind it
  // The large one must come after the collectives have their cores.
  for (const std::size_t i : {1U, 3U}) p.launches[i].waits = append(p.events, {std::int32_t(i)});
  for (const std::int32_t rank : {0, 1}) {
    Stream s;
    s.rank = rank;
    p.streams.push_back(s);
    Launch l = kernel(4 + rank, C, 1, 1 * us);
    l.records = append(p.events, {rank == 0 ? 1 : 3});
    add(&p, l);
  }
  try {
    simulate(p, d);
    FAIL() << "48 cores were found beside 16 and 24";
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK1402");
    const std::string& m = e.message();
    EXPECT_NE(
        m.find("SyncAll48 (launch 1, rank 0, stream 1) waits for 16 vector cores (it needs 48"),
        std::string::npos)
        << m;
    EXPECT_NE(m.find("waits for 24 vector cores (it needs 48"), std::string::npos) << m;
    EXPECT_NE(m.find("ReduceScatter (launch 0, rank 0, stream 0) waits for its peer"),
              std::string::npos)
        << m;
  }
  // Without the need for all of them at once there is no deadlock.
  for (Launch& l : p.launches) l.gang = false;
  EXPECT_GT(simulate(p, d).total, 0);
  // Nor if the large one leaves room for both: 16 + 24 + 8.
  for (Launch& l : p.launches) l.gang = true;
  for (const std::size_t i : {1U, 3U}) p.launches[i].vector_limit = 8;
  EXPECT_GT(simulate(p, d).total, 0);
}

// VN-124, PRE-24, PRE-61: a window of 10 us, 20 MB of weight, 1 TB/s reached of 1.6: 10 MB are
// there.
TEST(Golden, VN124_PrefetchTenOfTwentyMegabytes) {
  DeviceParams d = bare_device();
  d.l2_rate = 1'000'000'000'000'000;  // what was prefetched costs nothing then
  const std::int64_t weight = 20'000'000;
  const auto run = [&](std::int64_t bytes) {
    Plan p = plan_of(2);
    Launch window = kernel(0, V, 48, 10 * us);
    add(&p, window);
    Launch target = kernel(0, C, 24, 0);
    target.accesses = append(p.accesses, {Access{0, weight, false}});
    add(&p, target);
    if (bytes > 0) {
      Launch prefetch;
      prefetch.stream = 1, prefetch.engine = Engine::prefetch;
      prefetch.accesses = append(p.accesses, {Access{0, bytes, false}});
      add(&p, prefetch);
    }
    return simulate(p, d);
  };
  const Ps alone = span_of(run(0), 1).end - span_of(run(0), 1).start;
  EXPECT_NEAR(static_cast<double>(alone), weight / 1.6, 10);  // ps: 12.5 us
  const Result half = run(10'000'000);
  const Span& s = span_of(half, 1);
  EXPECT_EQ(s.l2_hit, 10'000'000);
  EXPECT_EQ(s.hbm_read, 10'000'000);
  EXPECT_NEAR(static_cast<double>(alone - (s.end - s.start)), 10e6 / 1.6, 10);  // the same bytes
  ASSERT_EQ(half.prefetches.size(), 1U);
  EXPECT_EQ(half.prefetches[0].bytes, 10'000'000);
  EXPECT_EQ(half.prefetches[0].used, 10'000'000);
  EXPECT_EQ(half.prefetches[0].evicted_unused, 0);
  // All of it asked for: what had come by then, in pages, helps; the rest is read by the target.
  const Result all = run(weight);
  EXPECT_NEAR(static_cast<double>(span_of(all, 1).l2_hit), 10e6, 3.2e6);
}

// VN-126: the profiler's Wait Time of a kernel is its start minus the end before it on its stream,
// and idle causes add up to it; core use recomputed from the spans is what the resource says.
TEST(Golden, VN126_WaitAndUtilisationRecomputed) {
  DeviceParams d;
  Plan p = two_streams(d);
  p.launches[0].records = append(p.events, {0});
  p.launches[3].waits = append(p.events, {0});
  const Result r = simulate(p, d);
  std::vector<Ps> end(p.streams.size(), 0);
  std::vector<Span> spans = r.spans;
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.start < b.start; });
  __int128 cube = 0, vector = 0;
  for (const Span& s : spans) {
    const auto k = static_cast<std::size_t>(p.launches[static_cast<std::size_t>(s.launch)].stream);
    Ps wait = 0;
    for (const Ps t : s.idle) wait += t;
    EXPECT_EQ(s.start - end[k], wait) << s.launch;
    end[k] = s.end;
    cube += static_cast<__int128>(s.cubes) * (s.end - s.start);
    vector += static_cast<__int128>(s.vectors) * (s.end - s.start);
  }
  for (std::size_t k = 0; k < p.streams.size(); ++k) {  // VN-91
    Ps all = r.stream_busy[k];
    for (const Ps t : r.idle[k]) all += t;
    EXPECT_EQ(all, r.total);
  }
  EXPECT_EQ(r.resources[0].amount, static_cast<std::int64_t>(cube));
  EXPECT_EQ(r.resources[1].amount, static_cast<std::int64_t>(vector));
}

Plan two_hundred_kernels(Mode mode) {
  Plan p = plan_of(1);
  p.mode = mode;
  for (int i = 0; i < 200; ++i) add(&p, kernel(0, V, 48, 10 * us));
  return p;
}

TEST(Golden, VN127_EagerAndGraph) {
  DeviceParams d = bare_device();
  d.host_per_launch = 100 * us;
  EXPECT_EQ(simulate(two_hundred_kernels(Mode::eager), d).total, 20'010 * us);
  d.graph_launch = 700 * us;
  EXPECT_EQ(simulate(two_hundred_kernels(Mode::ge_graph), d).total, 700 * us + 2000 * us);
  // The device's gaps do not add to what the host hides; they do to a graph (VN-30).
  d.gap = 20'000;
  EXPECT_EQ(simulate(two_hundred_kernels(Mode::eager), d).total, 20'010 * us);
  EXPECT_EQ(simulate(two_hundred_kernels(Mode::ge_graph), d).total, 2700 * us + 199 * d.gap);
  SimOptions no_host;
  no_host.without = 1U << static_cast<unsigned>(Effect::host);
  EXPECT_EQ(simulate(two_hundred_kernels(Mode::eager), d, no_host).total, 2000 * us + 199 * d.gap);
}

// VN-128: kernels of 10 us, 1 us of host each, room for 4: the host fills the queue, then issues
// one for each that ends.
TEST(Golden, VN128_QueueFull) {
  DeviceParams d = bare_device();
  d.host_per_launch = 1 * us;
  d.queue_depth = 4;
  Plan p = two_hundred_kernels(Mode::eager);
  const Result r = simulate(p, d);
  EXPECT_EQ(r.total, 2001 * us);  // the device is never idle after the first issue
  // A kernel on a second stream is issued when the queue of the first has let the host go on: the
  // 200th launch can be issued at the end of the 196th.
  p.streams.resize(2);
  p.launches.back().stream = 1;
  p.launches.back().engine = C;
  const Span& last = span_of(simulate(p, d), 199);
  EXPECT_EQ(last.start, span_of(simulate(p, d), 194).end + 2 * us);
  // The prefetch engine's queue (VN-60): the ninth waits for one of eight to end.
  Plan q = plan_of(9);
  for (std::int32_t s = 0; s < 9; ++s) {
    Launch l;
    l.stream = s, l.engine = Engine::prefetch;
    l.accesses = append(q.accesses, {Access{s * (std::int64_t{4} << 20), 1 << 20, false}});
    add(&q, l);
  }
  const Result full = simulate(q, bare_device());
  const Span& ninth = span_of(full, 8);
  EXPECT_EQ(ninth.start, span_of(full, 0).end);
  EXPECT_EQ(ninth.idle[static_cast<std::size_t>(Cause::queue)], ninth.start);
}

// VN-129: 2 (n - 1) / n S / B and 2 (n - 1) latencies, within 0.1 %.
TEST(Golden, VN129_RingAllReduce) {
  DeviceParams d = bare_device();
  d.links = {{"ring", 1024, 25'000'000'000, 1'500'000, 1}};
  for (const int n : {2, 4, 8, 13, 64}) {
    Ps before = 0;
    for (std::int64_t bytes = 1 << 10; bytes <= 1 << 30; bytes *= 4) {
      Plan p = plan_of(1);
      p.groups.resize(1);
      for (int i = 0; i < n; ++i) p.groups[0].devices.push_back(i);
      Collective c;
      c.algorithm = Algorithm::ring, c.bytes = bytes;
      p.collectives = {c};
      Launch l;
      l.engine = Engine::communication, l.collective = 0, l.blocks = 0;
      add(&p, l);
      const Ps t = simulate(p, d).total;
      const double formula =
          2.0 * (n - 1) / n * static_cast<double>(bytes) / 25e9 * 1e12 + 2.0 * (n - 1) * 1.5e6;
      EXPECT_NEAR(static_cast<double>(t), formula, formula * 1e-3) << n << " " << bytes;
      EXPECT_GE(t, before);
      before = t;
    }
  }
}

TEST(Golden, VN130_BlocksBesideABusyKernel) {
  const DeviceParams d = bare_device();
  const auto run = [&](bool gang, std::int32_t limit) {
    Plan p = plan_of(2);
    add(&p, kernel(0, C, 8, 100 * us));
    Launch l = kernel(1, C, 24, 10 * us);
    l.gang = gang, l.cube_limit = limit;
    add(&p, l);
    return span_of(simulate(p, d), 1);
  };
  const Span free = run(false, 0);
  EXPECT_EQ(free.start, 0);
  EXPECT_EQ(free.end, 20 * us);
  EXPECT_EQ(free.cubes, 16);
  EXPECT_EQ(free.waves, 2);
  const Span gang = run(true, 0);
  EXPECT_EQ(gang.start, 100 * us);
  EXPECT_EQ(gang.end, 110 * us);
  EXPECT_EQ(gang.idle[static_cast<std::size_t>(Cause::core)], 100 * us);
  EXPECT_EQ(gang.blocker, 0);
  const Span limited = run(false, 16);
  EXPECT_EQ(limited.end, 20 * us);
  EXPECT_EQ(limited.waves, 2);
}

TEST(Golden, VN132_L2) {
  DeviceParams d;
  const auto second = [&](std::int64_t bytes) {
    Plan p = plan_of(1);
    for (int i = 0; i < 2; ++i) {
      Launch l = kernel(0, V, 40, 0);
      l.accesses = append(p.accesses, {Access{0, bytes, false}});
      add(&p, l);
    }
    const Result r = simulate(p, d);
    const auto length = [&](std::int32_t i) {
      return static_cast<double>(span_of(r, i).end - span_of(r, i).start);
    };
    return length(1) / length(0);
  };
  EXPECT_LT(second(100'000'000), 0.6);          // from L2
  EXPECT_NEAR(second(300'000'000), 1.0, 1e-6);  // from memory again
  Plan p = plan_of(1);                          // writer, then reader of 20 MB
  Launch w = kernel(0, V, 40, 0), r = w;
  w.accesses = append(p.accesses, {Access{0, 20'000'000, true}});
  r.accesses = append(p.accesses, {Access{0, 20'000'000, false}});
  add(&p, w), add(&p, r);
  const Result result = simulate(p, d);
  EXPECT_EQ(span_of(result, 1).l2_hit, 20'000'000);
  EXPECT_EQ(span_of(result, 1).hbm_read, 0);
  EXPECT_EQ(span_of(result, 0).hbm_write, 0);
}

TEST(Golden, VN133_Determinism) {
  DeviceParams d;
  Plan p = two_streams(d);
  SimOptions o;
  o.jitter_ppm = 50'000, o.jitter_seed = 7, o.steps = 4;
  const std::uint64_t one = simulate(p, d, o).hash();
  std::vector<std::uint64_t> hashes(8);
  std::vector<std::thread> threads;
  for (std::uint64_t& h : hashes) threads.emplace_back([&] { h = simulate(p, d, o).hash(); });
  for (std::thread& t : threads) t.join();
  for (const std::uint64_t h : hashes) EXPECT_EQ(h, one);
  o.jitter_seed = 8;
  EXPECT_NE(simulate(p, d, o).hash(), one);
  // The same number on every machine.
  EXPECT_EQ(simulate(p, d).total, 821'151'114);
  EXPECT_EQ(simulate(p, d).hash(), 11022696085952826036U);
}

}  // namespace
}  // namespace tk::sim

// Collectives: algorithms, topology, skew (VN-70 to VN-75).
#include "npu/sim/collective.h"

#include <gtest/gtest.h>

#include "npu/sim/plans_test_util.h"

namespace tk::sim {
namespace {

// A3: pairs of dies, nodes of 8 packages, a supernode.
DeviceParams a3() {
  DeviceParams d;
  d.links = {{"die pair", 2, 224'000'000'000, 200'000, 1},
             {"HCCS", 16, 196'000'000'000, 500'000, 1},
             {"supernode", 384, 164'000'000'000, 1'500'000, 1}};
  return d;
}

Plan group_of(int n) {
  Plan p = plan_of(1);
  p.groups.resize(1);
  for (int i = 0; i < n; ++i) p.groups[0].devices.push_back(i);
  return p;
}

TEST(Collective, VN70_SizesAreMonotoneAndTheFastestIsNamed) {
  for (const DeviceParams& d : {DeviceParams{}, a3()})
    for (const int n : {2, 8, 16, 64})
      for (const auto kind :
           {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
            CollectiveKind::all_to_all, CollectiveKind::broadcast, CollectiveKind::send_recv}) {
        const Plan p = group_of(n);
        Ps before = 0;
        for (std::int64_t bytes = 1 << 10; bytes <= 1 << 30; bytes *= 2) {
          Collective c;
          c.kind = kind, c.bytes = bytes;
          const CommCost best = cost_of_collective(p, c, d, none);
          const Ps t = best.alone(d);
          EXPECT_GE(t, before) << collective_name(kind) << " " << n << " " << bytes;
          before = t;
          EXPECT_NE(best.algorithm, Algorithm::fastest);
          if (kind == CollectiveKind::send_recv) continue;
          c.algorithm = best.algorithm;
          EXPECT_EQ(cost_of_collective(p, c, d, none).alone(d), t);
        }
      }
}

// Measured on 8 cards of A2: 13 to 17.6 GB/s a link of 7, small messages 20 to 40 us. The
// efficiency to start from, 0.7, gives 19.6.
TEST(Collective, VN70_EightCardsOfA2) {
  const DeviceParams d;
  const Plan p = group_of(8);
  Collective c;
  c.bytes = 64 << 20;
  const CommCost large = cost_of_collective(p, c, d, none);
  EXPECT_EQ(large.algorithm, Algorithm::mesh);
  const double seconds = static_cast<double>(large.alone(d) - large.setup) * 1e-12;
  const double per_link = 2.0 / 8 * static_cast<double>(c.bytes) / seconds;  // a mesh: S/n each way
  EXPECT_GT(per_link, 13e9);
  EXPECT_LT(per_link, 20e9);
  c.bytes = 4096;
  const Ps small = cost_of_collective(p, c, d, none).alone(d);
  EXPECT_GE(small, 20 * us);
  EXPECT_LE(small, 40 * us);
}

TEST(Collective, VN70_HierarchyKeepsTheFarLinksFree) {
  const DeviceParams d = a3();
  const Plan p = group_of(64);  // 4 nodes of 16
  Collective c;
  c.bytes = 256 << 20;
  c.algorithm = Algorithm::hierarchical;
  const CommCost far = cost_of_collective(p, c, d, none);
  std::array<std::int64_t, max_levels> bytes{};
  for (const CommPhase& phase : far.phases)
    for (std::size_t l = 0; l < 3; ++l) bytes[l] += phase.bytes[l];
  EXPECT_EQ(bytes[0], c.bytes);                    // 2 (2-1)/2 S
  EXPECT_EQ(bytes[1], 2 * (c.bytes / 2) * 7 / 8);  // of half of it, among 8
  EXPECT_EQ(bytes[2], 2 * (c.bytes / 16) * 3 / 4);
  c.algorithm = Algorithm::ring;
  EXPECT_LT(far.alone(d), cost_of_collective(p, c, d, none).alone(d));
}

TEST(Collective, VN73_SkewIsSlowerAndTheHottestMemberDecides) {
  const DeviceParams d;
  Plan p = group_of(8);
  p.traffic.resize(2);
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) {
      p.traffic[0].bytes.push_back(1 << 20);
      p.traffic[1].bytes.push_back(j == 3 ? 8 << 20 : 0);  // all tokens to one expert's rank
    }
  Collective even, skewed;
  even.kind = skewed.kind = CollectiveKind::dispatch;
  even.traffic = 0, skewed.traffic = 1;
  const Ps t = cost_of_collective(p, even, d, none).alone(d);
  EXPECT_GT(cost_of_collective(p, skewed, d, none).alone(d), 4 * t);
  EXPECT_EQ(cost_of_collective(p, skewed, d, none).alone(d),
            cost_of_collective(p, skewed, d, 3).alone(d));
  EXPECT_EQ(cost_of_collective(p, even, d, 0).alone(d), t);
}

// VN-71: driven by vector cores it takes them; the copy engine takes none. VN-75: links are shared.
TEST(Collective, VN71_VN75_EnginesAndSharedLinks) {
  const DeviceParams d;
  Plan p = group_of(8);
  Collective c;
  c.bytes = 64 << 20;
  p.collectives = {c};
  p.streams.resize(2);
  Launch l;
  l.engine = Engine::communication, l.collective = 0, l.blocks = 16;
  add(&p, l);
  const Ps alone = simulate(p, d).total;
  l.stream = 1;
  add(&p, l);
  const Result both = simulate(p, d);
  EXPECT_GT(both.total - d.graph_launch - d.graph_entry - d.collective_setup,
            (alone - d.graph_launch - d.graph_entry - d.collective_setup) * 19 / 10);
  EXPECT_EQ(both.spans[0].vectors, 0);
  p.collectives[0].engine = CollectiveEngine::aiv;
  const Result aiv = simulate(p, d);
  EXPECT_EQ(aiv.spans[0].vectors, 16);
  // MC2: cube, vector and links at once, the longest decides (VN-71).
  Plan mc2 = group_of(8);
  mc2.collectives = {c};
  Launch m = kernel(0, Engine::mix_aic, 20, 10'000 * us);
  m.collective = 0;
  add(&mc2, m);
  const Result r = simulate(mc2, d);
  const Span& s = span_of(r, 0);
  EXPECT_GT(s.term[static_cast<std::size_t>(Term::link)], 0);
  EXPECT_EQ(s.end - s.start - s.head, s.term[static_cast<std::size_t>(Term::cube)]);
}

}  // namespace
}  // namespace tk::sim

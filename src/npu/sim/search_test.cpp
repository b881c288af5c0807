// VN-83: a candidate from a snapshot is the candidate from the start.
#include "npu/sim/search.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "npu/sim/plans_test_util.h"

namespace tk::sim {
namespace {

// A decode step: layers of kernels on two streams that meet in each, with weights and activations.
Plan step(int layers, int per_layer) {
  Plan p = plan_of(2);
  std::int32_t event = 0;
  for (int layer = 0; layer < layers; ++layer)
    for (int i = 0; i < per_layer; ++i) {
      const bool cube = i % 3 == 0;
      Launch l = kernel(i % 8 == 7 ? 1 : 0, cube ? Engine::ai_core : Engine::ai_vector,
                        cube ? 20 : 8 + i % 30, (2 + i % 5) * us);
      l.head = 1 * us;
      l.accesses = append(
          p.accesses, {Access{std::int64_t{layer * per_layer + i} << 22, cube ? 4 << 20 : 0, false},
                       Access{std::int64_t{i} << 14, 1 << 14, true}});
      if (l.stream == 1) {  // behind what the main stream has done, and waited for by it
        l.waits = append(p.events, {event - 1});
        l.records = append(p.events, {event++});
      } else if (i % 8 == 6) {
        l.records = append(p.events, {event++});
      } else if (i % 8 == 4 && event > 0) {
        l.waits = append(p.events, {event - 1});
      }
      p.launches.push_back(l);
    }
  return p;
}

TEST(Search, VN83_ACandidateFromASnapshotIsTheSame) {
  const Plan base = step(12, 40);
  const DeviceParams d;
  for (const Mode mode : {Mode::ge_graph, Mode::eager}) {
    Plan b = base;
    b.mode = mode;
    Search search(b, d, {}, 32);
    EXPECT_EQ(search.base().hash(), simulate(b, d).hash());
    std::mt19937_64 dice(5);
    int reused = 0;
    for (int k = 0; k < 120; ++k) {
      Plan c = b;
      const auto i = static_cast<std::size_t>(dice() % c.launches.size());
      Launch& l = c.launches[i];
      switch (dice() % 6) {
        case 0:
          l.vector_limit = l.cube_limit = 10;
          break;
        case 1:
          l.cube_cycles /= 2;
          break;
        case 2:
          l.accesses = {};
          break;
        case 3:
          c.launches.insert(c.launches.begin() + static_cast<std::ptrdiff_t>(i), l);
          c.launches[i].waits = c.launches[i].records = {};
          break;
        case 4:  // a stream that the base does not have, or on which nothing is left
          c.streams.resize(3);
          c.launches[i].stream = 2;
          break;
        default:
          l.segment = 0;
          c.segments.resize(1);
          c.mode = Mode::ge_graph;
          break;
      }
      const Result r = search.simulate(c);
      ASSERT_EQ(r.hash(), simulate(c, d).hash()) << k;
      EXPECT_EQ(r.bounds.serial, simulate(c, d).bounds.serial);
      reused += search.reused() > 0;
    }
    EXPECT_GT(reused, 40);
  }
}

}  // namespace
}  // namespace tk::sim

#include "base/threads.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <ctime>
#include <numeric>

namespace tk {
namespace {

TEST(Team, EveryThreadRunsOncePerJob) {
  for (const int n : {1, 2, 3, 5}) {
    Team team(n);
    EXPECT_EQ(team.size(), n);
    std::vector<int> runs(static_cast<std::size_t>(n), 0);  // one slot a thread: no atomics needed
    for (int job = 0; job < 300; ++job)
      team.run([&](int t) { ++runs[static_cast<std::size_t>(t)]; });
    for (const int r : runs) EXPECT_EQ(r, 300);
  }
}

TEST(Team, WritesBeforeTheEndOfAJobAreSeenAfterIt) {
  Team team(3);
  std::vector<int> data(3000);
  for (int job = 1; job <= 200; ++job) {
    team.run([&](int t) {
      for (int i = t * 1000; i < (t + 1) * 1000; ++i) data[static_cast<std::size_t>(i)] = job;
    });
    ASSERT_EQ(std::accumulate(data.begin(), data.end(), 0), job * 3000);
  }
}

// Each thread reads what its neighbour wrote before the barrier; a barrier that lets anyone pass
// early is caught within a few rounds.
TEST(Barrier, SeparatesPhases) {
  constexpr int n = 4;
  constexpr int phases = 500;
  Team team(n);
  std::array<int, n> slot{};
  std::atomic<int> wrong{0};
  team.run([&](int t) {
    for (int p = 1; p <= phases; ++p) {
      slot[static_cast<std::size_t>(t)] = p;
      team.barrier().wait();
      if (slot[static_cast<std::size_t>((t + 1) % n)] != p) ++wrong;
      team.barrier().wait();
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Barrier, OfOneNeverWaits) {
  Barrier barrier(1);
  for (int i = 0; i < 1000; ++i) barrier.wait();
}

double thread_cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Who waits for a thread that is not given a core spins for a bounded number of rounds and then
// sleeps: while the other is away for 400 ms it may use a quarter of that, where one that spins on
// would use all of it.
TEST(Barrier, LeavesTheCoreToOthersWhileItWaits) {
  Team team(2);
  double used = 0;
  team.run([&](int t) {
    if (t == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    const double before = thread_cpu_seconds();
    team.barrier().wait();
    if (t == 0) used = thread_cpu_seconds() - before;
  });
  EXPECT_LT(used, 0.1);
}

TEST(Team, ComesAndGoesWithoutAJob) {
  for (int i = 0; i < 50; ++i) Team team(3);
}

// Longer than the spin and the yields: the workers sleep in between and must wake.
TEST(Team, WakesFromSleep) {
  Team team(2);
  std::atomic<int> runs{0};
  for (int job = 0; job < 5; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    team.run([&](int) { ++runs; });
  }
  EXPECT_EQ(runs.load(), 10);
}

}  // namespace
}  // namespace tk

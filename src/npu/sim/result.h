// From the state of the event loop to a Result.
#pragma once

#include "npu/sim/loop.h"

namespace tk::sim {

// What is summed over steps, so that a step that repeats can be added without running it.
struct Sums {
  std::vector<Ps> busy;
  std::vector<std::int64_t> bytes;
  std::vector<__int128> cores;  // rank: cube, vector, AI CPU
  std::vector<PrefetchUse> prefetches;
  std::int64_t l2_hit = 0, l2_miss = 0, l2_dirty = 0;
  Ps host_busy = 0;
};
Sums sums_of(const Loop& loop);
// a + times * (a - b)
Sums repeated(const Sums& a, const Sums& b, std::int64_t times);

// Adds the spans of the step that ended to the result, in the order of ends, and its bounds.
void take_step(Loop* loop, Ps from, Result* result);
void finish(const Loop& loop, const Sums& sums, Result* result);

}  // namespace tk::sim

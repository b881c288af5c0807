// Segments of an auxiliary stream to occurrences on the primary stream (BD-36).
#pragma once

#include <vector>

#include "timeline/timeline.h"

namespace tk {

struct StreamPairs {
  std::vector<int> partner;     // per occurrence: the segment, or -1
  std::vector<bool> ambiguous;  // another choice of the same number of pairs and cost exists
};

// As many pairs as possible, then the smallest sum of centre distances; no two pairs cross in time.
// Centres may be any common multiple of the times. Throws TK0914 beyond 20 million combinations.
StreamPairs pair_segments(const std::vector<Ns>& occurrences, const std::vector<Ns>& segments);

}  // namespace tk

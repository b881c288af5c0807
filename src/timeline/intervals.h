// Sets of half-open time intervals, ns.
#pragma once

#include <utility>
#include <vector>

#include "timeline/timeline.h"

namespace tk {

struct Interval {
  Ns from = 0, to = 0;
  Ns length() const { return to - from; }
};
using Intervals = std::vector<Interval>;

// Sorted, disjoint, without empty ones.
Intervals merged(Intervals intervals);
Ns total(const Intervals& disjoint);
Ns union_length(Intervals intervals);
// All arguments merged.
Intervals intersection(const Intervals& a, const Intervals& b);
Intervals difference(const Intervals& a, const Intervals& b);

}  // namespace tk

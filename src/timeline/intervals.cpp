#include "timeline/intervals.h"

#include <algorithm>

namespace tk {

Intervals merged(Intervals v) {
  std::erase_if(v, [](const Interval& i) { return i.to <= i.from; });
  auto by_from = [](const Interval& a, const Interval& b) { return a.from < b.from; };
  if (!std::is_sorted(v.begin(), v.end(), by_from)) std::sort(v.begin(), v.end(), by_from);
  std::size_t n = 0;
  for (const Interval& i : v) {
    if (n && i.from <= v[n - 1].to)
      v[n - 1].to = std::max(v[n - 1].to, i.to);
    else
      v[n++] = i;
  }
  v.resize(n);
  return v;
}

Ns total(const Intervals& disjoint) {
  Ns sum = 0;
  for (const Interval& i : disjoint) sum += i.length();
  return sum;
}

Ns union_length(Intervals intervals) { return total(merged(std::move(intervals))); }

Intervals intersection(const Intervals& a, const Intervals& b) {
  Intervals out;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Ns from = std::max(a[i].from, b[j].from), to = std::min(a[i].to, b[j].to);
    if (from < to) out.push_back({from, to});
    if (a[i].to < b[j].to)
      ++i;
    else
      ++j;
  }
  return out;
}

Intervals difference(const Intervals& a, const Intervals& b) {
  Intervals out;
  std::size_t j = 0;
  for (const Interval& i : a) {
    Ns from = i.from;
    while (j < b.size() && b[j].to <= from) ++j;
    for (std::size_t k = j; k < b.size() && b[k].from < i.to; ++k) {
      if (b[k].from > from) out.push_back({from, b[k].from});
      from = std::max(from, b[k].to);
    }
    if (from < i.to) out.push_back({from, i.to});
  }
  return out;
}

}  // namespace tk

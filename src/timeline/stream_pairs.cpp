#include "timeline/stream_pairs.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/error.h"

namespace tk {

namespace {

struct State {
  int pairs = 0;
  Ns cost = 0;
  bool better(const State& o) const { return pairs != o.pairs ? pairs > o.pairs : cost < o.cost; }
};

std::vector<std::size_t> by_center(const std::vector<Ns>& v) {
  std::vector<std::size_t> order(v.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return v[a] < v[b]; });
  return order;
}

}  // namespace

StreamPairs pair_segments(const std::vector<Ns>& occurrences, const std::vector<Ns>& segments) {
  const std::size_t n = occurrences.size(), m = segments.size(), w = m + 1;
  StreamPairs out;
  out.partner.assign(n, -1);
  out.ambiguous.assign(n, false);
  if (n == 0 || m == 0) return out;
  if (n > 20000000 / w)
    throw UserError(
        "TK0914", cat("a sample is too short: ", n, " x ", m, " combinations of segments to pair"))
        .help("take a longer sample of this block");
  const auto p = by_center(occurrences), a = by_center(segments);
  auto cost = [&](std::size_t i, std::size_t j) {
    return std::abs(occurrences[p[i]] - segments[a[j]]);
  };
  // head[i][j]: best of the first i occurrences and j segments; tail[i][j]: of those from i and j
  // on.
  std::vector<State> head((n + 1) * w), tail((n + 1) * w);
  for (std::size_t i = 1; i <= n; ++i)
    for (std::size_t j = 1; j <= m; ++j) {
      State best = head[(i - 1) * w + j];
      if (head[i * w + j - 1].better(best)) best = head[i * w + j - 1];
      const State& before = head[(i - 1) * w + j - 1];
      const State match{before.pairs + 1, before.cost + cost(i - 1, j - 1)};
      if (match.better(best)) best = match;
      head[i * w + j] = best;
    }
  for (std::size_t i = n; i-- > 0;)
    for (std::size_t j = m; j-- > 0;) {
      State best = tail[(i + 1) * w + j];
      if (tail[i * w + j + 1].better(best)) best = tail[i * w + j + 1];
      const State& after = tail[(i + 1) * w + j + 1];
      const State match{after.pairs + 1, after.cost + cost(i, j)};
      if (match.better(best)) best = match;
      tail[i * w + j] = best;
    }
  const State whole = head[n * w + m];
  for (std::size_t i = n, j = m; i > 0 && j > 0;) {
    const State& here = head[i * w + j];
    const State& up = head[(i - 1) * w + j];
    const State& left = head[i * w + j - 1];
    if (!here.better(up)) {
      --i;
    } else if (!here.better(left)) {
      --j;
    } else {
      out.partner[p[i - 1]] = static_cast<int>(a[j - 1]);
      // Without this segment: the best split of the occurrences around it.
      State other{-1, 0};
      for (std::size_t k = 0; k <= n; ++k) {
        const State& x = head[k * w + j - 1];
        const State& y = tail[k * w + j];
        const State sum{x.pairs + y.pairs, x.cost + y.cost};
        if (sum.better(other)) other = sum;
      }
      out.ambiguous[p[i - 1]] =
          other.pairs == whole.pairs && std::abs(other.cost - whole.cost) <= 2;
      --i;
      --j;
    }
  }
  return out;
}

}  // namespace tk

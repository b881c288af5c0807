#include "trial/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace tk {
namespace {

// The shortest of several runs: what the machine's other work adds is left out.
double seconds_of(const std::function<void()>& f, int times) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

Timing summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2] * 1e3, seconds.front() * 1e3, seconds.back() * 1e3,
          static_cast<int>(seconds.size())};
}

}  // namespace

MedianInterval median_interval(std::vector<double> values) {
  TK_CHECK(!values.empty(), "median of nothing");
  std::sort(values.begin(), values.end());
  const auto n = values.size();
  const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  // Ranks n/2 -+ 1.96 sqrt(n)/2 enclose the median with 95 %.
  const double half = 1.96 * std::sqrt(static_cast<double>(n)) / 2;
  const double centre = static_cast<double>(n) / 2;
  const auto low = static_cast<std::size_t>(std::max(0.0, std::floor(centre - half)));
  const auto high = std::min(n - 1, static_cast<std::size_t>(std::ceil(centre + half)));
  return {median, values[low], values[high]};
}

Comparison time_in_turn(const std::string& metric, const std::function<void()>& before,
                        const std::function<void()>& after, const TimingOptions& options) {
  Comparison out;
  out.metric = metric;
  out.measured = true;
  // Warm up, and find how often to repeat for a sample that the clock can tell.
  seconds_of(before, 1);
  seconds_of(after, 1);
  const double once = std::max({seconds_of(before, 2), seconds_of(after, 2), 1e-7});
  // Short work is repeated so that the clock can tell, and so that one disturbance does not count.
  const int least = once < 0.01 ? 3 : 1;
  const int repeat = std::clamp(static_cast<int>(std::ceil(options.sample_s / once)), least, 1000);
  std::vector<double> a;
  std::vector<double> b;
  std::vector<double> ratios;
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < options.max_rounds; ++round) {
    // Who goes first alternates, so that a drift within a round falls on both alike.
    double first = seconds_of(round % 2 == 0 ? before : after, repeat);
    double second = seconds_of(round % 2 == 0 ? after : before, repeat);
    if (round % 2 == 1) std::swap(first, second);
    a.push_back(first);
    b.push_back(second);
    ratios.push_back(second / first);
    const double spent =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    // Long work gets fewer rounds rather than more time.
    const bool enough = round + 1 >= options.min_rounds || (round >= 4 && spent > options.budget_s);
    if (!enough) continue;
    const MedianInterval m = median_interval(ratios);
    if (spent > options.budget_s || m.high < 1 || m.low > 1) break;
  }
  const MedianInterval m = median_interval(ratios);
  out.ratio = m.median;
  out.ratio_low = m.low;
  out.ratio_high = m.high;
  out.before = summary(a);
  out.after = summary(b);
  return out;
}

}  // namespace tk

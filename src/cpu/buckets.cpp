#include "cpu/buckets.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/error.h"

namespace tk {
namespace {

constexpr std::size_t most_sizes = 512;
constexpr std::int64_t most_tokens = 1 << 24;

}  // namespace

std::function<double(std::int64_t)> linear_between(std::map<std::int64_t, double> seconds) {
  return [seconds = std::move(seconds)](std::int64_t n) {
    const auto above = seconds.lower_bound(n);
    if (above == seconds.end()) return seconds.rbegin()->second;
    if (above->first == n || above == seconds.begin()) return above->second;
    const auto below = std::prev(above);
    const double part =
        static_cast<double>(n - below->first) / static_cast<double>(above->first - below->first);
    return below->second + part * (above->second - below->second);
  };
}

Buckets choose_buckets(const SizeCounts& counts, const BucketCosts& costs, std::int64_t max_bytes) {
  if (counts.empty() || counts.size() > most_sizes)
    throw UserError("TK1506", cat("buckets are chosen from 1 to ", most_sizes,
                                  " different sizes, found ", counts.size()))
        .help("a trace needs a request that generates a token; for more sizes round them first");
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes(counts.begin(), counts.end());
  const std::size_t n = sizes.size();
  std::size_t most = n;
  if (costs.plan_bytes > 0)
    most = static_cast<std::size_t>(
        std::clamp<std::int64_t>(max_bytes / costs.plan_bytes, 1, static_cast<std::int64_t>(n)));
  // best[k][j]: the first j sizes in k buckets, the last of which is size j - 1.
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(most + 1, std::vector<double>(n + 1, never));
  std::vector<std::vector<std::size_t>> from(most + 1, std::vector<std::size_t>(n + 1, 0));
  best[0][0] = 0;
  std::vector<double> seconds;
  std::vector<double> runs{0};
  for (const auto& [size, count] : sizes) {
    seconds.push_back(costs.seconds(size));
    runs.push_back(runs.back() + static_cast<double>(count));
  }
  for (std::size_t k = 1; k <= most; ++k)
    for (std::size_t j = 1; j <= n; ++j)
      for (std::size_t i = k - 1; i < j; ++i) {
        const double total =
            best[k - 1][i] + (runs[j] - runs[i]) * seconds[j - 1] + costs.plan_seconds;
        if (total < best[k][j]) best[k][j] = total, from[k][j] = i;
      }
  std::size_t k = 1;
  for (std::size_t more = 2; more <= most; ++more)
    if (best[more][n] < best[k][n]) k = more;
  std::vector<std::int64_t> chosen;
  for (std::size_t j = n; k > 0; j = from[k--][j]) chosen.push_back(sizes[j - 1].first);
  std::reverse(chosen.begin(), chosen.end());
  return cost_of_buckets(std::move(chosen), counts, costs);
}

Buckets cost_of_buckets(std::vector<std::int64_t> sizes, const SizeCounts& counts,
                        const BucketCosts& costs) {
  Buckets out;
  std::map<std::int64_t, bool> made;
  for (const auto& [size, count] : counts) {
    const auto it = std::lower_bound(sizes.begin(), sizes.end(), size);
    const std::int64_t bucket = it == sizes.end() ? size : *it;
    made[bucket] = true;
    out.seconds += static_cast<double>(count) * costs.seconds(bucket);
  }
  for (const auto& [bucket, used] : made) out.sizes.push_back(bucket);
  const auto n = static_cast<std::int64_t>(out.sizes.size());
  out.plan_seconds = static_cast<double>(n) * costs.plan_seconds;
  out.plan_bytes = n * costs.plan_bytes;
  return out;
}

std::vector<Request> parse_requests(std::string_view text, std::string_view file) {
  std::vector<Request> requests;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (number == 1 && std::isalpha(static_cast<unsigned char>(line[0])) != 0))
      continue;
    Request r;
    long long prompt = 0;
    long long generate = 0;
    int used = 0;
    if (std::sscanf(line.c_str(), "%lf,%lld,%lld %n", &r.arrival_s, &prompt, &generate, &used) !=
            3 ||
        static_cast<std::size_t>(used) != line.size() || !std::isfinite(r.arrival_s) ||
        r.arrival_s < 0 || prompt < 1 || generate < 1 || prompt > most_tokens ||
        generate > most_tokens)
      throw UserError("TK1507", cat("'", line.substr(0, 60), "' is no request"))
          .at(file, number)
          .help("a line is arrival_s,prompt_tokens,new_tokens, for example 0.25,120,64");
    r.prompt = prompt;
    r.generate = generate;
    requests.push_back(r);
  }
  return requests;
}

SizeCounts decode_batches(std::span<const Request> requests, std::int64_t max_batch,
                          const std::function<double(std::int64_t)>& seconds) {
  std::vector<Request> waiting(requests.begin(), requests.end());
  std::stable_sort(waiting.begin(), waiting.end(),
                   [](const Request& a, const Request& b) { return a.arrival_s < b.arrival_s; });
  SizeCounts counts;
  std::vector<std::int64_t> left;  // tokens that each running request still makes
  double now = 0;
  std::size_t next = 0;
  while (next < waiting.size() || !left.empty()) {
    if (left.empty()) now = std::max(now, waiting[next].arrival_s);
    while (next < waiting.size() && waiting[next].arrival_s <= now &&
           static_cast<std::int64_t>(left.size()) < max_batch) {
      const std::int64_t steps = waiting[next++].generate - 1;  // prefill makes the first token
      if (steps > 0) left.push_back(steps);
    }
    if (left.empty()) continue;
    const auto batch = static_cast<std::int64_t>(left.size());
    ++counts[batch];
    now += seconds(batch);
    for (std::int64_t& n : left) --n;
    std::erase(left, 0);
  }
  return counts;
}

}  // namespace tk

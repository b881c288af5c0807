#include "npu/kv_lengths.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>
#include <queue>

#include "base/error.h"

namespace tk {
namespace {

constexpr std::int64_t most = 1 << 28;

// Longest first, each to the core that has least so far.
std::int64_t busiest(std::vector<std::int64_t> pieces, std::int64_t cores) {
  std::sort(pieces.begin(), pieces.end(), std::greater<>());
  std::priority_queue<std::int64_t, std::vector<std::int64_t>, std::greater<>> load;
  for (std::int64_t c = 0; c < cores; ++c) load.push(0);
  std::int64_t longest = 0;
  for (const std::int64_t piece : pieces) {
    const std::int64_t sum = load.top() + piece;
    load.pop();
    load.push(sum);
    longest = std::max(longest, sum);
  }
  return longest;
}

std::vector<std::int64_t> pieces_of(const std::vector<std::int64_t>& lengths, std::int64_t heads,
                                    std::int64_t cores) {
  const auto n = static_cast<std::int64_t>(lengths.size()) * heads;
  const std::int64_t splits = n < cores ? (cores + n - 1) / n : 1;
  std::vector<std::int64_t> out;
  for (const std::int64_t l : lengths)
    for (std::int64_t h = 0; h < heads * splits; ++h) out.push_back((l + splits - 1) / splits);
  return out;
}

}  // namespace

std::vector<std::vector<std::int64_t>> parse_lengths(const std::string& text) {
  std::vector<std::vector<std::int64_t>> out(1);
  const char* p = text.data();
  const char* end = p + text.size();
  while (true) {
    std::int64_t v = 0;
    const auto [next, error] = std::from_chars(p, end, v);
    if (error != std::errc() || v < 1 || v > most)
      throw UserError("TK1450",
                      cat("'", text, "' has no length at character ", p - text.data() + 1))
          .help(cat("write tokens of each sequence, 1 to ", most,
                    ", as 4096,512; with a / between the data-parallel groups"));
    out.back().push_back(v);
    p = next;
    if (p == end) return out;
    if (*p == '/') out.emplace_back();
    if (*p != '/' && *p != ',')
      throw UserError("TK1450", cat("'", text, "' has '", *p, "' after a length"))
          .help("lengths are apart by commas, groups by /");
    ++p;
  }
}

std::int64_t mean_length(const std::vector<std::int64_t>& lengths) {
  const auto n = static_cast<std::int64_t>(lengths.size());
  return (std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}) + n - 1) / n;
}

void set_lengths(Step* step, const std::vector<std::int64_t>& lengths) {
  const bool equal = std::all_of(lengths.begin(), lengths.end(),
                                 [&](std::int64_t l) { return l == lengths.front(); });
  if (equal) return;
  std::vector<KernelWork> kernels = step->kernels();
  const std::int64_t mean = mean_length(lengths);
  for (KernelWork& k : kernels)
    if (k.family == Family::attention && !k.products.empty() && k.products[0].n * 10 >= mean * 9)
      k.kv_lengths = lengths;
  step->set_kernels(std::move(kernels));
}

double busiest_share(const std::vector<std::int64_t>& lengths, std::int64_t heads,
                     std::int64_t cores) {
  const std::vector<std::int64_t> pieces = pieces_of(lengths, heads, cores);
  const auto all = std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0});
  return static_cast<double>(busiest(pieces, cores)) / static_cast<double>(all);
}

double imbalance(const std::vector<std::int64_t>& lengths, std::int64_t heads, std::int64_t cores) {
  const std::vector<std::int64_t> even(lengths.size(), mean_length(lengths));
  return std::max(1.0, busiest_share(lengths, heads, cores) / busiest_share(even, heads, cores));
}

}  // namespace tk

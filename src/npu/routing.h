// How tokens spread over experts and ranks (VN-28, VN-73).
#pragma once

#include <cstdint>
#include <vector>

namespace tk {

// What a rank gets: rows for its experts, and how many of them get any.
struct Spread {
  std::int64_t rows = 0;
  std::int64_t experts_hit = 0;  // expected
};

// `rows` token-expert pairs of all ranks over `experts`, which lie in order on `ranks`. zipf 0:
// all alike; else expert i is picked in proportion to 1 / (i + 1)^zipf, dealt out to ranks in turn.
// `even` false: picks are random, so that the busiest of n ranks gets sqrt(r) times the expected
// maximum of n normal variables more than the mean of r. Of rank 0, which is the busiest, or
// another.
Spread spread(std::int64_t experts, std::int64_t ranks, std::int64_t rows, double zipf,
              bool even = true, std::int64_t rank = 0);

// Bytes from rank i to rank j, each of which has `bytes` to send, the share `to_first` of them to
// rank 0; `back`: the way back.
std::vector<std::int64_t> routed_bytes(std::int64_t ranks, std::int64_t bytes, double zipf,
                                       bool back, double to_first = 0);

}  // namespace tk

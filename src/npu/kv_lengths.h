// Sequences of different lengths in one step (VN-03, VN-27).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu/work.h"

namespace tk {

// "4096,512/8192": tokens in the cache of each sequence, of one data-parallel group after the
// other. Throws TK1450.
std::vector<std::vector<std::int64_t>> parse_lengths(const std::string& text);

// Rounded up, so that no cache is taken to be shorter than it is.
std::int64_t mean_length(const std::vector<std::int64_t>& lengths);

// Attention over the whole cache gets these lengths; over a window it stays even.
void set_lengths(Step* step, const std::vector<std::int64_t>& lengths);

// The part of all keys that the core with most of them has. A sequence's `heads` are pieces; where
// there are fewer pieces than cores, keys are split too.
double busiest_share(const std::vector<std::int64_t>& lengths, std::int64_t heads,
                     std::int64_t cores);
// The same over what it would be with all sequences of the mean length.
double imbalance(const std::vector<std::int64_t>& lengths, std::int64_t heads, std::int64_t cores);

}  // namespace tk

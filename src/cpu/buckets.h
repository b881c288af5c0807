// Which batch sizes get a decode plan of their own: padding costs time in every step, a plan costs
// time once and memory (GM-61).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tk {

// How often each size occurs: decode steps by batch, or prompts by tokens.
using SizeCounts = std::map<std::int64_t, std::int64_t>;

struct BucketCosts {
  std::function<double(std::int64_t)> seconds;  // of a run at this size, its plan being there
  double plan_seconds = 0;                      // to make a plan
  std::int64_t plan_bytes = 0;                  // that a plan keeps
};

// Seconds at some sizes, linear between them, and as at the nearest outside. Not empty.
std::function<double(std::int64_t)> linear_between(std::map<std::int64_t, double> seconds);

struct Buckets {
  std::vector<std::int64_t> sizes;  // increasing; the last one is the largest that occurs
  double seconds = 0;               // of all runs, each padded to its bucket
  double plan_seconds = 0;          // of making the plans
  std::int64_t plan_bytes = 0;
  double total() const { return seconds + plan_seconds; }
};

// The sizes with the least total() among those whose plans fit into `max_bytes`; one at least.
// O(n^3) in the number of different sizes. Throws TK1506 when there are none or more than 512.
Buckets choose_buckets(const SizeCounts& counts, const BucketCosts& costs, std::int64_t max_bytes);
// What given sizes cost; a size above all of them has a plan of its own.
Buckets cost_of_buckets(std::vector<std::int64_t> sizes, const SizeCounts& counts,
                        const BucketCosts& costs);

// A request as a log of a server has it.
struct Request {
  double arrival_s = 0;
  std::int64_t prompt = 0, generate = 0;
};
// Lines "arrival_s,prompt_tokens,new_tokens"; a first line of words is skipped. Throws TK1507 with
// the line.
std::vector<Request> parse_requests(std::string_view text, std::string_view file);

// The batches that these requests make with continuous batching, at most `max_batch` together, when
// a decode step of a batch takes `seconds(batch)`; prompts are run one by one, at no time.
SizeCounts decode_batches(std::span<const Request> requests, std::int64_t max_batch,
                          const std::function<double(std::int64_t)>& seconds);

}  // namespace tk

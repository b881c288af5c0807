// GM-61: buckets by what they cost, compared with every other choice.
#include "cpu/buckets.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace tk {
namespace {

BucketCosts costs(double base, double each, double plan, std::int64_t bytes = 0) {
  return {[=](std::int64_t n) { return base + each * static_cast<double>(n); }, plan, bytes};
}

// Every set of sizes that ends with the largest.
Buckets best_of_all(const SizeCounts& counts, const BucketCosts& c, std::size_t most) {
  std::vector<std::int64_t> sizes;
  for (const auto& [size, count] : counts) sizes.push_back(size);
  Buckets best;
  for (unsigned mask = 0; mask < 1U << (sizes.size() - 1); ++mask) {
    std::vector<std::int64_t> chosen;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (i + 1 == sizes.size() || (mask >> i & 1U) != 0) chosen.push_back(sizes[i]);
    if (chosen.size() > most) continue;
    const Buckets b = cost_of_buckets(chosen, counts, c);
    if (best.sizes.empty() || b.total() < best.total()) best = b;
  }
  return best;
}

TEST(buckets, gm_61_cost_the_least_of_all_choices) {
  std::mt19937 random(61);
  for (int round = 0; round < 60; ++round) {
    SizeCounts counts;
    const unsigned n = 1 + random() % 9;
    while (counts.size() < n) counts[1 + random() % 64] = 1 + random() % 1000;
    const BucketCosts c = costs(random() % 10, 0.1 + random() % 4, random() % 3000, 10);
    const std::size_t most = 1 + random() % n;
    const Buckets found = choose_buckets(counts, c, static_cast<std::int64_t>(most) * 10 + 5);
    EXPECT_NEAR(found.total(), best_of_all(counts, c, most).total(), 1e-6 * (1 + found.total()));
    EXPECT_LE(found.sizes.size(), most);
    EXPECT_EQ(found.sizes.back(), counts.rbegin()->first);
  }
}

TEST(buckets, gm_61_free_plans_give_one_each_dear_ones_one) {
  const SizeCounts counts{{1, 100}, {7, 100}, {8, 1}};
  EXPECT_EQ(choose_buckets(counts, costs(1, 1, 0), 1 << 20).sizes,
            (std::vector<std::int64_t>{1, 7, 8}));
  EXPECT_EQ(choose_buckets(counts, costs(1, 1, 1e9), 1 << 20).sizes, std::vector<std::int64_t>{8});
  EXPECT_EQ(choose_buckets(counts, costs(1, 1, 500), 1 << 20).sizes,
            (std::vector<std::int64_t>{1, 8}));
}

TEST(buckets, gm_61_a_trace_gives_the_batches_of_continuous_batching) {
  const auto requests =
      parse_requests("arrival_s,prompt,new\n0,10,3\n0,5,5\r\n100,4,2\n0.5,4,1\n", "trace.csv");
  ASSERT_EQ(requests.size(), 4u);
  const auto one_second = [](std::int64_t) { return 1.0; };
  EXPECT_EQ(decode_batches(requests, 8, one_second), (SizeCounts{{1, 3}, {2, 2}}));
  EXPECT_EQ(decode_batches(requests, 1, one_second), (SizeCounts{{1, 7}}));
}

TEST(buckets, refuse_what_is_no_trace) {  // TK1506, TK1507
  const auto code = [](std::string_view text) {
    try {
      const auto requests = parse_requests(text, "t.csv");
      choose_buckets(decode_batches(requests, 4, [](std::int64_t) { return 1.0; }), costs(1, 1, 1),
                     1);
    } catch (const UserError& e) {
      return e.code();
    }
    return std::string("none");
  };
  EXPECT_EQ(code("0,1,2\n"), "none");
  EXPECT_EQ(code(""), "TK1506");
  EXPECT_EQ(code("0,1,1\n"), "TK1506");  // prefill makes its only token
  for (const char* bad : {"0,1\n", "b,1,2\n", "0,0,2\n", "0,1,-2\n", "0,1,2,3\n", "nan,1,2\n",
                          "-1,1,2\n", "0,1,99999999999\n", "0,1,2 x\n", "inf,1,2\n"})
    EXPECT_EQ(code(cat("0,1,2\n", bad)), "TK1507") << bad;
}

}  // namespace
}  // namespace tk

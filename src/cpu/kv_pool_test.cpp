// KV-10 (addresses) and KV-20 (the pool).
#include "cpu/kv_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "base/error.h"

namespace tk {
namespace {

using Blocks = std::vector<std::int32_t>;

std::vector<std::int64_t> slots(const Blocks& blocks, std::int64_t from, std::int64_t to,
                                std::int64_t block_size) {
  std::vector<std::int64_t> out;
  for (std::int64_t p = from; p < to; ++p) out.push_back(slot_of(blocks, p, block_size, 0));
  return out;
}

TEST(kv_10, the_packed_example) {
  using V = std::vector<std::int64_t>;
  EXPECT_EQ(slots({2, 7}, 0, 5, 4), (V{8, 9, 10, 11, 28}));
  EXPECT_EQ(slots({5}, 0, 2, 4), (V{20, 21}));
  EXPECT_EQ(slots({1}, 0, 3, 4), (V{4, 5, 6}));
  EXPECT_EQ(slot_of(Blocks{2, 7}, 5, 4, 0), 29);
  EXPECT_EQ(slot_of(Blocks{5}, 2, 4, 0), 22);
  EXPECT_EQ(slot_of(Blocks{1}, 3, 4, 0), 7);
}

TEST(kv_10, a_table_in_order_is_the_contiguous_cache) {
  const std::int64_t max_len = 2048;
  const std::int64_t block = 128;
  std::vector<Blocks> tables(2);
  for (std::int32_t i = 0; i < 32; ++i) tables[static_cast<std::size_t>(i / 16)].push_back(i);
  EXPECT_EQ(slots(tables[0], 0, 512, block).back(), 511);
  EXPECT_EQ(slots(tables[1], 0, 256, block).front(), 2048);
  EXPECT_EQ(slots(tables[1], 0, 256, block).back(), 2303);
  EXPECT_EQ(slot_of(tables[0], 522, block, 0), 522);
  EXPECT_EQ(slot_of(tables[1], 266, block, 0), 2314);
  for (std::int64_t p = 0; p < max_len; p += 37)
    EXPECT_EQ(slot_of(tables[1], p, block, 1), max_len + p);
}

TEST(kv_10, a_position_beyond_the_table_names_request_and_width) {
  try {
    slot_of(Blocks{2, 7}, 8, 4, 31);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK0506");
    EXPECT_NE(e.message().find("request 31"), std::string::npos);
    EXPECT_NE(e.message().find("2 blocks"), std::string::npos);
  }
}

TEST(kv_20, errors) {
  EXPECT_THROW(BlockPool(0), UserError);
  EXPECT_THROW(BlockPool(1), UserError);
  EXPECT_THROW(BlockPool(-3), UserError);
  BlockPool pool(4);
  Blocks b;
  EXPECT_THROW(pool.allocate(-1, &b), InternalError);
  try {
    pool.allocate(4, &b);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK0513");
  }
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(pool.n_free(), 3);
  pool.allocate(2, &b);
  EXPECT_THROW(pool.release(Blocks{4}), InternalError);
  EXPECT_THROW(pool.release(Blocks{-1}), InternalError);
  pool.release(Blocks{b[0], null_block});  // the null block is passed over
  EXPECT_THROW(pool.release(Blocks{b[0]}), InternalError);
  EXPECT_EQ(pool.n_free(), 2);
}

TEST(kv_20, blocks_go_round_in_order_of_release) {
  BlockPool pool(4);
  Blocks a, b;
  pool.allocate(3, &a);
  EXPECT_EQ(a, (Blocks{1, 2, 3}));
  pool.release(Blocks{2});
  pool.release(Blocks{1});
  pool.allocate(2, &b);
  EXPECT_EQ(b, (Blocks{2, 1}));
}

// Requests that come, grow and go, against a dictionary of which (request, position) a slot holds.
TEST(kv_20, random_requests_never_share_and_never_lose_blocks) {
  std::mt19937 random(11);
  const std::int64_t block = 4;
  BlockPool pool(40);
  struct Request {
    Blocks blocks;
    std::int64_t length = 0;
  };
  std::map<int, Request> live;
  std::map<std::int64_t, std::pair<int, std::int64_t>> cache;
  int next = 0;
  for (int step = 0; step < 5000; ++step) {
    const auto choice = random() % 10;
    if (choice == 0 && !live.empty()) {
      auto it = std::next(live.begin(), static_cast<long>(random() % live.size()));
      pool.release(it->second.blocks);
      for (auto c = cache.begin(); c != cache.end();)
        c = c->second.first == it->first ? cache.erase(c) : std::next(c);
      live.erase(it);
    } else if (choice < 3 || live.empty()) {
      live[next++] = {};
    } else {
      auto& [id, r] = *std::next(live.begin(), static_cast<long>(random() % live.size()));
      const std::int64_t n = 1 + static_cast<std::int64_t>(random() % 9);
      const std::int64_t need =
          blocks_for(r.length + n, block) - static_cast<std::int64_t>(r.blocks.size());
      const std::int64_t free = pool.n_free();
      if (need > free) {
        EXPECT_THROW(pool.allocate(need, &r.blocks), UserError);
        EXPECT_EQ(pool.n_free(), free);
        continue;
      }
      pool.allocate(need, &r.blocks);
      for (std::int64_t i = 0; i < n; ++i, ++r.length) {
        const std::int64_t slot = slot_of(r.blocks, r.length, block, id);
        EXPECT_GE(slot, block);  // never in the null block
        EXPECT_TRUE(cache.emplace(slot, std::pair(id, r.length)).second);
      }
    }
    std::int64_t owned = 0;
    std::set<std::int32_t> all;
    for (const auto& [id, r] : live) {
      owned += static_cast<std::int64_t>(r.blocks.size());
      all.insert(r.blocks.begin(), r.blocks.end());
      for (std::int64_t p = 0; p < r.length; ++p)
        EXPECT_EQ(cache.at(slot_of(r.blocks, p, block, id)), std::pair(id, p));
    }
    ASSERT_EQ(static_cast<std::int64_t>(all.size()), owned);
    ASSERT_EQ(owned + pool.n_free(), pool.size() - 1);
  }
}

}  // namespace
}  // namespace tk

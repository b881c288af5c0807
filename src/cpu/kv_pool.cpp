#include "cpu/kv_pool.h"

#include "base/error.h"

namespace tk {

BlockPool::BlockPool(std::int64_t size) {
  if (size < 2)
    throw UserError("TK0514", cat("a KV cache of ", size, " blocks is too small"))
        .note("block 0 is the null block, so 2 are the least")
        .help("give more memory or blocks to the cache");
  is_free_.assign(static_cast<std::size_t>(size), true);
  is_free_[null_block] = false;
  for (std::int64_t i = 1; i < size; ++i) free_.push_back(static_cast<std::int32_t>(i));
}

void BlockPool::allocate(std::int64_t n, std::vector<std::int32_t>* blocks) {
  TK_CHECK(n >= 0, "asked for ", n, " blocks");
  if (n > n_free())
    throw UserError("TK0513", cat("the KV cache is full: ", n, " more blocks are needed, ",
                                  n_free(), " of ", size() - 1, " are free"))
        .help("serve fewer or shorter requests at a time, or give the cache more memory");
  for (std::int64_t i = 0; i < n; ++i) {
    blocks->push_back(free_.front());
    is_free_[static_cast<std::size_t>(free_.front())] = false;
    free_.pop_front();
  }
}

void BlockPool::release(std::span<const std::int32_t> blocks) {
  for (const std::int32_t b : blocks) {
    if (b == null_block) continue;
    TK_CHECK(b > 0 && b < size(), "block ", b, " of a pool of ", size());
    TK_CHECK(!is_free_[static_cast<std::size_t>(b)], "block ", b, " is freed twice");
    is_free_[static_cast<std::size_t>(b)] = true;
    free_.push_back(b);
  }
}

std::int64_t slot_of(std::span<const std::int32_t> blocks, std::int64_t position,
                     std::int64_t block_size, std::int64_t request) {
  TK_CHECK(position >= 0, "position ", position);
  const std::int64_t i = position / block_size;
  if (i >= static_cast<std::int64_t>(blocks.size()))
    throw UserError("TK0506", cat("position ", position, " of request ", request,
                                  " is beyond its block table of ", blocks.size(), " blocks"));
  return blocks[static_cast<std::size_t>(i)] * block_size + position % block_size;
}

}  // namespace tk

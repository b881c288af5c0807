// Blocks of the paged KV cache: who owns which, and where a token's keys and values lie.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace tk {

// Block 0 is the null block: never handed out, what unused entries of a block table hold.
constexpr std::int32_t null_block = 0;

// Blocks 1 .. size-1, handed out in the order in which they came back (FIFO), so that a bug that
// reads a freed block is not hidden by its quick reuse.
class BlockPool {
 public:
  explicit BlockPool(std::int64_t size);  // with the null block; TK0514 when < 2

  std::int64_t size() const { return static_cast<std::int64_t>(is_free_.size()); }
  std::int64_t n_free() const { return static_cast<std::int64_t>(free_.size()); }
  // Appends n blocks to *blocks. Throws TK0513 when there are fewer, and takes none then.
  void allocate(std::int64_t n, std::vector<std::int32_t>* blocks);
  // The null block is passed over. A block that is free already is an internal error.
  void release(std::span<const std::int32_t> blocks);

 private:
  std::deque<std::int32_t> free_;
  std::vector<bool> is_free_;
};

inline std::int64_t blocks_for(std::int64_t tokens, std::int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

// The slot of a position: block * block_size + offset. Throws TK0506, naming the request and the
// width of its table, when the position lies beyond it.
std::int64_t slot_of(std::span<const std::int32_t> blocks, std::int64_t position,
                     std::int64_t block_size, std::int64_t request);

}  // namespace tk

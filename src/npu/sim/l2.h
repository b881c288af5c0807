// What is in L2: byte ranges in pages, least recently used page out first (VN-40).
#pragma once

#include <cstdint>
#include <vector>

namespace tk::sim {

struct L2Traffic {
  std::int64_t hit = 0;      // bytes that were there
  std::int64_t miss = 0;     // read from memory
  std::int64_t written = 0;  // to memory: dirty pages that had to go, or what does not keep
};

// Of the ranges that a prefetch brought (VN-41): what was read since, what went unread.
struct L2Owner {
  std::int64_t brought = 0, used = 0, evicted = 0;
};

class L2 {
 public:
  L2() = default;
  // `span`: no address is at or above it.
  L2(std::int64_t bytes, std::int32_t pages, std::int32_t keep_permille, std::int64_t span);

  L2Traffic read(std::int64_t address, std::int64_t bytes);
  L2Traffic write(std::int64_t address, std::int64_t bytes);
  // The end of a transfer: the range is there, for `owner` (an index of owners()).
  L2Traffic bring(std::int64_t address, std::int64_t bytes, std::int32_t owner);
  std::int64_t resident(std::int64_t address, std::int64_t bytes) const;

  std::int64_t page_bytes() const { return page_bytes_; }
  std::vector<L2Owner>& owners() { return owners_; }
  std::int64_t unread(std::int32_t owner) const;  // still there and not read
  // Makes room for addresses of another Plan.
  void grow(std::int64_t span);
  // The same content in the same order of age: a step that starts so runs the same (VN-82).
  bool same_as(const L2& other) const;

 private:
  struct Piece {
    std::int64_t begin, end;
    std::int32_t owner;  // -1: none, or read already
    bool dirty;
  };
  struct Slot {
    std::int64_t page = -1;
    std::uint64_t used = 0;
    std::vector<Piece> pieces;  // by address, none overlap
  };
  Slot& slot_of(std::int64_t page, L2Traffic* traffic);
  void put(std::int64_t address, std::int64_t bytes, bool dirty, std::int32_t owner,
           L2Traffic* traffic);
  void insert(Slot* slot, const Piece& piece);

  std::int64_t page_bytes_ = 1, keep_ = 0;
  std::uint64_t tick_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::int16_t> where_;  // page -> slot, -1
  std::vector<L2Owner> owners_;
};

}  // namespace tk::sim

// A pool of distinct strings: names, types and shapes of kernels repeat thousands of times, so a
// Timeline keeps 32-bit ids. Text is valid UTF-8 afterwards, whatever came in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tk {

using StringId = std::uint32_t;  // 0 is the empty string

class StringPool {
 public:
  StringPool();
  StringId add(std::string_view text);
  // The id of a text that was added, or 0.
  StringId find(std::string_view text) const;
  std::string_view operator[](StringId id) const { return texts_[id]; }
  std::size_t size() const { return texts_.size(); }
  // Texts that were no UTF-8 and had bytes replaced.
  std::size_t repaired() const { return repaired_; }

 private:
  std::string_view store(std::string_view text);
  void grow();
  struct Slot {
    std::uint64_t hash = 0;
    StringId id = 0;  // 0: free
  };
  std::vector<Slot> slots_;
  std::vector<std::string_view> texts_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::size_t block_left_ = 0;
  char* block_at_ = nullptr;
  std::size_t repaired_ = 0;
};

// Replaces what is not UTF-8 by U+FFFD.
std::string valid_utf8(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace tk

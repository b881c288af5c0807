// The BPE model of a tokenizer.json: a vocabulary, and the pairs that merge, best first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "import/json.h"

namespace tk {

// A hash map of its own from a pair of ids to its merge: it is asked several times per character,
// and has a quarter of a million entries to load.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank, id;
  };
  explicit MergeTable(std::size_t n_merges);
  void set(std::uint32_t left, std::uint32_t right, Merge merge);  // replaces
  const Merge* find(std::uint32_t left, std::uint32_t right) const;

 private:
  struct Slot {
    std::uint64_t key = empty;
    Merge merge{};
  };
  static constexpr std::uint64_t empty = ~0ULL;  // no pair: ids are less than 2^31
  std::size_t slot_of(std::uint64_t key) const;
  std::vector<Slot> slots_;
};

class Bpe {
 public:
  // Of the "model" of a tokenizer.json. Throws TK0601 (another kind of model, or a setting that is
  // not read), TK0602 (merges and vocabulary contradict each other), TK0111.
  static Bpe read(const json::Value& model);
  Bpe(Bpe&&) = default;
  Bpe& operator=(Bpe&&) = default;
  Bpe(const Bpe&) = delete;  // ids_ and by_id_ point into tokens_
  Bpe& operator=(const Bpe&) = delete;

  // Appends the ids of one word (valid UTF-8). O(n log n) in its length.
  void encode(std::string_view word, std::vector<std::int64_t>& out) const;

  std::optional<std::uint32_t> id_of(std::string_view token) const;
  const std::string* token(std::int64_t id) const;  // nullptr: no such id
  std::size_t size() const { return ids_.size(); }  // tokens, as the file names them
  std::uint32_t max_id() const { return max_id_; }

 private:
  Bpe() = default;
  void read_vocabulary(const json::Value& vocabulary);
  void read_merges(const json::Value& merges);
  std::vector<std::uint32_t> characters(std::string_view word) const;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, std::uint32_t> ids_;
  std::unordered_map<std::uint32_t, std::size_t> by_id_;  // index into tokens_
  std::uint32_t max_id_ = 0;
  MergeTable merges_{0};
  std::optional<std::uint32_t> unknown_;
  std::optional<std::uint32_t> bytes_[256];  // "<0x00>" ..., when there is byte_fallback
  std::string prefix_, suffix_;              // of what continues and what ends a word
  bool fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace tk

// Added tokens: texts that are one token wherever they stand, found before (and, those that are
// "normalized", again after) the text is normalized, and never split.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "import/bpe.h"
#include "import/json.h"
#include "import/tokenizer_parts.h"

namespace tk {

struct AddedToken {
  std::int64_t id = 0;
  std::string content;
  std::string text;          // what decoding gives: the content, normalized when the token is
  bool single_word = false;  // not next to a letter, a digit or the like
  bool lstrip = false, rstrip = false;  // take the spaces on that side along
  bool normalized = false;              // looked for in the normalized text, normalized itself
  bool special = false;                 // left out when decoding
};

// Finds, of many patterns, the leftmost occurrence and of those the longest. The patterns are
// sorted; each further character narrows the range of those that still fit.
class PatternSet {
 public:
  // A pattern that is there twice counts once, with the first index.
  explicit PatternSet(std::vector<std::pair<std::string, std::size_t>> patterns = {});
  struct Found {
    std::size_t begin, end, index;
  };
  // The first at or after `from`; false when there is none.
  bool find(std::string_view text, std::size_t from, Found* found) const;

 private:
  std::vector<std::pair<std::string, std::size_t>> patterns_;      // and the caller's index
  std::vector<std::pair<std::uint32_t, std::uint32_t>> by_first_;  // range for a first byte
};

// A stretch of a text: an added token (id >= 0), or what lies between.
struct Stretch {
  std::string text;
  std::int64_t id = -1;
  bool is_first = false;  // begins where the whole text begins
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // Of "added_tokens". An id is that of the vocabulary, or else the next free one: the ids that the
  // file gives are not used, as the tokenizers package does not. Throws TK0602.
  static AddedTokens read(const json::Value& list, const Bpe& model, const Normalizer& normalizer);

  // Splits a text at added tokens; what lies between is normalized.
  std::vector<Stretch> split(std::string_view text, const Normalizer& normalizer,
                             std::size_t limit) const;

  const AddedToken* find(std::int64_t id) const;
  const AddedToken* find(std::string_view content) const;
  // Is this text left out when decoding? By text, not by id, and compared with the contents: so
  // does the tokenizers package.
  bool is_special(std::string_view content) const;
  std::int64_t max_id() const;  // -1 when there are none
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  void cut(std::string_view text, bool is_first, const PatternSet& patterns,
           const std::function<void(Stretch)>& take) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::int64_t, std::size_t> by_id_;
  std::unordered_map<std::string, std::size_t> by_content_;
  std::unordered_set<std::string> special_;
  PatternSet as_written_, after_normalizing_;  // the index is that in tokens_
};

}  // namespace tk

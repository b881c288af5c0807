// The parts of a tokenizer.json, each read into a function. What a file asks for and is not here is
// a TK0601 that names it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "import/json.h"
#include "import/regex.h"

namespace tk {

using Ids = std::vector<std::int64_t>;

// A text, changed before it is split. `limit` bounds the result in bytes (TK0603): replacements in
// a row can double a text as often as a file likes.
using Normalizer = std::function<std::string(std::string text, std::size_t limit)>;
Normalizer read_normalizer(const json::Value& value);

// A stretch of text between added tokens, and whether it begins where the whole text begins.
struct Piece {
  std::string text;
  bool is_first = false;
};
// Splits pieces into those that the model sees one at a time.
using PreTokenizer = std::function<void(std::vector<Piece>& pieces)>;
PreTokenizer read_pre_tokenizer(const json::Value& value);

// Adds the tokens that stand around a sequence.
using PostProcessor = std::function<Ids(Ids ids)>;
PostProcessor read_post_processor(const json::Value& value);

// From the texts of tokens to texts that are then joined; `limit` as above.
using Decoder =
    std::function<std::vector<std::string>(std::vector<std::string> tokens, std::size_t limit)>;
Decoder read_decoder(const json::Value& value);

// {"String": "..."} or {"Regex": "..."}.
Regex read_pattern(const json::Value& value);
// The text with `content` for every match.
std::string replace_all(const Regex& pattern, std::string_view text, std::string_view content,
                        std::size_t limit);

// TK0601: `value` is of a kind, or has a setting, that is not read. `what` reads like
// "the normalizer 'Precompiled'".
UserError not_read(const json::Value& value, std::string_view what);
// TK0603 when a text has grown past its limit.
void check_growth(std::size_t size, std::size_t limit);

}  // namespace tk

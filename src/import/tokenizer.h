// Text to token ids and back, by a tokenizer.json of the BPE kinds: byte-level (GPT-2, Llama 3,
// Qwen) and SentencePiece's with byte fallback (Llama 2). The ids are those of the tokenizers
// package. Truncation and padding, which a tokenizer.json may ask for, are left to the caller.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tk {

class Tokenizer {
 public:
  // A tokenizer.json, or a folder that holds one. Throws TK0601 (a kind or part that is not read),
  // TK0602 (it contradicts itself), TK0110, TK0111 (the JSON), and those of MappedFile::open.
  static Tokenizer from_file(const std::filesystem::path& path);
  static Tokenizer parse(std::string_view text, std::string_view file);  // file: for messages

  // The ids of a text; what of it is not UTF-8 is read as U+FFFD. `add_special`: with the tokens
  // that the file's template puts around a text (as a rule the one that begins a sequence). Throws
  // TK0603 when the file's patterns or replacements run away on this text.
  std::vector<std::int64_t> encode(std::string_view text, bool add_special = true) const;

  // The text of ids, always UTF-8. Ids that are not in the vocabulary (models pad theirs) have
  // none.
  std::string decode(std::span<const std::int64_t> ids, bool skip_special = true) const;

  // One more than the largest id.
  std::int64_t size() const;
  // By its text as the file spells it: "<|im_end|>", or "Ġthe".
  std::optional<std::int64_t> id_of(std::string_view token) const;
  std::optional<std::string> token(std::int64_t id) const;
  bool is_special(std::int64_t id) const;

 private:
  friend class TokenStream;
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

// Decodes ids as they come. What the pushes and finish() return, joined, is what decode() returns
// for all of them; a push holds back a character of which not all bytes have come yet.
class TokenStream {
 public:
  explicit TokenStream(Tokenizer tokenizer, bool skip_special = true)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}
  std::string push(std::int64_t id);
  std::string finish();

 private:
  std::string take(bool all);
  Tokenizer tokenizer_;
  bool skip_special_;
  // The last ids: those before `n_context_` are said and only there because what follows may depend
  // on them. Of the text of them all, `n_said_` bytes are said.
  std::vector<std::int64_t> window_;
  std::size_t n_context_ = 0, n_said_ = 0;
};

// The ids that end a generation, by the files beside the model: generation_config.json, else
// config.json (eos_token_id, a number or a list), else tokenizer_config.json (eos_token). Empty
// when none says. Throws TK0110, TK0111.
std::vector<std::int64_t> eos_ids(const std::filesystem::path& folder, const Tokenizer& tokenizer);

}  // namespace tk

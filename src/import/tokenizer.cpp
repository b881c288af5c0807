#include "import/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "import/added_tokens.h"
#include "import/bpe.h"
#include "import/json.h"
#include "import/tokenizer_parts.h"
#include "import/unicode.h"

namespace tk {
namespace {

constexpr std::size_t longest_text = 256ULL << 20;

// What a text may become on its way, in bytes. Byte-level doubles it at most, a metaspace is three
// bytes for one; a file that needs more is after something else.
std::size_t growth_limit(std::size_t text_size) { return 64 * text_size + (1U << 20); }

constexpr std::string_view replacement_character = "\xef\xbf\xbd";
// How many ids a TokenStream looks at. Text that does not become characters within so many ids is
// not going to.
constexpr std::size_t most_window = 64;

}  // namespace

struct Tokenizer::Parts {
  Bpe model;
  AddedTokens added;
  Normalizer normalizer;  // any of these may be empty
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;
};

Tokenizer Tokenizer::from_file(const std::filesystem::path& path) {
  const std::filesystem::path file =
      std::filesystem::is_directory(path) ? path / "tokenizer.json" : path;
  return parse(MappedFile::open(file)->text(), file.string());
}

Tokenizer Tokenizer::parse(std::string_view text, std::string_view file) {
  const json::Document document = json::parse(text, file);
  const json::Value root = document.root();
  auto parts = std::make_shared<Parts>(Parts{Bpe::read(root["model"]), {}, {}, {}, {}, {}});
  if (const auto v = root.find("normalizer")) parts->normalizer = read_normalizer(*v);
  if (const auto v = root.find("pre_tokenizer")) parts->pre_tokenizer = read_pre_tokenizer(*v);
  if (const auto v = root.find("post_processor")) parts->post_processor = read_post_processor(*v);
  if (const auto v = root.find("decoder")) parts->decoder = read_decoder(*v);
  if (const auto v = root.find("added_tokens"))
    parts->added = AddedTokens::read(*v, parts->model, parts->normalizer);
  return Tokenizer(std::move(parts));
}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  if (text.size() > longest_text)
    throw UserError("TK0603",
                    cat("a text of ", text.size(), " bytes; the limit is ", longest_text));
  const std::string valid = unicode::valid_utf8(text);
  Ids ids;
  // Words repeat: remember where in `ids` the result of each lies.
  struct Range {
    std::size_t begin, end;
  };
  std::unordered_map<std::string, Range> known;
  constexpr std::size_t longest_known = 128, most_known = 1U << 16;
  for (Stretch& stretch :
       parts_->added.split(valid, parts_->normalizer, growth_limit(valid.size()))) {
    if (stretch.id >= 0) {
      ids.push_back(stretch.id);
      continue;
    }
    std::vector<Piece> pieces;
    pieces.push_back({std::move(stretch.text), stretch.is_first});
    if (parts_->pre_tokenizer) parts_->pre_tokenizer(pieces);
    for (Piece& piece : pieces) {
      const auto found = known.find(piece.text);
      if (found != known.end()) {
        for (std::size_t i = found->second.begin; i < found->second.end; ++i) ids.push_back(ids[i]);
        continue;
      }
      const std::size_t begin = ids.size();
      parts_->model.encode(piece.text, ids);
      if (piece.text.size() <= longest_known && known.size() < most_known)
        known.emplace(std::move(piece.text), Range{begin, ids.size()});
    }
  }
  if (add_special && parts_->post_processor) ids = parts_->post_processor(std::move(ids));
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  std::size_t n_bytes = 0;
  for (std::int64_t id : ids) {
    std::optional<std::string> text = token(id);
    if (!text || (skip_special && parts_->added.is_special(*text))) continue;
    n_bytes += text->size() + 1;
    tokens.push_back(std::move(*text));
  }
  const std::string_view separator = parts_->decoder ? "" : " ";
  if (parts_->decoder) tokens = parts_->decoder(std::move(tokens), growth_limit(n_bytes));
  std::string out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += separator;
    out += tokens[i];
  }
  return out;
}

std::int64_t Tokenizer::size() const {
  const std::int64_t of_model = parts_->model.size() == 0 ? -1 : parts_->model.max_id();
  return std::max(of_model, parts_->added.max_id()) + 1;
}

std::optional<std::int64_t> Tokenizer::id_of(std::string_view token) const {
  if (const AddedToken* added = parts_->added.find(token)) return added->id;
  if (const auto id = parts_->model.id_of(token)) return *id;
  return std::nullopt;
}

std::optional<std::string> Tokenizer::token(std::int64_t id) const {
  if (const AddedToken* added = parts_->added.find(id)) return added->text;
  if (const std::string* text = parts_->model.token(id)) return *text;
  return std::nullopt;
}

bool Tokenizer::is_special(std::int64_t id) const {
  const auto text = token(id);
  return text && parts_->added.is_special(*text);
}

std::string TokenStream::push(std::int64_t id) {
  const bool silent = !tokenizer_.token(id) || (skip_special_ && tokenizer_.is_special(id));
  if (silent) return "";
  window_.push_back(id);
  return take(false);
}

std::string TokenStream::finish() {
  std::string rest = take(true);
  window_.clear();
  n_context_ = n_said_ = 0;
  return rest;
}

// What can be said now: all but what ends in a cut character, which shows as U+FFFD.
std::string TokenStream::take(bool all) {
  const std::string text = tokenizer_.decode(window_, skip_special_);
  std::string_view sayable = text;
  const bool is_cut = sayable.ends_with(replacement_character);
  const bool is_long = window_.size() >= most_window;
  while (!all && !is_long && sayable.ends_with(replacement_character))
    sayable.remove_suffix(replacement_character.size());
  // A later id may have changed what was said (bytes that are no text yet): go on at a character.
  std::size_t at = std::min(n_said_, sayable.size());
  while (at < sayable.size() && (static_cast<unsigned char>(sayable[at]) & 0xc0U) == 0x80U) ++at;
  std::string added(sayable.substr(at));
  if (!added.empty()) n_said_ = sayable.size();
  if (is_cut && is_long) {
    window_.clear();
    n_context_ = n_said_ = 0;
  } else if (!is_cut && (!added.empty() || is_long)) {
    window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(n_context_));
    n_context_ = window_.size();
    n_said_ = tokenizer_.decode(window_, skip_special_).size();
  }
  return added;
}

std::vector<std::int64_t> eos_ids(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::filesystem::path file = folder / name;
    if (!std::filesystem::exists(file)) continue;
    const json::Document document = json::parse(MappedFile::open(file)->text(), file.string());
    const auto eos = document.root().find("eos_token_id");
    if (!eos) continue;
    if (eos->is_array()) return json::integers(*eos);
    return {eos->integer()};
  }
  const std::filesystem::path file = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(file)) return {};
  const json::Document document = json::parse(MappedFile::open(file)->text(), file.string());
  const auto eos = document.root().find("eos_token");
  if (!eos) return {};
  const auto id = tokenizer.id_of(eos->is_object() ? (*eos)["content"].string() : eos->string());
  if (!id) return {};
  return {*id};
}

}  // namespace tk

#include "import/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "base/error.h"
#include "import/tokenizer_parts.h"
#include "import/unicode.h"

namespace tk {
namespace {

constexpr std::int64_t largest_id = (1LL << 31) - 2;

std::uint64_t key_of(std::uint32_t left, std::uint32_t right) {
  return (static_cast<std::uint64_t>(left) << 32U) | right;
}

UserError wrong_model(const json::Value& value, std::string_view wrong) {
  return UserError("TK0602", cat(value.path(), " ", wrong)).at(value.file());
}

// "a b", or ["a", "b"] since a token may hold a space.
std::pair<std::string_view, std::string_view> read_pair(const json::Value& merge) {
  if (merge.is_string()) {
    const std::string_view text = merge.string();
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      throw merge.error("should be two tokens with one space between them");
    return {text.substr(0, space), text.substr(space + 1)};
  }
  std::vector<std::string_view> pair;
  for (const json::Value& token : merge.elements()) pair.push_back(token.string());
  if (pair.size() != 2) throw merge.error(cat("should be two tokens, and has ", pair.size()));
  return {pair[0], pair[1]};
}

// A symbol of the word, in a list that closes over what was merged away.
struct Symbol {
  std::uint32_t id;
  std::int32_t previous, next;  // -1 at the ends
  bool merged_away;
};

struct Candidate {
  std::uint32_t rank, position, id;
};
// The best rank first; of equals the leftmost.
struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  }
};

}  // namespace

MergeTable::MergeTable(std::size_t n_merges) : slots_(std::bit_ceil(2 * n_merges + 1)) {}

std::size_t MergeTable::slot_of(std::uint64_t key) const {
  const std::size_t mask = slots_.size() - 1;
  std::uint64_t h =
      key * 0x9e3779b97f4a7c15ULL;  // Fibonacci hashing; the high bits are the good ones
  std::size_t i = (h >> 20U) & mask;
  while (slots_[i].key != empty && slots_[i].key != key) i = (i + 1) & mask;
  return i;
}

void MergeTable::set(std::uint32_t left, std::uint32_t right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  slots_[slot_of(key)] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(std::uint32_t left, std::uint32_t right) const {
  const Slot& slot = slots_[slot_of(key_of(left, right))];
  return slot.key == empty ? nullptr : &slot.merge;
}

Bpe Bpe::read(const json::Value& model) {
  // Files of before 2020 do not name the type; theirs have merges.
  const std::string_view type =
      json::string_or(model, "type", model.find("merges") ? "BPE" : "of no type");
  if (type != "BPE") throw not_read(model, cat("a tokenizer of the kind ", type, " (not BPE)"));
  if (json::number_or(model, "dropout", 0) != 0)
    throw not_read(model["dropout"], "a tokenizer that drops merges at random");
  Bpe bpe;
  bpe.prefix_ = json::string_or(model, "continuing_subword_prefix", "");
  bpe.suffix_ = json::string_or(model, "end_of_word_suffix", "");
  bpe.fuse_unknown_ = json::boolean_or(model, "fuse_unk", false);
  bpe.byte_fallback_ = json::boolean_or(model, "byte_fallback", false);
  bpe.ignore_merges_ = json::boolean_or(model, "ignore_merges", false);
  bpe.read_vocabulary(model["vocab"]);
  bpe.read_merges(model["merges"]);
  if (const auto unknown = model.find("unk_token")) {
    bpe.unknown_ = bpe.id_of(unknown->string());
    if (!bpe.unknown_) throw wrong_model(*unknown, "is not in the vocabulary");
  }
  constexpr std::string_view digits = "0123456789ABCDEF";
  for (std::size_t b = 0; bpe.byte_fallback_ && b < 256; ++b)
    bpe.bytes_[b] = bpe.id_of(cat("<0x", digits[b / 16], digits[b % 16], ">"));
  return bpe;
}

void Bpe::read_vocabulary(const json::Value& vocabulary) {
  const std::size_t n = vocabulary.size();
  tokens_.reserve(n);
  ids_.reserve(n);
  by_id_.reserve(n);
  for (const json::Member& member : vocabulary.members()) {
    const std::int64_t id = member.value.integer();
    if (id < 0 || id > largest_id)
      throw wrong_model(member.value, cat("is the id ", id, "; ids go from 0 to ", largest_id));
    tokens_.emplace_back(member.name);
    // Of a name that is there twice, and of an id, the last counts.
    ids_[tokens_.back()] = static_cast<std::uint32_t>(id);
    by_id_[static_cast<std::uint32_t>(id)] = tokens_.size() - 1;
    max_id_ = std::max(max_id_, static_cast<std::uint32_t>(id));
  }
}

void Bpe::read_merges(const json::Value& merges) {
  merges_ = MergeTable(merges.size());
  std::uint32_t rank = 0;
  std::string merged;
  auto id = [&](const json::Value& merge, std::string_view token) {
    const auto found = id_of(token);
    if (!found)
      throw wrong_model(merge, cat("needs the token '", token.substr(0, 100),
                                   "', which is not in the vocabulary"));
    return *found;
  };
  for (const json::Value& merge : merges.elements()) {
    if (merge.is_string() && merge.string().starts_with("#version")) continue;
    const auto [left, right] = read_pair(merge);
    if (right.size() < prefix_.size())
      throw wrong_model(merge, cat("has a right side shorter than the prefix '", prefix_, "'"));
    merged.assign(left).append(right.substr(prefix_.size()));
    merges_.set(id(merge, left), id(merge, right), {rank++, id(merge, merged)});
  }
}

std::optional<std::uint32_t> Bpe::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Bpe::token(std::int64_t id) const {
  if (id < 0 || id > largest_id) return nullptr;
  const auto found = by_id_.find(static_cast<std::uint32_t>(id));
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

// The ids of the single characters. One that is not in the vocabulary becomes its bytes, or else
// the unknown token (one for a run of them, when fused), or else nothing.
std::vector<std::uint32_t> Bpe::characters(std::string_view word) const {
  std::vector<std::uint32_t> out;
  out.reserve(word.size());
  bool pending = false;  // an unknown token that may still grow; it stands before what comes next
  auto flush = [&] {
    if (pending) out.push_back(*unknown_);
    pending = false;
  };
  std::string decorated;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t begin = at;
    unicode::next(word, at);
    const bool first = begin == 0, last = at == word.size();
    std::string_view character = word.substr(begin, at - begin);
    if ((!first && !prefix_.empty()) || (last && !suffix_.empty())) {
      decorated = cat(first ? "" : prefix_, character, last ? suffix_ : "");
      character = decorated;
    }
    if (const auto id = id_of(character)) {
      flush();
      out.push_back(*id);
      continue;
    }
    if (byte_fallback_) {
      std::vector<std::uint32_t> ids;
      for (char c : character)
        if (const auto id = bytes_[static_cast<unsigned char>(c)]) ids.push_back(*id);
      if (ids.size() == character.size()) {
        // The reference does not flush here: an unknown before bytes comes after them.
        out.insert(out.end(), ids.begin(), ids.end());
        continue;
      }
    }
    if (!unknown_) continue;
    if (!fuse_unknown_) flush();
    pending = true;
  }
  flush();
  return out;
}

void Bpe::encode(std::string_view word, std::vector<std::int64_t>& out) const {
  if (word.empty()) return;
  if (ignore_merges_)
    if (const auto id = id_of(word)) {
      out.push_back(*id);
      return;
    }
  const std::vector<std::uint32_t> ids = characters(word);
  const auto n = static_cast<std::int32_t>(ids.size());
  std::vector<Symbol> symbols;
  symbols.reserve(ids.size());
  for (std::int32_t i = 0; i < n; ++i)
    symbols.push_back({ids[static_cast<std::size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1, false});
  auto symbol = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };

  std::vector<Candidate> first;
  auto candidate = [&](std::int32_t left, auto&& take) {
    const Symbol& s = symbol(left);
    if (s.next < 0) return;
    if (const auto* merge = merges_.find(s.id, symbol(s.next).id))
      take(Candidate{merge->rank, static_cast<std::uint32_t>(left), merge->id});
  };
  for (std::int32_t i = 0; i < n; ++i)
    candidate(i, [&](const Candidate& c) { first.push_back(c); });
  std::priority_queue<Candidate, std::vector<Candidate>, Later> queue(Later{}, std::move(first));

  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const auto left = static_cast<std::int32_t>(top.position);
    Symbol& s = symbol(left);
    if (s.merged_away || s.next < 0) continue;
    const std::int32_t right = s.next;
    // Either side may have changed since the candidate was made.
    const auto* merge = merges_.find(s.id, symbol(right).id);
    if (merge == nullptr || merge->id != top.id) continue;
    s.id = top.id;
    s.next = symbol(right).next;
    symbol(right).merged_away = true;
    if (s.next >= 0) symbol(s.next).previous = left;
    auto push = [&](const Candidate& c) { queue.push(c); };
    if (s.previous >= 0) candidate(s.previous, push);
    candidate(left, push);
  }
  for (const Symbol& s : symbols)
    if (!s.merged_away) out.push_back(s.id);
}

}  // namespace tk

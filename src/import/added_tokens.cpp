#include "import/added_tokens.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "import/unicode.h"

namespace tk {
namespace {

// Looking for a token may compare its whole length at every place of the text.
constexpr std::size_t longest_content = 4096;
constexpr std::size_t most_normalized = 16 * longest_content;

std::size_t spaces_end(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t after = at;
    if (!unicode::is_space(unicode::next(text, after))) break;
    at = after;
  }
  return at;
}
std::size_t spaces_begin(std::string_view text, std::size_t at) {
  while (at > 0) {
    std::size_t before = at;
    if (!unicode::is_space(unicode::previous(text, before))) break;
    at = before;
  }
  return at;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  if (end < text.size()) {
    std::size_t at = end;
    if (unicode::is_word(unicode::next(text, at))) return false;
  }
  return begin == 0 || !unicode::is_word(unicode::previous(text, begin));
}

AddedToken read_token(const json::Value& value) {
  AddedToken token;
  token.content = value["content"].string();
  token.special = json::boolean_or(value, "special", false);
  token.single_word = json::boolean_or(value, "single_word", false);
  token.lstrip = json::boolean_or(value, "lstrip", false);
  token.rstrip = json::boolean_or(value, "rstrip", false);
  token.normalized = json::boolean_or(value, "normalized", !token.special);
  if (token.content.size() > longest_content)
    throw UserError("TK0602", cat(value.path(), " is an added token of ", token.content.size(),
                                  " bytes; the limit is ", longest_content))
        .at(value.file());
  return token;
}

}  // namespace

PatternSet::PatternSet(std::vector<std::pair<std::string, std::size_t>> patterns)
    : patterns_(std::move(patterns)), by_first_(256) {
  std::erase_if(patterns_, [](const auto& p) { return p.first.empty(); });
  std::stable_sort(patterns_.begin(), patterns_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  patterns_.erase(std::unique(patterns_.begin(), patterns_.end(), same), patterns_.end());
  // std::string orders bytes as unsigned, so that each first byte has one range.
  for (std::uint32_t i = 0; i < patterns_.size(); ++i) {
    auto& range = by_first_[static_cast<unsigned char>(patterns_[i].first.front())];
    if (range.second == 0) range.first = i;
    range.second = i + 1;
  }
}

bool PatternSet::find(std::string_view text, std::size_t from, Found* found) const {
  if (patterns_.empty()) return false;
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    auto [low, high] = by_first_[static_cast<unsigned char>(text[begin])];
    bool any = false;
    // All of [low, high) begin with text[begin, begin + n).
    for (std::size_t n = 1; low < high; ++n) {
      if (patterns_[low].first.size() == n) {
        *found = {begin, begin + n, patterns_[low].second};
        any = true;
        ++low;
      }
      if (low == high || begin + n == text.size()) break;
      const auto c = static_cast<unsigned char>(text[begin + n]);
      const auto first = patterns_.begin() + low, last = patterns_.begin() + high;
      auto byte = [n](const auto& p) { return static_cast<unsigned char>(p.first[n]); };
      low = static_cast<std::uint32_t>(
          std::partition_point(first, last, [&](const auto& p) { return byte(p) < c; }) -
          patterns_.begin());
      high = static_cast<std::uint32_t>(
          std::partition_point(first, last, [&](const auto& p) { return byte(p) <= c; }) -
          patterns_.begin());
    }
    if (any) return true;
  }
  return false;
}

AddedTokens AddedTokens::read(const json::Value& list, const Bpe& model,
                              const Normalizer& normalizer) {
  AddedTokens out;
  for (const json::Value& value : list.elements()) {
    AddedToken token = read_token(value);
    if (token.content.empty()) continue;
    const std::int64_t n_model = static_cast<std::int64_t>(model.size());
    if (const auto id = model.id_of(token.content)) {
      token.id = *id;
    } else if (const AddedToken* known = out.find(token.content)) {
      token.id = known->id;
    } else {
      const std::int64_t highest = out.max_id();
      token.id = highest >= n_model || (n_model == 0 && highest >= 0) ? highest + 1 : n_model;
    }
    token.text =
        token.normalized && normalizer ? normalizer(token.content, most_normalized) : token.content;
    if (token.special) out.special_.insert(token.content);
    const auto [place, is_new] = out.by_id_.emplace(token.id, out.tokens_.size());
    if (is_new) {
      out.by_content_[token.content] = out.tokens_.size();
      out.tokens_.push_back(std::move(token));
    } else {  // the last of an id counts
      out.by_content_[token.content] = place->second;
      out.tokens_[place->second] = std::move(token);
    }
  }
  std::vector<std::pair<std::string, std::size_t>> written, normalized;
  for (std::size_t i = 0; i < out.tokens_.size(); ++i) {
    const AddedToken& token = out.tokens_[i];
    (token.normalized ? normalized : written).emplace_back(token.text, i);
  }
  out.as_written_ = PatternSet(std::move(written));
  out.after_normalizing_ = PatternSet(std::move(normalized));
  return out;
}

void AddedTokens::cut(std::string_view text, bool is_first, const PatternSet& patterns,
                      const std::function<void(Stretch)>& take) const {
  std::size_t done = 0;
  auto take_text = [&](std::size_t end) {
    if (done < end) take({std::string(text.substr(done, end - done)), -1, is_first && done == 0});
  };
  PatternSet::Found found{};
  for (std::size_t from = 0; patterns.find(text, from, &found); from = found.end) {
    const AddedToken& token = tokens_[found.index];
    if (token.single_word && !stands_alone(text, found.begin, found.end)) continue;
    std::size_t begin = found.begin, end = found.end;
    // Spaces that the token before took are taken.
    if (token.lstrip) begin = std::max(spaces_begin(text, begin), done);
    if (token.rstrip) end = spaces_end(text, end);
    take_text(begin);
    take({std::string(), token.id, false});
    done = end;
  }
  take_text(text.size());
}

std::vector<Stretch> AddedTokens::split(std::string_view text, const Normalizer& normalizer,
                                        std::size_t limit) const {
  std::vector<Stretch> out;
  cut(text, true, as_written_, [&](Stretch stretch) {
    if (stretch.id >= 0) {
      out.push_back(std::move(stretch));
      return;
    }
    if (normalizer) stretch.text = normalizer(std::move(stretch.text), limit);
    cut(stretch.text, stretch.is_first, after_normalizing_,
        [&](Stretch part) { out.push_back(std::move(part)); });
  });
  return out;
}

const AddedToken* AddedTokens::find(std::int64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}
const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}
bool AddedTokens::is_special(std::string_view content) const {
  return special_.contains(std::string(content));
}
std::int64_t AddedTokens::max_id() const {
  std::int64_t max = -1;
  for (const AddedToken& token : tokens_) max = std::max(max, token.id);
  return max;
}

}  // namespace tk

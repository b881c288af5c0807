#include "timeline/strings.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace tk {

namespace {

// Sixteen bytes a step, by one wide product. Not against malice: an attacker gains a slow run.
std::uint64_t hash_of(std::string_view text) {
  constexpr std::uint64_t a = 0x9E3779B97F4A7C15ull, b = 0xE7037ED1A0B428DBull;
  auto product = [](std::uint64_t x, std::uint64_t y) {
    const auto p = static_cast<unsigned __int128>(x) * y;
    return static_cast<std::uint64_t>(p) ^ static_cast<std::uint64_t>(p >> 64);
  };
  auto word = [](const char* from) {
    std::uint64_t w;
    std::memcpy(&w, from, 8);
    return w;
  };
  const char* p = text.data();
  std::size_t n = text.size();
  std::uint64_t h = n * a;
  if (n >= 16) {
    const char* const tail = p + n - 16;  // overlaps what came before it
    for (; n > 16; p += 16, n -= 16) h = product(word(p) ^ a, word(p + 8) ^ h);
    h = product(word(tail) ^ b, word(tail + 8) ^ h);
  } else if (n >= 8) {
    h = product(word(p) ^ a, word(p + n - 8) ^ h);
  } else {
    std::uint64_t w = 0;
    if (n) std::memcpy(&w, p, n);
    h = product(w ^ a, h ^ b);
  }
  return h | 1;
}

}  // namespace

bool is_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

std::string valid_utf8(std::string_view text) {
  if (is_utf8(text)) return std::string(text);
  std::string out;
  out.reserve(text.size() + 8);
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t n = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (n && i + n <= text.size() && is_utf8(text.substr(i, n))) {
      out.append(text, i, n);
      i += n;
    } else {
      out += "\xEF\xBF\xBD";
      ++i;
    }
  }
  return out;
}

StringPool::StringPool() : slots_(1024), texts_(1) {}

std::string_view StringPool::store(std::string_view text) {
  if (text.size() > block_left_) {
    const std::size_t size = std::max<std::size_t>(text.size(), 64 << 10);
    blocks_.push_back(std::make_unique<char[]>(size));
    block_at_ = blocks_.back().get();
    block_left_ = size;
  }
  std::copy(text.begin(), text.end(), block_at_);
  std::string_view kept(block_at_, text.size());
  block_at_ += text.size();
  block_left_ -= text.size();
  return kept;
}

void StringPool::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (!slot.id) continue;
    std::size_t at = slot.hash & mask;
    while (slots_[at].id) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

StringId StringPool::find(std::string_view text) const {
  if (text.empty()) return 0;
  const std::uint64_t hash = hash_of(text);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask; slots_[at].id; at = (at + 1) & mask)
    if (slots_[at].hash == hash && texts_[slots_[at].id] == text) return slots_[at].id;
  return 0;
}

StringId StringPool::add(std::string_view text) {
  if (text.empty()) return 0;
  const std::uint64_t hash = hash_of(text);
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  for (; slots_[at].id; at = (at + 1) & mask)
    if (slots_[at].hash == hash && texts_[slots_[at].id] == text) return slots_[at].id;
  if (!is_utf8(text)) {
    ++repaired_;
    return add(valid_utf8(text));
  }
  const auto id = static_cast<StringId>(texts_.size());
  TK_CHECK(texts_.size() < 0xFFFFFFFFu);
  texts_.push_back(store(text));
  slots_[at] = {hash, id};
  if (texts_.size() * 2 > slots_.size()) grow();
  return id;
}

}  // namespace tk

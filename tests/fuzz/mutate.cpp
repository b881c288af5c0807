#include "mutate.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>

namespace tk::fuzz {
namespace {

using Mutation = void (*)(std::string& text, const std::string& other, Random& random);

// A stretch to work on: mostly short, now and then anything.
struct Chunk {
  std::size_t begin, size;
};
Chunk chunk_of(const std::string& text, Random& random) {
  const std::size_t begin = random.below(text.size());
  const std::size_t most = text.size() - begin;
  const std::size_t size =
      random.chance(4) ? random.below(most) : random.below(std::min<std::size_t>(most, 64));
  return {begin, size};
}

void flip_bits(std::string& text, const std::string&, Random& random) {
  for (std::size_t n = 1 + random.below(4); n > 0 && !text.empty(); --n)
    text[random.below(text.size())] ^= static_cast<char>(1U << random.below(8));
}

void set_bytes(std::string& text, const std::string&, Random& random) {
  constexpr char values[] = {0, -1, 127, -128, 1, ' ', '"', '{', '[', '\\', '9', '-'};
  for (std::size_t n = 1 + random.below(4); n > 0 && !text.empty(); --n)
    text[random.below(text.size())] =
        random.chance(3) ? static_cast<char>(random.next()) : values[random.below(sizeof values)];
}

void truncate(std::string& text, const std::string&, Random& random) {
  if (random.chance(2))
    text.resize(random.below(text.size() + 1));
  else
    text.resize(text.size() - std::min(text.size(), random.below(40)));
}

void extend(std::string& text, const std::string&, Random& random) {
  text.append(random.below(64), static_cast<char>(random.next()));
}

void erase_chunk(std::string& text, const std::string&, Random& random) {
  const Chunk c = chunk_of(text, random);
  text.erase(c.begin, c.size);
}

void repeat_chunk(std::string& text, const std::string&, Random& random) {
  const Chunk c = chunk_of(text, random);
  text.insert(random.chance(2) ? c.begin : random.below(text.size() + 1),
              text.substr(c.begin, c.size));
}

void overwrite_chunk(std::string& text, const std::string& other, Random& random) {
  const Chunk c = chunk_of(other, random);
  const std::size_t at = random.below(text.size());
  text.replace(at, std::min(c.size, text.size() - at), other, c.begin, c.size);
}

void splice(std::string& text, const std::string& other, Random& random) {
  text =
      text.substr(0, random.below(text.size() + 1)) + other.substr(random.below(other.size() + 1));
}

// A number of 2, 4 or 8 bytes becomes a border case, or one that is nearly right.
void edit_integer(std::string& text, const std::string&, Random& random) {
  const std::size_t width = std::size_t{2} << random.below(3);
  if (text.size() < width) return;
  const std::size_t at = random.below(text.size() - width + 1);
  std::uint64_t value = 0;
  std::memcpy(&value, text.data() + at, width);
  const std::uint64_t borders[] = {
      0,          1,           ~0ULL,          0x7fffffffffffffffULL,
      0x7fffffff, 0x80000000U, text.size(),    text.size() + 1,
      value + 1,  value - 1,   value * 2,      value + text.size(),
      0xffff,     at,          ~0ULL - at + 1, 1ULL << random.below(64)};
  value = borders[random.below(std::size(borders))];
  std::memcpy(text.data() + at, &value, width);
}

// The tokens of something like JSON: strings, and runs of what else a value is made of.
std::vector<Chunk> tokens_of(const std::string& text, Random& random) {
  // Long texts are looked at from a random place on: this is called for every mutation.
  constexpr std::size_t most = 20000;
  std::vector<Chunk> tokens;
  const std::size_t start = text.size() > most ? random.below(text.size() - most) : 0;
  const std::size_t end = std::min(text.size(), start + most);
  for (std::size_t at = start; at < end;) {
    const std::size_t begin = at;
    if (text[at] == '"') {
      ++at;
      while (at < end && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
      at = std::min(at + 1, end);
      tokens.push_back({begin, at - begin});
    } else if (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '-') {
      while (at < end &&
             (std::isalnum(static_cast<unsigned char>(text[at])) != 0 ||
              std::strchr("+-.", text[at]) != nullptr) &&
             text[at] != '\0')
        ++at;
      tokens.push_back({begin, at - begin});
    } else {
      ++at;
    }
  }
  return tokens;
}

void replace_token(std::string& text, const std::string&, Random& random) {
  constexpr std::string_view values[] = {"0",
                                         "-1",
                                         "1",
                                         "2",
                                         "3",
                                         "7",
                                         "64",
                                         "255",
                                         "-9223372036854775808",
                                         "9223372036854775807",
                                         "18446744073709551615",
                                         "4294967296",
                                         "2147483647",
                                         "1e308",
                                         "0.5",
                                         "null",
                                         "true",
                                         "false",
                                         "\"\"",
                                         "\"a\"",
                                         "\" \"",
                                         "\"\\u0000\"",
                                         "\"\\u2581\"",
                                         "[]",
                                         "{}",
                                         "[[]]",
                                         "{\"a\":{}}",
                                         "\"F32\"",
                                         "\"<unk>\"",
                                         "\".*\"",
                                         "\"(a|b)*\"",
                                         "\"(a+)+$\"",
                                         "\"\\\\s+\"",
                                         "[0,0]"};
  const std::vector<Chunk> tokens = tokens_of(text, random);
  if (tokens.empty()) return;
  const Chunk c = tokens[random.below(tokens.size())];
  text.replace(c.begin, c.size, values[random.below(std::size(values))]);
}

void copy_token(std::string& text, const std::string&, Random& random) {
  const std::vector<Chunk> tokens = tokens_of(text, random);
  if (tokens.empty()) return;
  const Chunk from = tokens[random.below(tokens.size())], to = tokens[random.below(tokens.size())];
  text.replace(to.begin, to.size, text.substr(from.begin, from.size));
}

// A digit more or less, or another.
void edit_digit(std::string& text, const std::string&, Random& random) {
  const std::size_t at = text.find_first_of("0123456789", random.below(text.size() + 1));
  if (at == std::string::npos) return;
  const char digit = static_cast<char>('0' + random.below(10));
  if (random.chance(3))
    text.insert(at, 1, digit);
  else if (random.chance(3))
    text.erase(at, 1);
  else
    text[at] = digit;
}

// From one bracket to one that closes, taken out or said twice.
void edit_group(std::string& text, const std::string&, Random& random) {
  const std::size_t begin = text.find_first_of("{[", random.below(text.size() + 1));
  if (begin == std::string::npos) return;
  int depth = 0;
  std::size_t end = begin;
  while (end < text.size()) {
    const char c = text[end++];
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    if (depth == 0) break;
  }
  const std::string group = text.substr(begin, end - begin);
  if (random.chance(2))
    text.replace(begin, group.size(), random.chance(2) ? "[]" : "{}");
  else
    text.insert(begin, group + ",");
}

void nest(std::string& text, const std::string&, Random& random) {
  const std::size_t depth = 1 + random.below(random.chance(10) ? 2000 : 20);
  text.insert(random.below(text.size() + 1), std::string(depth, random.chance(2) ? '[' : '{'));
}

constexpr Mutation of_bytes[] = {flip_bits,    set_bytes,    truncate,        extend,
                                 erase_chunk,  repeat_chunk, overwrite_chunk, splice,
                                 edit_integer, edit_integer, edit_integer,    replace_token};
constexpr Mutation of_json[] = {replace_token, replace_token, replace_token, copy_token,
                                copy_token,    edit_digit,    edit_digit,    edit_group,
                                edit_group,    nest,          repeat_chunk,  set_bytes};

// Most mutants of JSON should still be JSON: what is behind the parser is what is ours.
Mutation choose(const std::string& text, Random& random) {
  const bool is_json = text.front() == '{' && !random.chance(8);
  return is_json ? of_json[random.below(std::size(of_json))]
                 : of_bytes[random.below(std::size(of_bytes))];
}

}  // namespace

std::uint64_t Random::next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31U);
}

std::string mutated(const std::vector<std::string>& seeds, Random& random) {
  std::size_t longest = 0;
  for (const std::string& seed : seeds) longest = std::max(longest, seed.size());
  std::string text = seeds[random.below(seeds.size())];
  // One mutation reaches deepest, more find what needs two.
  for (std::size_t n = random.chance(2) ? 1 : 1 + random.below(8); n > 0 && !text.empty(); --n)
    choose(text, random)(text, seeds[random.below(seeds.size())], random);
  text.resize(std::min(text.size(), 2 * longest + 4096));
  return text;
}

}  // namespace tk::fuzz

#include "import/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <array>
#include <cstdint>

#include "base/error.h"

namespace tk::unicode {
namespace {

// The tokenizers package normalizes by tables of Unicode 9 (measured over all code points), and ids
// are to be the same: later characters are left as they are.
constexpr int tables_of = 9;

UChar32 icu(char32_t c) { return static_cast<UChar32>(c); }
bool in_categories(char32_t c, std::uint32_t mask) { return (U_GET_GC_MASK(icu(c)) & mask) != 0; }

// The length of the sequence that a lead byte announces, 0 when it is none.
std::size_t announced(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0;
  if (lead < 0xe0) return 2;
  if (lead < 0xf0) return 3;
  return lead < 0xf5 ? 4 : 0;
}

// May `second` follow `lead`? Overlong forms, surrogates and numbers past U+10FFFF may not.
bool follows(unsigned char lead, unsigned char second) {
  const unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  return second >= low && second <= high;
}

// How many bytes at `at` belong together; `good` tells whether they are a character.
std::size_t sequence(std::string_view bytes, std::size_t at, bool* good) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const std::size_t n = announced(byte(at));
  *good = n == 1;
  if (n <= 1) return 1;
  std::size_t i = 1;
  while (i < n && at + i < bytes.size() &&
         (i == 1 ? follows(byte(at), byte(at + 1)) : (byte(at + i) & 0xc0U) == 0x80U))
    ++i;
  *good = i == n;
  return i;
}

struct ByteTable {
  std::array<char32_t, 256> character{};
  std::array<int, 0x144> byte{};  // -1 where the character stands for none
};

const ByteTable& byte_table() {
  static const ByteTable table = [] {
    ByteTable t;
    t.byte.fill(-1);
    char32_t extra = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
      const char32_t c = printable ? static_cast<char32_t>(b) : extra++;
      t.character[static_cast<std::size_t>(b)] = c;
      t.byte.at(c) = b;
    }
    return t;
  }();
  return table;
}

}  // namespace

std::string valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    bool good = false;
    const std::size_t n = sequence(bytes, at, &good);
    if (good)
      out.append(bytes.substr(at, n));
    else
      out.append("\xef\xbf\xbd");
    at += n;
  }
  return out;
}

char32_t next(std::string_view text, std::size_t& at) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at++);
  if (lead < 0x80) return lead;
  const int n = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
  TK_CHECK(at + static_cast<std::size_t>(n) <= text.size());
  char32_t c = lead & (0x3fU >> n);
  for (int i = 0; i < n; ++i) c = (c << 6U) | (byte(at++) & 0x3fU);
  return c;
}

char32_t previous(std::string_view text, std::size_t& at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U);
  std::size_t here = at;
  return next(text, here);
}

void append(std::string& out, char32_t c) {
  auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0U | (c >> 6U));
    put(0x80U | (c & 0x3fU));
  } else if (c < 0x10000) {
    put(0xe0U | (c >> 12U));
    put(0x80U | ((c >> 6U) & 0x3fU));
    put(0x80U | (c & 0x3fU));
  } else {
    put(0xf0U | (c >> 18U));
    put(0x80U | ((c >> 12U) & 0x3fU));
    put(0x80U | ((c >> 6U) & 0x3fU));
    put(0x80U | (c & 0x3fU));
  }
}

std::string to_utf8(char32_t c) {
  std::string out;
  append(out, c);
  return out;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return u_isUWhiteSpace(icu(c)) != 0;
}
bool is_numeric(char32_t c) { return in_categories(c, U_GC_N_MASK); }
bool is_mark(char32_t c) {
  if (c == 0x1cf2 || c == 0x1cf3) return true;  // were marks in Unicode 9,
  if (c == 0x111c9) return false;               // was none
  UVersionInfo age{};
  u_charAge(icu(c), age);
  return in_categories(c, U_GC_M_MASK) && age[0] <= tables_of;
}
bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > 0x20 && c != 0x7f && u_isalnum(icu(c)) == 0;
  return in_categories(c, U_GC_P_MASK);
}
bool is_word(char32_t c) {
  return u_isUAlphabetic(icu(c)) != 0 ||
         in_categories(c, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK) ||
         u_hasBinaryProperty(icu(c), UCHAR_JOIN_CONTROL) != 0;
}

std::string normalize(std::string_view text, Form form) {
  using icu::Normalizer2;
  UErrorCode error = U_ZERO_ERROR;
  const Normalizer2* whole = form == Form::nfc    ? Normalizer2::getNFCInstance(error)
                             : form == Form::nfd  ? Normalizer2::getNFDInstance(error)
                             : form == Form::nfkc ? Normalizer2::getNFKCInstance(error)
                                                  : Normalizer2::getNFKDInstance(error);
  static const icu::UnicodeSet known = [] {
    UErrorCode e = U_ZERO_ERROR;
    icu::UnicodeSet set(icu::UnicodeString::fromUTF8(cat("[:age=", tables_of, ":]")), e);
    TK_CHECK(U_SUCCESS(e), u_errorName(e));
    set.freeze();
    return set;
  }();
  TK_CHECK(U_SUCCESS(error), u_errorName(error));
  const icu::FilteredNormalizer2 normalizer(*whole, known);
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  normalizer.normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())),
                           sink, nullptr, error);
  TK_CHECK(U_SUCCESS(error), u_errorName(error));
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next(text, at);
    if (c == 0x130)
      out += "i\xcc\x87";  // the one code point whose lower case is two
    else
      append(out, static_cast<char32_t>(u_tolower(icu(c))));
  }
  return out;
}

std::string bytes_to_characters(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (char c : bytes) append(out, byte_table().character[static_cast<unsigned char>(c)]);
  return out;
}

bool characters_to_bytes(std::string_view text, std::string* bytes) {
  bytes->clear();
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next(text, at);
    const int byte = c < byte_table().byte.size() ? byte_table().byte[c] : -1;
    if (byte < 0) return false;
    *bytes += static_cast<char>(byte);
  }
  return true;
}

}  // namespace tk::unicode

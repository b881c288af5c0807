#include "timeline/decimal.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace tk {

namespace {

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

bool same_letters(std::string_view text, std::string_view upper) {
  if (text.size() != upper.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= 'a' && c <= 'z' ? c - 32 : c) != upper[i]) return false;
  }
  return true;
}

// Eight digits at once; false if one of the bytes is none. For little endian.
bool eight_digits(const char* p, std::uint64_t& value) {
  std::uint64_t v;
  std::memcpy(&v, p, 8);
  v ^= 0x3030303030303030;  // digits become 0 to 9
  if (((v + 0x7676767676767676) | v) & 0x8080808080808080) return false;
  v = v * 10 + (v >> 8);  // pairs in every second byte
  value = (((v & 0x000000FF000000FF) * 0x000F424000000064) +
           (((v >> 16) & 0x000000FF000000FF) * 0x0000271000000001)) >>
          32;
  return true;
}

// "1790000000001000.761", as every profiler writes a time: false for anything else.
bool usual_time_to_ns(std::string_view text, std::int64_t& ns) {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t high, low;
  if (text.size() < 20 || text[16] != '.' || !eight_digits(text.data(), high) ||
      !eight_digits(text.data() + 8, low))
    return false;
  const unsigned a = static_cast<unsigned char>(text[17]) - '0',
                 b = static_cast<unsigned char>(text[18]) - '0',
                 c = static_cast<unsigned char>(text[19]) - '0';
  if (a > 9 || b > 9 || c > 9) return false;
  for (std::size_t i = 20; i < text.size(); ++i)
    if (text[i] != '\t' && text[i] != ' ') return false;
  ns = static_cast<std::int64_t>((high * 100000000 + low) * 1000 + a * 100 + b * 10 + c);
  return ns >= 0;
}

// Any decimal number, digit by digit.
std::optional<std::int64_t> any_decimal_us_to_ns(std::string_view text) {
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max();
  std::uint64_t value = 0;
  int decimals = 0;  // digits taken after the point
  int ignored = 0;   // whole digits that did not fit
  bool digits = false, point = false, round_up = false, first_cut = true;
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.') {
      if (point) return {};
      point = true;
      continue;
    }
    if (c < '0' || c > '9') break;
    digits = true;
    const auto d = static_cast<std::uint64_t>(c - '0');
    if (value <= (limit - d) / 10 && first_cut) {
      value = value * 10 + d;
      decimals += point;
    } else {
      if (first_cut) round_up = d >= 5;
      first_cut = false;
      ignored += !point;
    }
  }
  if (!digits) return {};
  int exponent = 0;
  if (i < text.size()) {
    if (text[i] != 'e' && text[i] != 'E') return {};
    std::string_view e = text.substr(i + 1);
    if (!e.empty() && e[0] == '+') e.remove_prefix(1);
    const auto r = std::from_chars(e.data(), e.data() + e.size(), exponent);
    if (e.empty() || r.ec != std::errc() || r.ptr != e.data() + e.size()) return {};
    if (exponent > 400 || exponent < -400) {
      if (value == 0) return 0;
      if (exponent > 0) return {};
      return 0;
    }
  }
  int shift = 3 - decimals + ignored + exponent;  // value * 10^shift is the ns
  for (; shift > 0; --shift) {
    if (value > limit / 10) return {};
    value *= 10;
    round_up = false;
  }
  for (; shift < 0; ++shift) {
    if (value == 0 && !round_up) break;
    round_up = value % 10 >= 5;
    value /= 10;
  }
  value += round_up;
  if (value > limit) return {};
  const auto ns = static_cast<std::int64_t>(value);
  return negative ? -ns : ns;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    text = text.substr(1, text.size() - 2);
    while (!text.empty() && blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  }
  return text;
}

bool is_missing(std::string_view text) {
  text = trimmed(text);
  return text.empty() || same_letters(text, "N/A") || same_letters(text, "NA") ||
         same_letters(text, "NONE") || same_letters(text, "NULL");
}

std::optional<std::int64_t> decimal_us_to_ns(std::string_view text) {
  if (std::int64_t ns; usual_time_to_ns(text, ns)) return ns;
  text = trimmed(text);
  // The usual form: with at most 16 whole digits and three decimals nothing can overflow.
  const char *p = text.data(), *end = p + text.size();
  std::uint64_t value = 0;
  const char* first = p;
  while (p < end && *p >= '0' && *p <= '9')
    value = value * 10 + static_cast<std::uint64_t>(*p++ - '0');
  const auto whole = p - first;
  if (whole == 0 || whole > 16) return any_decimal_us_to_ns(text);
  if (p == end || *p != '.') return any_decimal_us_to_ns(text);
  first = ++p;
  while (p < end && p - first < 3 && *p >= '0' && *p <= '9')
    value = value * 10 + static_cast<std::uint64_t>(*p++ - '0');
  for (auto n = p - first; n < 3; ++n) value *= 10;
  if (p < end) {
    if (*p < '0' || *p > '9') return any_decimal_us_to_ns(text);
    value += *p++ >= '5';
    while (p < end && *p >= '0' && *p <= '9') ++p;
    if (p != end) return any_decimal_us_to_ns(text);
  }
  return value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
             ? std::nullopt
             : std::optional<std::int64_t>(static_cast<std::int64_t>(value));
}

std::optional<std::int64_t> decimal_int(std::string_view text) {
  text = trimmed(text);
  std::int64_t value = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || r.ec != std::errc()) return {};
  if (r.ptr == text.data() + text.size()) return value;
  // "3.0", as pandas writes an integer column that has gaps
  std::string_view rest(r.ptr, static_cast<std::size_t>(text.data() + text.size() - r.ptr));
  if (rest.size() >= 2 && rest[0] == '.' && rest.find_first_not_of('0', 1) == rest.npos)
    return value;
  return {};
}

std::optional<double> decimal_double(std::string_view text) {
  text = trimmed(text);
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  double value = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || r.ec != std::errc() || r.ptr != text.data() + text.size()) return {};
  if (!std::isfinite(value)) return {};
  return value;
}

std::string ns_to_us(std::int64_t ns) {
  const auto magnitude =
      ns < 0 ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", magnitude / 1000, magnitude % 1000);
}

std::string show_ns(double ns) {
  if (std::fabs(ns) < 1e6) return fmt::format("{:.1f} µs", ns / 1e3);
  if (std::fabs(ns) < 1e9) return fmt::format("{:.3f} ms", ns / 1e6);
  return fmt::format("{:.3f} s", ns / 1e9);
}

}  // namespace tk

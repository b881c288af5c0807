#include "timeline/decimal.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
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

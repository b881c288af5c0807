#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "cli/cli.h"

namespace tk::cli {

Progress::Progress(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (pending_) std::fputs("\r\x1b[K", stderr);
}

void Progress::operator()(const std::string& line) {
  if (quiet_) return;
  // Results of trials stay on the screen, what is going on is overwritten.
  const bool stays = line.starts_with("  ");
  if (!terminal_) {
    fmt::print(stderr, "{}\n", line);
    return;
  }
  fmt::print(stderr, "\r\x1b[K{}{}", line.substr(0, 160), stays ? "\n" : "");
  std::fflush(stderr);
  pending_ = !stays;
}

double parse_duration(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const double scale = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc() || scale == 0 || !(value > 0) || value > 1e9)
    throw UserError("TK0701", cat("'", text, "' is no duration")).help("write 90, 90s, 5m or 1h");
  return value * scale;
}

namespace {
std::string scaled(double value, double step, const char* const* units, int n) {
  int i = 0;
  while (value >= step && i + 1 < n) {
    value /= step;
    ++i;
  }
  return fmt::format("{:.{}f} {}", value, i == 0 ? 0 : 1, units[i]);
}
}  // namespace

std::string human_bytes(double bytes) {
  static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  return scaled(bytes, 1024, units, 5);
}

std::string human_count(double count) {
  static const char* const units[] = {"", "K", "M", "B", "T"};
  std::string s = scaled(count, 1000, units, 5);
  if (s.ends_with(' ')) s.pop_back();
  return s;
}

}  // namespace tk::cli

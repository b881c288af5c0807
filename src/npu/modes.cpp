#include "npu/modes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tk {
namespace {

constexpr double least_gain = 0.05;

double gain(std::span<const ModeRow> rows, const ModeRow& row) {
  return 1 - row.step_ms / rows[0].step_ms;
}

}  // namespace

std::string_view capture_verdict(std::span<const ModeRow> rows, const ModeRow& row) {
  const double g = gain(rows, row);
  if (g < least_gain) return "no gain";
  if (rows[0].band.cases == 0 || row.band.cases == 0) return "pending";
  return g > std::max(rows[0].band.median, row.band.median) ? "capture" : "pending";
}

std::int64_t break_even_steps(std::span<const ModeRow> rows, const ModeRow& row, double warm_up_s) {
  const double saved_s = (rows[0].step_ms - row.step_ms) / 1e3;
  if (warm_up_s <= 0 || saved_s <= 0) return -1;
  return static_cast<std::int64_t>(std::ceil(warm_up_s / saved_s));
}

std::string modes_text(std::span<const ModeRow> rows, double warm_up_s) {
  std::string text = fmt::format("{:<12}{:>10}{:>9}{:>13}  {}\n", "mode", "step ms", "gain",
                                 "break-even", "verdict");
  for (const ModeRow& row : rows) {
    const bool eager = row.mode == sim::Mode::eager;
    const std::int64_t steps = break_even_steps(rows, row, warm_up_s);
    text += fmt::format("{:<12}{:>10.3f}{:>9}{:>13}  {}\n", mode_name(row.mode), row.step_ms,
                        eager ? "" : fmt::format("{:.1f} %", 100 * gain(rows, row)),
                        eager || steps < 0 ? "" : fmt::format("{} steps", steps),
                        eager ? "" : capture_verdict(rows, row));
  }
  text += fmt::format(
      "predicted, not measured; a gain within the median error ({:.0f} % eager, {:.0f} % graph) is "
      "pending\n",
      100 * rows[0].band.median, 100 * rows[1].band.median);
  if (warm_up_s <= 0)
    text += "break-even: give --warm-up S, the seconds that compiling and capturing take\n";
  return text;
}

std::string modes_json(std::span<const ModeRow> rows, double warm_up_s) {
  nlohmann::ordered_json out = nlohmann::json::array();
  for (const ModeRow& row : rows) {
    nlohmann::ordered_json j{{"mode", mode_name(row.mode)}, {"step_ms", row.step_ms}};
    if (row.mode != sim::Mode::eager) {
      j["gain"] = gain(rows, row);
      j["verdict"] = capture_verdict(rows, row);
      if (const auto steps = break_even_steps(rows, row, warm_up_s); steps >= 0)
        j["break_even_steps"] = steps;
    }
    out.push_back(std::move(j));
  }
  return nlohmann::ordered_json{{"modes", std::move(out)}}.dump(1) + "\n";
}

}  // namespace tk

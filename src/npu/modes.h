// The same step in the three modes: what capture gains, when it has paid for itself, and the
// verdict.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "npu/simulation.h"

namespace tk {

struct ModeRow {
  sim::Mode mode = sim::Mode::eager;
  double step_ms = 0;
  Band band;  // of predictions in this mode
};

// "capture", "no gain" (below 5 %, as large prefills have it) or "pending" (the gain is within the
// band of the predictions, or there is no band). `rows[0]` is eager.
std::string_view capture_verdict(std::span<const ModeRow> rows, const ModeRow& row);
// Steps until `warm_up_s` is won back; -1: never, or no warm-up is given.
std::int64_t break_even_steps(std::span<const ModeRow> rows, const ModeRow& row, double warm_up_s);

std::string modes_text(std::span<const ModeRow> rows, double warm_up_s);
std::string modes_json(std::span<const ModeRow> rows, double warm_up_s);

}  // namespace tk

// Faults of a collection, made on purpose in what simulate writes, for tests of the tools that read
// it (VN-140).
#pragma once

#include <string>
#include <string_view>

namespace tk::cli {

struct Faults {
  bool cut_trace = false;     // the trace ends in the middle, as when the disk was full
  bool missing_rank = false;  // the last rank's folder is not there
  bool clock_drop = false;    // half of the clock from the middle of the step on
  bool run_failed = false;    // the run died before its tables were written
  bool ai_cpu_stall = false;  // an AI CPU operator of 5 ms in the middle of the step
  bool any() const { return cut_trace || missing_rank || clock_drop || run_failed || ai_cpu_stall; }
};

// Names apart by commas, as cut-trace. TK1458 for one that is none.
Faults parse_faults(std::string_view text);

// What is done to a folder that is written already.
void damage(const std::string& profile, const Faults& faults);

}  // namespace tk::cli

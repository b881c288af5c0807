// kernel_details.csv and op_summary_*.csv into a Timeline. Columns are found by name (KD-1).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "timeline/timeline.h"

namespace tk {

struct KernelCsvOptions {
  bool allow_truncated = false;
};

// What a header says about the file. `kind` is empty if it is no kernel table.
struct KernelHeader {
  std::string kind;     // kernel_details, op_summary
  std::string metrics;  // metrics group told by its columns; "" none, "none": no counters
  bool level0 = false;  // no Stream ID
  std::vector<std::string> columns;  // renamed to kernel_details' names
  std::vector<std::string> missing;  // needed ones that are not there
};
KernelHeader kernel_header(const std::vector<std::string>& names);

// Throws TK0905 (no kernel table, needed columns missing), TK0906 (cut, or a row of another shape),
// TK0907 (more than 1 % of the rows have no valid time), TK0901..3.
void read_kernel_csv(const std::filesystem::path& path, const KernelCsvOptions& options,
                     Timeline& timeline);

// The names of the first row, for telling files apart; empty if the file has none.
std::vector<std::string> csv_header(const std::filesystem::path& path);

}  // namespace tk

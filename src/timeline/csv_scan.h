// Finds the commas and line ends outside quotes. Internal to csv.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tk {

struct CsvScanState {
  std::uint64_t inside = 0;  // all ones while inside quotes
  std::uint64_t cells = 0;   // that ended in the row so far
};

struct CsvScanRow {
  std::size_t ends = 0;  // place in the list behind the row's last entry
  std::uint64_t cells = 0;
};

// Appends the offsets of separators in [from, to) to `ends` (room for to - from): of each row the
// first `wanted`, and its line end. Appends the rows that end to `rows` (the same room). Reads up
// to 63 bytes behind `to`. `from` continues where the last call ended; a call that does not end the
// file must cover a multiple of 64 bytes.
struct CsvScanOut {
  std::uint64_t* ends;
  std::size_t n_ends;
  CsvScanRow* rows;
  std::size_t n_rows;
};
void csv_separators(const char* text, std::uint64_t from, std::uint64_t to, std::uint64_t wanted,
                    CsvScanState& state, CsvScanOut& out);

}  // namespace tk

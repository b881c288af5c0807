// Finds the commas and line ends outside quotes. Internal to csv.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tk {

struct CsvScanState {
  std::uint64_t inside = 0;  // all ones while inside quotes
};

// Appends the offsets of separators in [from, to) to out (room for to - from), returns their
// number. Reads up to 63 bytes behind `to`. `from` continues where the last call ended; a call that
// does not end the file must cover a multiple of 64 bytes.
std::size_t csv_separators(const char* text, std::uint64_t from, std::uint64_t to,
                           CsvScanState& state, std::uint64_t* out);

}  // namespace tk

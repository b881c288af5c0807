// Readers of profiles, each beside a plain one that has nothing of its speed.
#pragma once

#include <cstddef>
#include <span>

namespace tk::fuzz {

// A kernel table that is accepted holds the rows, times and names that a byte by byte reader finds.
void read_kernel_table(std::span<const std::byte> bytes);
// A trace that is accepted has as many events as a full JSON parser finds, by one thread and by
// two.
void read_trace_file(std::span<const std::byte> bytes);

}  // namespace tk::fuzz

// The read bandwidth of memory, as `tokamak bench` relates its figures to it.
#pragma once

#include "cpu/kernels/common.h"

namespace tk::kernels {

// Reads its share of [data, data + bytes) once, at full speed; the sum of what was read is put into
// *sink so that nothing is optimised away. A kernel like the others: time a run of the team.
struct ReadArgs {
  const void* data = nullptr;
  std::int64_t bytes = 0;
  std::uint64_t* sink = nullptr;  // [n_threads * 8]
};
void read_all(const ReadArgs& args, int thread, int n_threads);

// Median of `rounds` reads of a buffer of `bytes` by a team of n_threads, in bytes per second.
// Allocates the buffer; 1 GiB and 7 rounds take about a second. 0 bytes: eight times the last
// cache, at least 256 MiB and at most 1 GiB.
double measure_read_bandwidth(int n_threads, std::size_t bytes = 0, int rounds = 7);

}  // namespace tk::kernels

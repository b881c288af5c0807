// The trace of some windows of time, cut out of the profile's own (BD-123).
#pragma once

#include <filesystem>
#include <vector>

#include "timeline/timeline.h"

namespace tk {

struct TraceWindow {
  Ns from = 0, to = 0;  // absolute, both ends included
  std::filesystem::path file;
  std::size_t events = 0;  // written
};

// Writes to each window's file all metadata and instants, and every event that lies inside it as it
// stands in the trace, whoever it is of. The trace is read once, and of it only the pieces whose
// times meet a window. False, and nothing written, if such a piece can't be read by itself (the end
// of a damaged file whose bytes were replaced). Throws TK0103, and TK0901 when the trace has gone.
bool slice_trace(const Trace& trace, std::vector<TraceWindow>& windows);

}  // namespace tk

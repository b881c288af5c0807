// trace_view.json and msprof_*.json into Timeline::trace, as a stream: chunks of about a megabyte,
// cut between events, parsed by simdjson on several threads, put together in file order.
#pragma once

#include <filesystem>
#include <memory>

#include "timeline/timeline.h"

namespace tk {

struct TraceOptions {
  bool allow_truncated = false;
  Ns base_ns = 0;  // absolute ns that becomes 0; 0: the first event's
  int threads = 2;
  bool kernels =
      true;  // keep the spans of kernels, too: where no table has them with their streams
};

// What was read, with texts in a pool of its own; see merge_trace.
struct TraceRead {
  Trace trace;
  StringPool strings;
  Ns base_ns = 0;
  std::vector<std::string> notes;
};

// Throws TK0908 (no event list, damaged JSON: with the byte), TK0909 (cut, without
// allow_truncated), TK0901, TK0902.
TraceRead read_trace(const std::filesystem::path& path, const TraceOptions& options);

// Moves a trace into the Timeline: texts into its pool, times onto its base.
void merge_trace(TraceRead&& read, Timeline& timeline);

}  // namespace tk

// One chunk of a trace: text of whole events, and the events in it. Internal to the trace reader.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "timeline/timeline.h"

namespace tk {

// Events of one chunk; lanes are pids until all metadata is known.
struct ChunkEvents {
  struct Span {
    TraceSpan span;  // start absolute
    std::int64_t pid = 0;
  };
  struct Flow {
    FlowEnd end;
    std::int64_t pid = 0;
    bool from = false;
  };
  std::vector<Span> spans;
  std::vector<Flow> flows;
  std::vector<std::pair<std::int64_t, std::string>> processes;  // pid, process_name
  std::vector<std::pair<Ns, double>> frequency;
  std::uint64_t events = 0, bad = 0, host = 0, other = 0;
};

// Parses "[" event "," event ... "]" held in `text` (with simdjson's padding behind). Returns an
// empty string, or why it is not whole events.
class ChunkParser {
 public:
  ChunkParser();
  ~ChunkParser();
  std::string parse(const char* text, std::size_t size, std::size_t capacity, StringPool& strings,
                    ChunkEvents& out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tk

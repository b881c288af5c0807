// One chunk of a trace: text of whole events, and the events in it. Internal to the trace reader.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "timeline/json_walk.h"
#include "timeline/timeline.h"

namespace tk {

// Events of the chunks that one thread read, in their order; lanes are places in `pids` until all
// metadata is known. Vectors of a thread, not of a chunk: fresh memory for every megabyte costs
// more than parsing it.
struct TraceEvents {
  std::vector<TraceSpan> spans;  // start absolute
  std::vector<FlowEnd> from, to;
  std::vector<std::int64_t> pids;
  std::vector<std::pair<std::int64_t, std::string>> processes;  // pid, process_name
  std::vector<std::pair<Ns, double>> frequency;
  std::uint64_t events = 0, bad = 0, host = 0, other = 0;

  struct Mark {
    std::size_t spans = 0, from = 0, to = 0, processes = 0, frequency = 0;
    std::uint64_t events = 0, bad = 0, host = 0, other = 0;
  };
  Mark mark() const;
  void back_to(const Mark& mark);  // drops what came after it
};

// Parses "[" event "," event ... "]" held in `text` (with simdjson's padding behind).
class ChunkParser {
 public:
  // One pool for all its chunks.
  // `kernels`: keep spans of kernels, too (where no table has them).
  explicit ChunkParser(bool kernels) : kernels_(kernels) {}
  // Appends to `out` and widens *chunk to the events' times. Empty, or why these are no whole
  // events.
  std::string parse(const char* text, std::size_t size, StringPool& strings, TraceEvents& out,
                    TraceChunk* chunk);

 private:
  bool kernels_;
  JsonIndex index_;
  std::string scratch_;
  std::vector<signed char> name_is_kernel_, type_is_kernel_;  // by id; -1: not asked yet
};

// One event of a chunk as it stands in the file.
struct RawEvent {
  char phase = '?';
  std::optional<Ns> ts, duration;  // absolute
  std::string_view text;           // from its brace to its brace
};
// Calls `event` for each. Empty, or why these are no whole events.
std::string for_each_event(JsonIndex& index, const char* text, std::size_t size,
                           const std::function<void(const RawEvent&)>& event);

}  // namespace tk

#include "timeline/split_trace.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "timeline/trace_chunk.h"

namespace tk {

namespace fs = std::filesystem;

namespace {

// One window's text, written piece by piece beside its file and renamed when whole.
class Output {
 public:
  explicit Output(TraceWindow& window) : window_(window), part_(window.file) {
    part_ += ".part";
    fs::remove(part_);
    text_ = "[";
  }
  void add(std::string_view event) {
    text_ += window_.events++ ? ",\n" : "\n";
    text_ += event;
    if (text_.size() > (256 << 10)) flush();
  }
  void drop() { fs::remove(part_); }
  void finish() {
    text_ += "\n]\n";
    flush();
    fs::rename(part_, window_.file);
  }

 private:
  void flush() {
    std::ofstream out(part_, std::ios::binary | std::ios::app);
    out << text_;
    out.flush();
    if (!out)
      throw UserError("TK0103", cat("cannot write ", part_.string()))
          .help("check the permissions and the space of the disk");
    text_.clear();
  }
  TraceWindow& window_;
  fs::path part_;
  std::string text_;
};

}  // namespace

bool slice_trace(const Trace& trace, std::vector<TraceWindow>& windows) {
  std::sort(windows.begin(), windows.end(),
            [](const TraceWindow& a, const TraceWindow& b) { return a.from < b.from; });
  std::vector<Output> outputs;
  outputs.reserve(windows.size());
  std::vector<Ns> reach;  // the latest end of this window and those before it
  for (TraceWindow& w : windows) {
    outputs.emplace_back(w);
    reach.push_back(std::max(w.to, reach.empty() ? w.to : reach.back()));
  }
  auto meets = [&](const TraceChunk& c) {
    if (c.metadata) return true;
    return std::any_of(windows.begin(), windows.end(),
                       [&](const TraceWindow& w) { return c.first <= w.to && c.last >= w.from; });
  };
  auto take = [&](const RawEvent& e) {
    if (e.phase == 'M' || e.phase == 'i' || e.phase == 'I') {
      for (Output& o : outputs) o.add(e.text);
      return;
    }
    if (!e.ts) return;
    const Ns end = *e.ts + e.duration.value_or(0);
    auto after = static_cast<std::size_t>(
        std::upper_bound(windows.begin(), windows.end(), *e.ts,
                         [](Ns at, const TraceWindow& w) { return at < w.from; }) -
        windows.begin());
    for (; after > 0 && reach[after - 1] >= end; --after)
      if (windows[after - 1].to >= end) outputs[after - 1].add(e.text);
  };
  const auto stream = ByteStream::open(trace.path);
  std::uint64_t at = 0;
  JsonIndex index;
  std::vector<char> text;
  for (const TraceChunk& c : trace.chunks) {
    if (c.size == 0 || !meets(c)) continue;
    stream->skip(c.offset - at);
    text.assign(c.size + 2 + simdjson::SIMDJSON_PADDING, ' ');
    text[0] = '[';
    const std::size_t got = stream->read(text.data() + 1, c.size);
    at = c.offset + got;
    text[got + 1] = ']';
    if (for_each_event(index, text.data(), got + 2, take).empty()) continue;
    // Names that are no UTF-8: the bytes are replaced, as they were when the trace was read.
    std::string good = valid_utf8({text.data(), got + 2});
    const std::size_t size = good.size();
    good.resize(size + simdjson::SIMDJSON_PADDING);
    if (!for_each_event(index, good.data(), size, take).empty()) {
      for (Output& o : outputs) o.drop();
      return false;
    }
  }
  for (Output& o : outputs) o.finish();
  return true;
}

}  // namespace tk

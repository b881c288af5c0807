#include "timeline/trace_json.h"

#include <simdjson.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "timeline/trace_chunk.h"

namespace tk {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t chunk_bytes = 1 << 20;
constexpr std::size_t longest_event = 256 << 20;

bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

struct Chunk {
  std::uint64_t offset = 0;  // of its first byte in the file
  std::size_t index = 0;
  std::vector<char> text;  // "[" events "]" and padding
  std::size_t size = 0;
  bool last = false;
};

// Cuts the file into chunks. In the fast way a cut is a guess, "}" "," "{" with blanks between:
// that these are ends of whole events is proven by the parse (brackets and quotes of every chunk
// must close, from the first one on). In the exact way the reader walks every byte, which is slower
// and is used when a guess was wrong, and for files that are an object with traceEvents.
class Chunker {
 public:
  Chunker(const fs::path& path, bool exact)
      : stream_(ByteStream::open(path)), path_(path), exact_(exact) {
    held_.reserve(chunk_bytes * 2);
    find_list();
  }

  bool object_form() const { return object_form_; }
  bool exact() const { return exact_; }
  std::uint64_t bytes() const { return consumed_ + held_.size(); }

  // False after the last chunk. Not thread safe.
  bool next(Chunk& chunk) {
    if (done_) return false;
    std::size_t at = 0;  // end of whole events in held_
    for (;;) {
      const std::size_t want = std::max<std::size_t>(chunk_bytes, held_.size() + chunk_bytes / 2);
      if (!ended_ && held_.size() < want) fill(want);
      at = exact_ ? exact_cut() : guess_cut();
      if (at || ended_ || closed_) break;
      if (held_.size() > longest_event)
        throw UserError(
            "TK0908", cat("no event ends within ", longest_event >> 20, " MiB of byte ", consumed_))
            .at(path_.string());
    }
    chunk.last = ended_ || closed_;
    if (ended_ && !closed_ && !exact_) at = held_.size();
    chunk.offset = consumed_;
    chunk.index = count_++;
    chunk.text.resize(at + 2 + simdjson::SIMDJSON_PADDING);
    chunk.text[0] = '[';
    std::memcpy(chunk.text.data() + 1, held_.data(), at);
    chunk.text[at + 1] = ']';
    chunk.size = at + 2;
    std::size_t skip = at;
    while (skip < held_.size() && (blank(held_[skip]) || held_[skip] == ',') && !closed_) {
      if (held_[skip] == ',') {
        ++skip;
        break;
      }
      ++skip;
    }
    consumed_ += skip;
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(skip));
    scanned_ = 0;
    if (chunk.last) done_ = true;
    if (!chunk.last && exact_ && at == 0) done_ = true;
    return true;
  }

  bool closed() const { return closed_; }  // exact only: the list's bracket was seen

 private:
  void fill(std::size_t to) {
    const std::size_t from = held_.size();
    held_.resize(to);
    const std::size_t got = stream_->read(held_.data() + from, to - from);
    held_.resize(from + got);
    if (got < to - from) ended_ = true;
  }

  // Steps over what stands before the first event.
  void find_list() {
    fill(chunk_bytes);
    std::size_t at = 0;
    if (held_.size() >= 3 && std::memcmp(held_.data(), "\xEF\xBB\xBF", 3) == 0) at = 3;
    while (at < held_.size() && blank(held_[at])) ++at;
    if (at == held_.size()) throw UserError("TK0908", "the file is empty").at(path_.string());
    if (held_[at] == '{') {
      object_form_ = exact_ = true;
      const std::string_view text(held_.data(), held_.size());
      const std::size_t key = text.find("\"traceEvents\"");
      std::size_t list =
          key == text.npos ? text.npos : text.find_first_not_of(" \t\r\n:", key + 13);
      if (list == text.npos || text[list] != '[')
        throw UserError("TK0908",
                        "the JSON object has no list traceEvents (looked in its first MiB)")
            .at(path_.string())
            .help("give a trace_view.json of torch_npu or an msprof_*.json");
      at = list;
    } else if (held_[at] != '[') {
      throw UserError("TK0908", "this is no JSON list of events")
          .at(path_.string())
          .help("give a trace_view.json of torch_npu or an msprof_*.json");
    }
    consumed_ = at + 1;
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(at + 1));
  }

  std::size_t guess_cut() const {
    if (ended_) return 0;
    std::string_view text(held_.data(), held_.size());
    for (std::size_t at = text.rfind('}'); at != text.npos && at > 0;
         at = text.rfind('}', at - 1)) {
      std::size_t i = at + 1;
      while (i < text.size() && blank(text[i])) ++i;
      if (i >= text.size() || text[i] != ',') continue;
      ++i;
      while (i < text.size() && blank(text[i])) ++i;
      if (i < text.size() && text[i] == '{') return at + 1;
    }
    return 0;
  }

  // Walks on from scanned_; the end of the last whole element before a comma at the list's level.
  std::size_t exact_cut() {
    std::size_t whole = 0;
    long depth = 0;
    bool inside = false;
    for (std::size_t i = 0; i < held_.size(); ++i) {
      const char c = held_[i];
      if (inside) {
        if (c == '\\')
          ++i;
        else if (c == '"')
          inside = false;
        continue;
      }
      if (c == '"')
        inside = true;
      else if (c == '{' || c == '[')
        ++depth;
      else if (c == '}' || c == ']') {
        if (--depth < 0) {
          closed_ = true;
          return i;
        }
      } else if (c == ',' && depth == 0) {
        whole = i;
        if (whole >= chunk_bytes) return whole;
      }
    }
    return whole;
  }

  std::unique_ptr<ByteStream> stream_;
  fs::path path_;
  std::vector<char> held_;
  std::uint64_t consumed_ = 0;
  std::size_t count_ = 0, scanned_ = 0;
  bool exact_ = false, object_form_ = false, ended_ = false, done_ = false, closed_ = false;
};

struct Part {
  ChunkEvents events;
  int pool = 0;
};

struct Parsed {
  std::map<std::size_t, Part> parts;  // by chunk
  std::vector<StringPool> pools;
  std::uint64_t bytes = 0;
  bool truncated = false;
  std::size_t repaired = 0;
  // A chunk that is not whole events.
  bool failed = false;
  std::uint64_t failed_offset = 0;
  std::string failed_why;
};

// True if the list's own bracket is the last character before `end`.
bool list_closes(const Chunk& chunk, std::size_t end) {
  long depth = 0;
  bool inside = false;
  for (std::size_t i = 1; i < end; ++i) {
    const char c = chunk.text[i];
    if (inside) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        inside = false;
    } else if (c == '"') {
      inside = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth < 0) {
      return c == ']' && i + 1 == end;
    }
  }
  return false;
}

// The last chunk ends in "]" (list form), or the file was cut. Takes the bracket off; for a cut
// file goes back to the last event that is whole. Returns false if nothing of it can be read.
bool settle_last(Chunk& chunk, bool list_closed_outside, bool& truncated, ChunkParser& parser) {
  if (list_closed_outside) return true;
  std::size_t end = chunk.size - 1;  // behind the events, at our own bracket
  while (end > 1 && blank(chunk.text[end - 1])) --end;
  if (end > 1 && chunk.text[end - 1] == ']') {
    // The list's bracket, or one inside an event that was cut: the parse tells.
    StringPool pool;
    ChunkEvents events;
    Chunk copy = chunk;
    std::memset(copy.text.data() + end - 1, ' ', chunk.size - end + 1);
    copy.text[end - 1] = ']';
    if (parser.parse(copy.text.data(), end, copy.text.size(), pool, events).empty()) {
      chunk.size = end;
      chunk.text = std::move(copy.text);
      return true;
    }
  }
  // Whole to its last bracket: what is wrong is inside, and the parse of the chunk will say where.
  if (list_closes(chunk, end)) {
    std::memset(chunk.text.data() + end, ' ', chunk.size - end);
    chunk.size = end;
    return true;
  }
  truncated = true;
  int tries = 0;
  for (std::size_t at = end; at > 1 && tries < 256; --at) {
    if (chunk.text[at - 1] != '}') continue;
    ++tries;
    StringPool pool;
    ChunkEvents events;
    Chunk copy = chunk;
    copy.text[at] = ']';
    if (at + 1 < copy.text.size())
      std::memset(copy.text.data() + at + 1, ' ', copy.text.size() - at - 1);
    if (parser.parse(copy.text.data(), at + 1, copy.text.size(), pool, events).empty()) {
      chunk.text = std::move(copy.text);
      chunk.size = at + 1;
      return true;
    }
  }
  chunk.text.assign(2 + simdjson::SIMDJSON_PADDING, ' ');
  chunk.text[0] = '[';
  chunk.text[1] = ']';
  chunk.size = 2;
  return true;
}

void sanitize(Chunk& chunk) {
  std::string good = valid_utf8({chunk.text.data(), chunk.size});
  chunk.size = good.size();
  good.resize(good.size() + simdjson::SIMDJSON_PADDING);
  chunk.text.assign(good.begin(), good.end());
}

Parsed parse_all(const fs::path& path, bool exact, int threads) {
  Chunker chunker(path, exact);
  exact = chunker.exact();
  Parsed parsed;
  parsed.pools.resize(static_cast<std::size_t>(threads));
  std::mutex source, result;
  std::atomic<bool> stop{false};
  std::exception_ptr thrown;
  auto work = [&](int me) {
    try {
      ChunkParser parser;
      Chunk chunk;
      while (!stop) {
        bool closed = false;
        {
          std::lock_guard lock(source);
          if (!chunker.next(chunk)) return;
          closed = exact && chunker.closed();
        }
        Part part;
        part.pool = me;
        std::string_view inner(chunk.text.data() + 1, chunk.size - 2);
        if (chunk.last) {
          bool truncated = false;
          if (!is_utf8(inner)) sanitize(chunk);
          settle_last(chunk, closed, truncated, parser);
          std::lock_guard lock(result);
          parsed.truncated = truncated;
        }
        auto& pool = parsed.pools[static_cast<std::size_t>(me)];
        std::string why =
            parser.parse(chunk.text.data(), chunk.size, chunk.text.size(), pool, part.events);
        if (!why.empty() && !is_utf8({chunk.text.data(), chunk.size})) {
          sanitize(chunk);
          part.events = {};
          why = parser.parse(chunk.text.data(), chunk.size, chunk.text.size(), pool, part.events);
          std::lock_guard lock(result);
          ++parsed.repaired;
        }
        std::lock_guard lock(result);
        if (!why.empty()) {
          if (!parsed.failed || chunk.offset < parsed.failed_offset) {
            parsed.failed_offset = chunk.offset;
            parsed.failed_why = why;
          }
          parsed.failed = true;
          stop = true;
          return;
        }
        parsed.parts.emplace(chunk.index, std::move(part));
      }
    } catch (...) {
      std::lock_guard lock(result);
      thrown = std::current_exception();
      stop = true;
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& t : others) t.join();
  if (thrown) std::rethrow_exception(thrown);
  parsed.bytes = chunker.bytes();
  return parsed;
}

LaneKind kind_of(std::string_view name) {
  if (name == "Python") return LaneKind::python;
  if (name == "CANN") return LaneKind::cann;
  if (name == "Ascend Hardware") return LaneKind::device;
  if (name == "Communication" || name == "HCCL") return LaneKind::communication;
  if (name == "Overlap Analysis") return LaneKind::overlap;
  return LaneKind::other;
}

// Joins the parts in file order and sorts spans into what they are.
void assemble(Parsed&& parsed, TraceRead& out) {
  Trace& t = out.trace;
  std::vector<std::vector<StringId>> maps;
  for (const StringPool& pool : parsed.pools) {
    std::vector<StringId> map(pool.size());
    for (std::size_t i = 1; i < pool.size(); ++i)
      map[i] = out.strings.add(pool[static_cast<StringId>(i)]);
    maps.push_back(std::move(map));
  }
  std::unordered_map<std::int64_t, std::int32_t> lanes;
  auto lane_of = [&](std::int64_t pid) {
    const auto [it, fresh] = lanes.try_emplace(pid, static_cast<std::int32_t>(t.lanes.size()));
    if (fresh) t.lanes.push_back({pid, {}, LaneKind::other});
    return it->second;
  };
  for (const auto& [index, part] : parsed.parts)
    for (const auto& [pid, name] : part.events.processes) {
      TraceLane& lane = t.lanes[static_cast<std::size_t>(lane_of(pid))];
      lane.name = name;
      lane.kind = kind_of(name);
    }
  std::int64_t last_pid = -1;
  std::int32_t last_lane = -1;
  for (auto& [index, part] : parsed.parts) {
    ChunkEvents& e = part.events;
    const auto& map = maps[static_cast<std::size_t>(part.pool)];
    t.events += e.events;
    t.bad_events += e.bad;
    t.other_events += e.other;
    t.host_events += e.host;
    t.frequency.insert(t.frequency.end(), e.frequency.begin(), e.frequency.end());
    for (ChunkEvents::Span& s : e.spans) {
      if (s.pid != last_pid || last_lane < 0) {
        last_pid = s.pid;
        last_lane = lane_of(s.pid);
      }
      s.span.lane = last_lane;
      s.span.name = map[s.span.name];
      s.span.task_type = map[s.span.task_type];
      const LaneKind kind = t.lanes[static_cast<std::size_t>(last_lane)].kind;
      const std::string_view name = out.strings[s.span.name];
      if (name.starts_with("ProfilerStep#"))
        t.steps.push_back(s.span);
      else if (kind == LaneKind::device)
        t.device.push_back(s.span);
      else if (kind == LaneKind::communication)
        t.communication.push_back(s.span);
      else if (kind == LaneKind::overlap)
        t.overlap.push_back(s.span);
      else if (kind == LaneKind::python || kind == LaneKind::cann)
        ++t.host_events;
      else
        ++t.other_events;
    }
    for (ChunkEvents::Flow& f : e.flows) {
      f.end.lane = lane_of(f.pid);
      (f.from ? t.launch_from : t.launch_to).push_back(f.end);
    }
    part.events = {};
  }
}

}  // namespace

TraceRead read_trace(const fs::path& path, const TraceOptions& options) {
  Parsed parsed = parse_all(path, false, std::max(1, options.threads));
  if (parsed.failed) parsed = parse_all(path, true, 1);
  if (parsed.failed)
    throw UserError("TK0908",
                    cat("damaged JSON near byte ", parsed.failed_offset, ": ", parsed.failed_why))
        .at(path.string())
        .help("copy the file again, or leave the trace out with --no-trace");
  if (parsed.truncated && !options.allow_truncated)
    throw UserError("TK0909", "the trace is cut: it does not end in ]")
        .at(path.string())
        .note(
            "the profiler left the file like this: the schedule was still recording, or its parser "
            "failed")
        .help(
            "collect again (`tokamak profile --check`, item PF-34); --allow-truncated reads the "
            "whole events, --no-trace leaves the file out");
  TraceRead out;
  out.trace.path = path.string();
  out.trace.bytes = parsed.bytes;
  out.trace.truncated = parsed.truncated;
  if (parsed.repaired)
    out.notes.push_back(
        cat(path.filename().string(), ": texts that are no UTF-8; the bytes were replaced"));
  assemble(std::move(parsed), out);
  Trace& t = out.trace;
  if (t.bad_events * 100 > t.events)
    throw UserError("TK0908", cat(t.bad_events, " of ", t.events,
                                  " events have no valid time, process or phase"))
        .at(path.string())
        .help(
            "this is no trace of torch_npu or msprof, or it is damaged; --no-trace leaves it out");
  if (t.bad_events)
    out.notes.push_back(
        cat(path.filename().string(), ": ", t.bad_events, " of ", t.events, " events dropped"));
  if (t.truncated)
    out.notes.push_back(
        cat(path.filename().string(), " is cut; its whole events were read (--allow-truncated)"));
  Ns first = options.base_ns;
  if (!first) {
    first = INT64_MAX;
    for (const auto* spans : {&t.device, &t.communication, &t.overlap, &t.steps})
      for (const TraceSpan& s : *spans) first = std::min(first, s.start);
    if (first == INT64_MAX) first = 0;
  }
  out.base_ns = first;
  for (auto* spans : {&t.device, &t.communication, &t.overlap, &t.steps})
    for (TraceSpan& s : *spans) s.start -= first;
  for (auto* ends : {&t.launch_from, &t.launch_to})
    for (FlowEnd& f : *ends) f.time -= first;
  for (auto& [time, mhz] : t.frequency) time -= first;
  auto by_start = [](const TraceSpan& a, const TraceSpan& b) {
    return a.start != b.start ? a.start < b.start : a.tid < b.tid;
  };
  for (auto* spans : {&t.device, &t.communication, &t.overlap, &t.steps})
    if (!std::is_sorted(spans->begin(), spans->end(), by_start))
      std::stable_sort(spans->begin(), spans->end(), by_start);
  return out;
}

void merge_trace(TraceRead&& read, Timeline& timeline) {
  std::vector<StringId> map(read.strings.size());
  for (std::size_t i = 1; i < map.size(); ++i)
    map[i] = timeline.strings.add(read.strings[static_cast<StringId>(i)]);
  const Ns shift = timeline.kernels.empty() ? 0 : read.base_ns - timeline.base_ns;
  if (timeline.kernels.empty()) timeline.base_ns = read.base_ns;
  Trace& t = read.trace;
  for (auto* spans : {&t.device, &t.communication, &t.overlap, &t.steps})
    for (TraceSpan& s : *spans) {
      s.start += shift;
      s.name = map[s.name];
      s.task_type = map[s.task_type];
    }
  for (auto* ends : {&t.launch_from, &t.launch_to})
    for (FlowEnd& f : *ends) f.time += shift;
  for (auto& [time, mhz] : t.frequency) time += shift;
  for (std::string& note : read.notes) timeline.notes.push_back(std::move(note));
  timeline.trace = std::move(t);
}

}  // namespace tk

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

// With its index of structural characters a chunk stays in a core's second-level cache.
constexpr std::size_t chunk_bytes = 256 << 10;
constexpr std::size_t longest_event = 256 << 20;

bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Text that is read into: not initialised, as vectors are.
class Text {
 public:
  char* room(std::size_t n) {  // at least n bytes and padding; keeps what is there
    if (n + simdjson::SIMDJSON_PADDING > capacity_) {
      const std::size_t more = n + n / 2 + simdjson::SIMDJSON_PADDING;
      std::unique_ptr<char[]> larger(new char[more]);
      if (capacity_) std::memcpy(larger.get(), data_.get(), capacity_);
      data_ = std::move(larger);
      capacity_ = more;
    }
    return data_.get();
  }
  char* data() const { return data_.get(); }

 private:
  std::unique_ptr<char[]> data_;
  std::size_t capacity_ = 0;
};

struct Chunk {
  std::uint64_t offset = 0;  // of its first event's byte in the file
  std::size_t index = 0;
  Text text;             // "[" events "]" and padding
  std::size_t size = 0;  // with both brackets
  bool last = false;

  std::string_view events() const { return {text.data() + 1, size - 2}; }
  // Makes the events those of `inner`.
  void assign(std::string_view inner) {
    char* p = text.room(inner.size() + 2);
    if (!inner.empty()) std::memmove(p + 1, inner.data(), inner.size());
    size = inner.size() + 2;
    close();
  }
  void close() {
    char* p = text.room(size);
    p[0] = '[';
    p[size - 1] = ']';
    std::memset(p + size, ' ', simdjson::SIMDJSON_PADDING);
  }
};

// Cuts the file into chunks. In the fast way a cut is a guess, "}" "," "{" with blanks between:
// that these are ends of whole events is proven by the parse (brackets and quotes of every chunk
// must close, from the first one on). In the exact way the reader walks every byte, which is slower
// and is used when a guess was wrong, and for files that are an object with traceEvents.
class Chunker {
 public:
  Chunker(const fs::path& path, bool exact)
      : stream_(ByteStream::open(path)), path_(path), exact_(exact) {
    find_list();
  }

  bool exact() const { return exact_; }
  std::uint64_t bytes() const { return consumed_ + carry_.size(); }

  // False after the last chunk. Not thread safe.
  bool next(Chunk& chunk) {
    if (done_) return false;
    // What the last cut left stands before the new bytes, which are read to where they are parsed.
    std::size_t n = carry_.size();
    std::memcpy(chunk.text.room(n + 2) + 1, carry_.data(), n);
    std::size_t at = 0;  // end of whole events
    for (std::size_t want = std::max(chunk_bytes, n);; want *= 2) {
      if (!ended_ && n < want) n += fill(chunk.text.room(want + 2) + 1 + n, want - n);
      const std::string_view held(chunk.text.data() + 1, n);
      at = exact_ ? exact_cut(held) : guess_cut(held);
      if (at || ended_ || closed_) break;
      if (n > longest_event)
        throw UserError(
            "TK0908", cat("no event ends within ", longest_event >> 20, " MiB of byte ", consumed_))
            .at(path_.string());
    }
    chunk.last = ended_ || closed_;
    if (ended_ && !closed_ && !exact_) at = n;
    chunk.offset = consumed_;
    chunk.index = count_++;
    const char* const events = chunk.text.data() + 1;
    std::size_t skip = at;
    while (skip < n && (blank(events[skip]) || events[skip] == ',') && !closed_) {
      if (events[skip] == ',') {
        ++skip;
        break;
      }
      ++skip;
    }
    carry_.assign(events + skip, n - skip);
    consumed_ += skip;
    if (closed_) check_tail();
    chunk.size = at + 2;
    chunk.close();
    if (chunk.last) done_ = true;
    if (!chunk.last && exact_ && at == 0) done_ = true;
    return true;
  }

  bool closed() const { return closed_; }  // exact only: the list's bracket was seen

 private:
  std::size_t fill(char* to, std::size_t n) {
    const std::size_t got = stream_->read(to, n);
    if (got < n) ended_ = true;
    return got;
  }

  // Steps over what stands before the first event.
  void find_list() {
    carry_.resize(1 << 20);
    carry_.resize(fill(carry_.data(), carry_.size()));
    std::size_t at = 0;
    if (carry_.starts_with("\xEF\xBB\xBF")) at = 3;
    while (at < carry_.size() && blank(carry_[at])) ++at;
    if (at == carry_.size()) throw UserError("TK0908", "the file is empty").at(path_.string());
    if (carry_[at] == '{') {
      exact_ = object_ = true;
      const std::size_t key = carry_.find("\"traceEvents\"");
      std::size_t list =
          key == carry_.npos ? carry_.npos : carry_.find_first_not_of(" \t\r\n:", key + 13);
      if (list == carry_.npos || carry_[list] != '[')
        throw UserError("TK0908",
                        "the JSON object has no list traceEvents (looked in its first MiB)")
            .at(path_.string())
            .help("give a trace_view.json of torch_npu or an msprof_*.json");
      at = list;
    } else if (carry_[at] != '[') {
      throw UserError("TK0908", "this is no JSON list of events")
          .at(path_.string())
          .help("give a trace_view.json of torch_npu or an msprof_*.json");
    }
    consumed_ = at + 1;
    carry_.erase(0, at + 1);
  }

  // What stands behind the events, from the bracket on: nothing more in a list, in an object its
  // other members.
  void check_tail() {
    bool good = carry_.front() == ']';
    char last = ']';
    std::uint64_t at = consumed_;
    for (std::size_t from = 1; good;) {
      for (std::size_t i = from; i < carry_.size() && good; ++i) {
        if (blank(carry_[i])) continue;
        last = carry_[i];
        good = object_ && last != '\0';
        at = consumed_ + i;
      }
      if (!good || ended_) break;
      consumed_ += carry_.size();
      carry_.resize(1 << 20);
      carry_.resize(fill(carry_.data(), carry_.size()));
      from = 0;
    }
    if (good && object_) good = last == '}';
    if (!good)
      throw UserError("TK0908", cat("the list of events ends near byte ", at,
                                    object_ ? ", and the object around it does not"
                                            : ", and other text follows or a brace closes it"))
          .at(path_.string())
          .help("copy the file again, or leave the trace out with --no-trace");
  }

  std::size_t guess_cut(std::string_view text) const {
    if (ended_) return 0;
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

  // The end of the last whole element before a comma at the list's level.
  std::size_t exact_cut(std::string_view text) {
    std::size_t whole = 0;
    long depth = 0;
    bool inside = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
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
  std::string carry_;  // read, and in no chunk yet
  std::uint64_t consumed_ = 0;
  std::size_t count_ = 0;
  bool object_ = false;  // the list is a member of an object
  bool exact_ = false, ended_ = false, done_ = false, closed_ = false;
};

// What one thread read of one chunk: up to where the thread's vectors reached.
struct Part {
  int thread = 0;
  TraceEvents::Mark from, to;
  TraceChunk chunk;
};

struct Parsed {
  std::map<std::size_t, Part> parts;  // by chunk
  std::vector<StringPool> pools;      // by thread
  std::vector<TraceEvents> events;
  std::uint64_t bytes = 0;
  bool truncated = false;
  std::size_t repaired = 0;
  // A chunk that is not whole events.
  bool failed = false;
  std::uint64_t failed_offset = 0;
  std::string failed_why;
};

// True if the list's own bracket is the last character of the text.
bool list_closes(std::string_view text) {
  long depth = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
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
      return c == ']' && i + 1 == text.size();
    }
  }
  return false;
}

bool parses(Chunk& trial, std::string_view events) {
  StringPool pool;
  TraceEvents out;
  TraceChunk chunk;
  trial.assign(events);
  return ChunkParser(true).parse(trial.text.data(), trial.size, pool, out, &chunk).empty();
}

// The last chunk ends in "]" (list form), or the file was cut. Takes the bracket off; for a cut
// file goes back to the last event that is whole. Returns whether it was cut.
bool settle_last(Chunk& chunk, bool list_closed_outside) {
  if (list_closed_outside) return false;
  std::string_view text = chunk.events();
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  const std::string kept(text);
  text = kept;
  Chunk trial;
  if (text.ends_with(']')) {
    // The list's bracket, or one inside an event that was cut: the parse tells. Where the bracket
    // is the list's and the parse fails, the damage is inside, and the chunk's own parse says
    // where.
    const std::string_view inner = text.substr(0, text.size() - 1);
    if (parses(trial, inner) || list_closes(text)) {
      chunk.assign(inner);
      return false;
    }
  }
  int tries = 0;
  for (std::size_t at = text.size(); at > 0 && tries < 256; --at) {
    if (text[at - 1] != '}') continue;
    ++tries;
    if (!parses(trial, text.substr(0, at))) continue;
    chunk.assign(text.substr(0, at));
    return true;
  }
  chunk.assign({});
  return true;
}

Parsed parse_all(const fs::path& path, bool exact, int threads, bool kernels) {
  Chunker chunker(path, exact);
  exact = chunker.exact();
  Parsed parsed;
  parsed.pools.resize(static_cast<std::size_t>(threads));
  parsed.events.resize(static_cast<std::size_t>(threads));
  std::mutex source, result;
  std::atomic<bool> stop{false};
  std::exception_ptr thrown;
  auto work = [&](int me) {
    try {
      ChunkParser parser(kernels);
      Chunk chunk;
      auto& pool = parsed.pools[static_cast<std::size_t>(me)];
      auto& events = parsed.events[static_cast<std::size_t>(me)];
      while (!stop) {
        bool closed = false;
        {
          std::lock_guard lock(source);
          if (!chunker.next(chunk)) return;
          closed = exact && chunker.closed();
        }
        if (chunk.last) {
          if (!is_utf8(chunk.events())) chunk.assign(valid_utf8(chunk.events()));
          const bool truncated = settle_last(chunk, closed);
          std::lock_guard lock(result);
          parsed.truncated = truncated;
        }
        Part part;
        part.thread = me;
        part.from = events.mark();
        part.chunk.offset = chunk.offset;
        part.chunk.size = chunk.size - 2;
        auto parse = [&] {
          return parser.parse(chunk.text.data(), chunk.size, pool, events, &part.chunk);
        };
        std::string why = parse();
        if (!why.empty() && !is_utf8(chunk.events())) {
          chunk.assign(valid_utf8(chunk.events()));
          events.back_to(part.from);
          why = parse();
          std::lock_guard lock(result);
          ++parsed.repaired;
        }
        part.to = events.mark();
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
        parsed.parts.emplace(chunk.index, part);
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
  return LaneKind::other;
}

// Joins the parts in file order and sorts spans into what they are.
void assemble(Parsed&& parsed, TraceRead& out) {
  Trace& t = out.trace;
  std::vector<std::vector<StringId>> texts;
  for (const StringPool& pool : parsed.pools) {
    std::vector<StringId> map(pool.size());
    for (std::size_t i = 1; i < pool.size(); ++i)
      map[i] = out.strings.add(pool[static_cast<StringId>(i)]);
    texts.push_back(std::move(map));
  }
  std::unordered_map<std::int64_t, std::int32_t> places;
  auto lane_of = [&](std::int64_t pid) {
    const auto [it, fresh] = places.try_emplace(pid, static_cast<std::int32_t>(t.lanes.size()));
    if (fresh) t.lanes.push_back({pid, {}, LaneKind::other});
    return it->second;
  };
  std::vector<std::vector<std::int32_t>> lanes;
  std::size_t from = 0, to = 0;
  for (const TraceEvents& e : parsed.events) {
    lanes.emplace_back();
    for (const std::int64_t pid : e.pids) lanes.back().push_back(lane_of(pid));
    t.events += e.events;
    t.bad_events += e.bad;
    t.other_events += e.other;
    t.host_events += e.host;
    from += e.from.size();
    to += e.to.size();
  }
  t.launch_from.reserve(from);
  t.launch_to.reserve(to);
  t.chunks.reserve(parsed.parts.size());
  auto append = [](auto& out_list, const auto& list, std::size_t first, std::size_t last) {
    out_list.insert(out_list.end(), list.begin() + static_cast<std::ptrdiff_t>(first),
                    list.begin() + static_cast<std::ptrdiff_t>(last));
  };
  for (const auto& [index, part] : parsed.parts) {
    const TraceEvents& e = parsed.events[static_cast<std::size_t>(part.thread)];
    t.chunks.push_back(part.chunk);
    for (std::size_t i = part.from.processes; i < part.to.processes; ++i) {
      TraceLane& lane = t.lanes[static_cast<std::size_t>(lane_of(e.processes[i].first))];
      lane.name = e.processes[i].second;
      lane.kind = kind_of(lane.name);
    }
    append(t.frequency, e.frequency, part.from.frequency, part.to.frequency);
    append(t.launch_from, e.from, part.from.from, part.to.from);
    append(t.launch_to, e.to, part.from.to, part.to.to);
  }
  std::vector<signed char> is_step(out.strings.size(), -1);
  for (const auto& [index, part] : parsed.parts) {
    const auto thread = static_cast<std::size_t>(part.thread);
    for (std::size_t i = part.from.spans; i < part.to.spans; ++i) {
      TraceSpan s = parsed.events[thread].spans[i];
      s.lane = lanes[thread][static_cast<std::size_t>(s.lane)];
      s.name = texts[thread][s.name];
      s.task_type = texts[thread][s.task_type];
      signed char& step = is_step[s.name];
      if (step < 0) step = out.strings[s.name].starts_with("ProfilerStep#");
      const LaneKind kind = t.lanes[static_cast<std::size_t>(s.lane)].kind;
      if (step)
        t.steps.push_back(s);
      else if (kind == LaneKind::device)
        t.device.push_back(s);
      else if (kind == LaneKind::communication)
        t.communication.push_back(s);
      else if (kind == LaneKind::python || kind == LaneKind::cann)
        ++t.host_events;
      else
        ++t.other_events;
    }
  }
}

}  // namespace

TraceRead read_trace(const fs::path& path, const TraceOptions& options) {
  Parsed parsed = parse_all(path, false, std::max(1, options.threads), options.kernels);
  if (parsed.failed) parsed = parse_all(path, true, 1, options.kernels);
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
    for (const auto* spans : {&t.device, &t.communication, &t.steps})
      for (const TraceSpan& s : *spans) first = std::min(first, s.start);
    if (first == INT64_MAX) first = 0;
  }
  out.base_ns = first;
  for (auto* spans : {&t.device, &t.communication, &t.steps})
    for (TraceSpan& s : *spans) s.start -= first;
  for (auto* ends : {&t.launch_from, &t.launch_to})
    for (FlowEnd& f : *ends) f.time -= first;
  for (auto& [time, mhz] : t.frequency) time -= first;
  auto by_start = [](const TraceSpan& a, const TraceSpan& b) {
    return a.start != b.start ? a.start < b.start : a.tid < b.tid;
  };
  for (auto* spans : {&t.device, &t.communication, &t.steps})
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
  for (auto* spans : {&t.device, &t.communication, &t.steps})
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

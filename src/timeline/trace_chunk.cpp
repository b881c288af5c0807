#include "timeline/trace_chunk.h"

#include <algorithm>

#include "timeline/decimal.h"
#include "timeline/load.h"

namespace tk {

namespace {

constexpr Ns far = Ns{1} << 62;  // ends must not overflow

// Flow ids that are texts of letters are hashed; ids that are numbers stay.
std::uint64_t id_of(std::string_view token) {
  std::uint64_t value = 0;
  for (char c : token) {
    if (c < '0' || c > '9') return std::hash<std::string_view>()(token) | (std::uint64_t{1} << 63);
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

// CANN's calls have names like "Node@launch".
bool is_host_call(std::string_view name) {
  const std::size_t at = name.substr(0, 16).find('@');
  if (at == name.npos) return false;
  const std::string_view layer = name.substr(0, at);
  return layer == "AscendCL" || layer == "Node" || layer == "Runtime" || layer == "Model" ||
         layer == "Communication" || layer == "HCCL";
}

bool is_python(std::string_view category) {
  return category == "cpu_op" || category == "python_function" || category == "enqueue" ||
         category == "dequeue";
}

struct Event {
  char phase = 0;
  std::string_view name, category, id, args_name, task_type;
  std::int64_t pid = 0, tid = 0, connection = -1, task = -1;
  std::optional<Ns> ts, duration;
  double mhz = -1;
  bool good = true;
  const std::uint32_t* args = nullptr;
};

std::int64_t int_of(const JsonValue& v, bool& good) {
  const std::string_view s = v.text;
  const bool negative = !s.empty() && s[0] == '-';
  std::size_t i = negative;
  if (v.at || i == s.size() || s.size() - i > 18) {
    good = false;
    return 0;
  }
  std::int64_t value = 0;
  for (; i < s.size(); ++i) {
    if (s[i] < '0' || s[i] > '9') {
      good = false;
      return 0;
    }
    value = value * 10 + (s[i] - '0');
  }
  return negative ? -value : value;
}

std::optional<Ns> time_of(const JsonValue& v) {
  return v.at ? std::nullopt : decimal_us_to_ns(v.text);
}

// Objects and lists have no text, so they count as an unknown phase and as an empty id.
bool read_event(JsonWalk& walk, Event& e) {
  return walk.object([&e](std::string_view key, const JsonValue& v) {
    switch (key.size()) {
      case 2:
        if (key == "ph")
          e.phase = v.text.size() == 1 ? v.text[0] : '?';
        else if (key == "ts")
          e.ts = time_of(v);
        else if (key == "id")
          e.id = v.text;
        break;
      case 3:
        if (key == "dur")
          e.duration = time_of(v);
        else if (key == "pid")
          e.pid = int_of(v, e.good);
        else if (key == "tid")
          e.tid = int_of(v, e.good);
        else if (key == "cat" && v.kind == JsonValue::string)
          e.category = v.text;
        break;
      case 4:
        if (key == "name") {
          e.name = v.text;
          e.good = e.good && v.kind == JsonValue::string;
        } else if (key == "args" && v.kind == JsonValue::object) {
          e.args = v.at;
        }
        break;
      default:
        break;
    }
  });
}

// The few arguments that are kept; called only for events of the device, metadata and counters.
bool read_args(JsonWalk walk, Event& e) {
  bool ignored = true;
  return walk.object([&](std::string_view key, const JsonValue& v) {
    if (key == "connection_id")
      e.connection = int_of(v, ignored);
    else if (key == "Task Type" || key == "task type")
      e.task_type = v.kind == JsonValue::string ? v.text : std::string_view();
    else if (key == "Task Id" || key == "task id")
      e.task = int_of(v, ignored);
    else if (key == "name" && v.kind == JsonValue::string)
      e.args_name = v.text;
    else if (key == "MHz")
      e.mhz = decimal_double(v.text).value_or(-1);
  });
}

std::int32_t place_of(std::vector<std::int64_t>& pids, std::int64_t pid) {
  const auto place =
      static_cast<std::int32_t>(std::find(pids.begin(), pids.end(), pid) - pids.begin());
  if (static_cast<std::size_t>(place) == pids.size()) pids.push_back(pid);
  return place;
}

// Walks "[" value "," value ... "]"; `value` passes over one and is false if it can't.
template <class Value>
std::string walk_list(const JsonIndex& index, const char* text, Value&& value) {
  JsonWalk walk(text, index.begin(), index.end());
  if (walk.peek() != '[') return "no list of events";
  walk.step();
  if (walk.peek() != ']') {
    for (;;) {
      if (!value(walk)) return "an event is no whole JSON object";
      if (walk.peek() != ',') break;
      walk.step();
    }
    if (walk.peek() != ']') return "two events without a comma between";
  }
  walk.step();
  return walk.done() ? std::string() : "text after the list of events";
}

}  // namespace

TraceEvents::Mark TraceEvents::mark() const {
  return {spans.size(), from.size(), to.size(), processes.size(), frequency.size(), events,
          bad,          host,        other};
}

void TraceEvents::back_to(const Mark& m) {
  spans.resize(m.spans);
  from.resize(m.from);
  to.resize(m.to);
  processes.resize(m.processes);
  frequency.resize(m.frequency);
  events = m.events;
  bad = m.bad;
  host = m.host;
  other = m.other;
}

std::string ChunkParser::parse(const char* text, std::size_t size, StringPool& strings,
                               TraceEvents& out, TraceChunk* chunk) {
  if (std::string why = index_.build(text, size); !why.empty()) return why;
  const std::uint32_t* const end = index_.end();
  // Texts are few, so each is asked once.
  auto cached = [&](std::vector<signed char>& known, StringId id, auto&& ask) {
    if (known.size() <= id) known.resize(strings.size() + 64, -1);
    if (known[id] < 0) known[id] = ask(strings[id]);
    return known[id] != 0;
  };
  auto is_task = [&](StringId name, StringId type) {
    return cached(name_is_kernel_, name,
                  [](std::string_view x) { return is_kernel_task(x, {}); }) &&
           cached(type_is_kernel_, type, [](std::string_view x) { return is_kernel_task({}, x); });
  };
  return walk_list(index_, text, [&](JsonWalk& walk) {
    ++out.events;
    if (walk.peek() != '{') {
      ++out.bad;
      return walk.skip_value();
    }
    Event e;
    if (!read_event(walk, e)) return false;
    const bool timed = e.ts && *e.ts >= 0 && *e.ts < far;
    switch (e.phase) {
      case 'X': {
        const Ns duration = e.duration.value_or(0);
        if (!e.good || !timed || duration < 0 || duration >= far) {
          ++out.bad;
          break;
        }
        chunk->first = std::min(chunk->first, *e.ts);
        chunk->last = std::max(chunk->last, *e.ts + duration);
        // What the host did is counted; only its steps are kept.
        const bool step = e.name.starts_with("ProfilerStep#");
        if (!step && (is_python(e.category) || is_host_call(e.name))) {
          ++out.host;
          break;
        }
        std::string_view name, type;
        if (!json_unescaped(e.name, scratch_, name)) {
          ++out.bad;
          break;
        }
        TraceSpan s;
        s.name = strings.add(name);
        if (e.args && !read_args(JsonWalk(text, e.args, end), e)) return false;
        if (!json_unescaped(e.task_type, scratch_, type)) type = {};
        s.task_type = strings.add(type);
        if (!kernels_ && !step && is_task(s.name, s.task_type)) {
          ++out.other;
          break;
        }
        s.start = *e.ts;
        s.duration = duration;
        s.lane = place_of(out.pids, e.pid);
        s.tid = e.tid;
        s.connection = e.connection;
        s.task = e.task;
        out.spans.push_back(s);
        break;
      }
      case 's':
      case 'f': {
        // The two kinds of flow number their ends independently.
        const bool npu = e.category == "async_npu", device = e.category == "HostToDevice";
        if (!npu && !device) {
          ++out.other;
          break;
        }
        if (!e.good || !timed || e.id.empty()) {
          ++out.bad;
          break;
        }
        (e.phase == 's' ? out.from : out.to).push_back({id_of(e.id) * 2 + device, *e.ts, e.tid});
        break;
      }
      case 'M': {
        chunk->metadata = true;
        if (e.args && !read_args(JsonWalk(text, e.args, end), e)) return false;
        std::string_view name;
        if (!e.good)
          ++out.bad;
        else if (e.name == "process_name" && json_unescaped(e.args_name, scratch_, name))
          out.processes.emplace_back(e.pid, valid_utf8(name));
        break;
      }
      case 'C':
        if (e.name == "AI Core Freq" && timed && e.args &&
            read_args(JsonWalk(text, e.args, end), e) && e.mhz > 0)
          out.frequency.emplace_back(*e.ts, e.mhz);
        else
          ++out.other;
        break;
      case 'i':
      case 'I':
        chunk->metadata = true;
        ++out.other;
        break;
      case 'B':
      case 'E':
      case 'b':
      case 'e':
      case 'n':
      case 't':
        ++out.other;
        break;
      default:
        ++out.bad;
    }
    return true;
  });
}

std::string for_each_event(JsonIndex& index, const char* text, std::size_t size,
                           const std::function<void(const RawEvent&)>& event) {
  if (std::string why = index.build(text, size); !why.empty()) return why;
  return walk_list(index, text, [&](JsonWalk& walk) {
    if (walk.peek() != '{') return walk.skip_value();
    const std::uint32_t from = walk.offset();
    Event e;
    if (!read_event(walk, e)) return false;
    const std::uint32_t to = *(walk.position() - 1);
    event({e.phase, e.ts, e.duration, {text + from, to - from + 1}});
    return true;
  });
}

}  // namespace tk

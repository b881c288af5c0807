#include "timeline/trace_chunk.h"

#include <simdjson.h>

#include "timeline/decimal.h"

namespace tk {

namespace od = simdjson::ondemand;

struct ChunkParser::Impl {
  od::parser parser;
  // Ids that are texts of letters are hashed; ids that are numbers stay.
  static std::uint64_t id_of(std::string_view token) {
    std::uint64_t value = 0;
    for (char c : token) {
      if (c < '0' || c > '9')
        return std::hash<std::string_view>()(token) | (std::uint64_t{1} << 63);
      value = value * 10 + static_cast<std::uint64_t>(c - '0');
    }
    return value;
  }
};

ChunkParser::ChunkParser() : impl_(std::make_unique<Impl>()) {}
ChunkParser::~ChunkParser() = default;

namespace {

// A scalar as it stands: quotes and blanks around it taken off.
std::string_view token_of(od::value value) {
  std::string_view raw = value.raw_json_token();
  while (!raw.empty() &&
         (raw.back() == ' ' || raw.back() == '\n' || raw.back() == '\r' || raw.back() == '\t'))
    raw.remove_suffix(1);
  if (raw.size() >= 2 && raw.front() == '"' && raw.back() == '"')
    raw = raw.substr(1, raw.size() - 2);
  return raw;
}

bool is_host_call(std::string_view name) {
  for (std::string_view part :
       {"AscendCL@", "Node@", "Runtime@", "Model@", "Communication@", "HCCL@"})
    if (name.starts_with(part)) return true;
  return false;
}
struct Event {
  char ph = 0;
  std::string_view name, category, id, args_name, task_type;
  std::int64_t pid = 0, tid = 0, connection = -1, task = -1, stream = -1;
  std::optional<Ns> ts, duration;
  double mhz = -1;
  bool good = true;
};

std::int64_t int_of(std::string_view token, bool& good) {
  std::int64_t value = 0;
  bool negative = !token.empty() && token[0] == '-';
  std::size_t i = negative;
  if (i == token.size() || token.size() - i > 18) {
    good = false;
    return 0;
  }
  for (; i < token.size(); ++i) {
    if (token[i] < '0' || token[i] > '9') {
      good = false;
      return 0;
    }
    value = value * 10 + (token[i] - '0');
  }
  return negative ? -value : value;
}

bool scalar(od::value& v) {
  const od::json_type t = v.type();
  return t != od::json_type::object && t != od::json_type::array;
}

// The few arguments that are kept; a Python operator's are long texts and are passed over whole.
void read_args(od::object args, Event& e) {
  bool ignored = true;
  for (auto field : args) {
    od::raw_json_string key = field.key();
    if (key == "connection_id") {
      od::value v = field.value();
      if (scalar(v)) e.connection = int_of(token_of(v), ignored);
    } else if (key == "Task Type" || key == "task type") {
      od::value v = field.value();
      if (v.type() == od::json_type::string) e.task_type = v.get_string();
    } else if (key == "Task Id" || key == "task id") {
      od::value v = field.value();
      if (scalar(v)) e.task = int_of(token_of(v), ignored);
    } else if (key == "Physic Stream Id" || key == "stream id") {
      od::value v = field.value();
      if (scalar(v)) e.stream = int_of(token_of(v), ignored);
    } else if (key == "name") {
      od::value v = field.value();
      if (v.type() == od::json_type::string) e.args_name = v.get_string();
    } else if (key == "MHz") {
      od::value v = field.value();
      if (scalar(v)) e.mhz = decimal_double(token_of(v)).value_or(-1);
    } else if (key == "Sequence number" || key == "Python id") {
      return;  // Python's; nothing of ours follows
    }
  }
}

void read_event(od::object object, Event& e) {
  for (auto field : object) {
    od::raw_json_string key = field.key();
    od::value v = field.value();
    if (key == "name") {
      if (v.type() == od::json_type::string)
        e.name = v.get_string();
      else
        e.good = false;
    } else if (key == "ph") {
      const std::string_view ph = scalar(v) ? token_of(v) : std::string_view();
      e.ph = ph.size() == 1 ? ph[0] : '?';
    } else if (key == "ts") {
      e.ts = scalar(v) ? decimal_us_to_ns(token_of(v)) : std::nullopt;
    } else if (key == "dur") {
      e.duration = scalar(v) ? decimal_us_to_ns(token_of(v)) : std::nullopt;
    } else if (key == "pid") {
      e.pid = scalar(v) ? int_of(token_of(v), e.good) : (e.good = false, 0);
    } else if (key == "tid") {
      e.tid = scalar(v) ? int_of(token_of(v), e.good) : (e.good = false, 0);
    } else if (key == "cat") {
      if (v.type() == od::json_type::string) e.category = v.get_string();
    } else if (key == "id") {
      if (scalar(v)) e.id = token_of(v);
    } else if (key == "args") {
      // The host's arguments are long (call stacks) and not needed.
      if (e.category.empty() && !is_host_call(e.name) && v.type() == od::json_type::object)
        read_args(v.get_object(), e);
    }
  }
}

}  // namespace

std::string ChunkParser::parse(const char* text, std::size_t size, std::size_t capacity,
                               StringPool& strings, ChunkEvents& out) {
  constexpr Ns far = Ns{1} << 62;
  try {
    od::document document = impl_->parser.iterate(text, size, capacity);
    od::array events = document.get_array();
    for (auto element : events) {
      od::value value = element.value();
      if (value.type() != od::json_type::object) {
        ++out.events;
        ++out.bad;
        continue;
      }
      Event e;
      read_event(value.get_object(), e);
      ++out.events;
      const bool timed = e.ts && *e.ts >= 0 && *e.ts < far;
      switch (e.ph) {
        case 'X': {
          const Ns duration = e.duration.value_or(0);
          if (!e.good || !timed || duration < 0 || duration >= far) {
            ++out.bad;
            break;
          }
          // What the host did is counted; only its steps are kept. CANN's calls have names like
          // "Node@launch".
          const bool python = e.category == "cpu_op" || e.category == "python_function" ||
                              e.category == "enqueue" || e.category == "dequeue";
          if ((python || is_host_call(e.name)) && !e.name.starts_with("ProfilerStep#")) {
            ++out.host;
            break;
          }
          ChunkEvents::Span s;
          s.pid = e.pid;
          s.span.start = *e.ts;
          s.span.duration = duration;
          s.span.name = strings.add(e.name);
          s.span.task_type = strings.add(e.task_type);
          s.span.tid = e.tid;
          s.span.connection = e.connection;
          s.span.task = e.task;
          out.spans.push_back(s);
          break;
        }
        case 's':
        case 'f': {
          if (e.category != "async_npu" && e.category != "HostToDevice") {
            ++out.other;
            break;
          }
          if (!e.good || !timed || e.id.empty()) {
            ++out.bad;
            break;
          }
          ChunkEvents::Flow f;
          // The two kinds of flow number their ends independently.
          f.end.id = Impl::id_of(e.id) * 2 + (e.category == "HostToDevice");
          f.end.time = *e.ts;
          f.end.tid = e.tid;
          f.pid = e.pid;
          f.from = e.ph == 's';
          out.flows.push_back(f);
          break;
        }
        case 'M':
          if (e.name == "process_name" && e.good)
            out.processes.emplace_back(e.pid, valid_utf8(e.args_name));
          else if (!e.good)
            ++out.bad;
          break;
        case 'C':
          if (e.name == "AI Core Freq" && timed && e.mhz > 0)
            out.frequency.emplace_back(*e.ts, e.mhz);
          else
            ++out.other;
          break;
        case 'i':
        case 'I':
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
    }
    if (document.current_location().error() != simdjson::OUT_OF_BOUNDS)
      return "text after the list of events";
  } catch (const simdjson::simdjson_error& error) {
    return simdjson::error_message(error.error());
  }
  return {};
}

}  // namespace tk

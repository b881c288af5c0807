#include "timeline/load.h"

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/kernel_csv.h"
#include "timeline/side_files.h"
#include "timeline/trace_json.h"

namespace tk {

namespace {

bool looks_collective(std::string_view type) {
  std::string t(type);
  for (char& c : t) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return t.starts_with("hcom") || t.find("hccl") != t.npos;
}

// A recording lasts minutes. Kernels that last longer than a day, or lie more than a day from the
// others, are damage, another collection's, or stand under another column's name: few are left out,
// many refuse the file. Kernels by start.
void drop_strays(Timeline& t, const std::filesystem::path& file) {
  constexpr Ns day = Ns{86'400'000'000'000};
  const std::size_t n = t.kernels.size();
  std::size_t from = 0, to = 0;  // the largest group without such a pause
  for (std::size_t i = 0, begin = 0; i < n; ++i) {
    if (i + 1 < n && t.kernels[i + 1].start - t.kernels[i].start <= day) continue;
    if (i + 1 - begin > to - from) {
      from = begin;
      to = i + 1;
    }
    begin = i + 1;
  }
  std::size_t kept = 0;
  for (std::size_t i = from; i < to; ++i)
    if (t.kernels[i].duration <= day) t.kernels[kept++] = t.kernels[i];
  const std::string found = cat(n - kept, " of ", n,
                                " kernels last longer than a day or lie more than a day from the "
                                "others");
  if ((n - kept) * 100 > n)
    throw UserError("TK0907", found)
        .at(file.string())
        .help(
            "the file is damaged, its columns are under wrong names, or it holds several "
            "collections; take the profiler's own");
  if (kept == n) return;
  t.kernels.resize(kept);
  t.notes.push_back(cat(file.filename().string(), ": ", found, "; they are left out"));
}

// A Level0 table has no cores: collectives are told by their type.
void mark_collectives(Timeline& t) {
  std::vector<signed char> seen(t.strings.size(), -1);
  for (Kernel& k : t.kernels) {
    if (k.core != Core::unknown || k.core_text) continue;
    signed char& is = seen[k.type];
    if (is < 0) is = looks_collective(t.text(k.type));
    if (is) k.core = Core::communication;
  }
}

// Level0 has no Stream ID: the trace's task of equal start and name has it (BD-12).
void streams_from_trace(Timeline& t) {
  if (t.has_stream || t.trace.device.empty()) return;
  std::size_t found = 0;
  std::unordered_multimap<Ns, const TraceSpan*> by_start;
  for (const TraceSpan& s : t.trace.device) by_start.emplace(s.start, &s);
  for (Kernel& k : t.kernels) {
    // The trace's times are rounded elsewhere: one ns either way.
    for (Ns d : {Ns{0}, Ns{-1}, Ns{1}}) {
      auto [from, to] = by_start.equal_range(k.start + d);
      for (; from != to; ++from)
        if (from->second->name == k.name && k.stream == no_stream) {
          k.stream = static_cast<std::int32_t>(from->second->tid);
          ++found;
        }
    }
  }
  if (found == 0) return;
  t.has_stream = true;
  t.notes.push_back(cat("the kernel table has no Stream ID: ", found, " of ", t.kernels.size(),
                        " kernels got theirs from the trace, by start and name"));
}

// Steps of a trace: the host's ProfilerStep ranges say which launches belong to which step; on the
// device a step reaches from its first kernel to the next step's first.
void steps_from_trace(Timeline& t) {
  const auto& steps = t.trace.steps;
  for (const TraceSpan& s : steps) {
    const std::string_view name = t.text(s.name);
    t.steps.emplace_back(name.substr(name.find('#') + 1));
  }
  if (steps.empty()) {
    t.steps = {"-"};
    for (Kernel& k : t.kernels) k.step = 0;
    return;
  }
  t.has_step_column = true;
  for (Kernel& k : t.kernels) {
    const auto after = std::upper_bound(steps.begin(), steps.end(), k.start,
                                        [](Ns at, const TraceSpan& s) { return at < s.start; });
    k.step = after == steps.begin() ? -1 : static_cast<std::int32_t>(after - steps.begin() - 1);
  }
}

void kernels_from_trace(Timeline& t) {
  auto add = [&](const TraceSpan& s, Core core) {
    Kernel k;
    k.start = s.start;
    k.duration = s.duration;
    k.name = s.name;
    k.core_text = s.task_type;
    k.core = core;
    k.type = t.strings.add(normalized_name({}, t.text(s.name)));
    k.row = static_cast<std::uint32_t>(t.kernels.size());
    if (core != Core::communication) {
      k.stream = static_cast<std::int32_t>(s.tid);
      k.has_task = t.has_stream = true;
      k.task = s.task;
    }
    t.kernels.push_back(k);
  };
  for (const TraceSpan& s : t.trace.device)
    if (is_kernel_task(t.text(s.name), t.text(s.task_type))) add(s, core_from(t.text(s.task_type)));
  for (const TraceSpan& s : t.trace.communication)
    if (s.tid == 0 || looks_collective(t.text(s.name))) add(s, Core::communication);
  std::stable_sort(t.kernels.begin(), t.kernels.end(),
                   [](const Kernel& a, const Kernel& b) { return a.start < b.start; });
  std::size_t twins = 0;
  for (std::size_t i = 1; i < t.kernels.size(); ++i) {
    const Kernel &a = t.kernels[i - 1], &b = t.kernels[i];
    twins += a.start == b.start && a.duration == b.duration && a.name == b.name &&
             a.stream == b.stream && a.task == b.task && b.has_task;
  }
  if (twins * 100 > t.kernels.size())
    throw UserError("TK0908", cat(twins, " of ", t.kernels.size(), " device tasks stand twice"))
        .at(t.trace.path)
        .help("the trace was put together from several, or written twice; take the profiler's own");
  for (std::size_t i = 0; i < t.kernels.size(); ++i)
    t.kernels[i].row = static_cast<std::uint32_t>(i);
  t.rows_in_file = t.kernels.size();
  steps_from_trace(t);
  t.notes.push_back(cat("there is no kernel table: ", t.kernels.size(),
                        " kernels were taken from the trace; types are made of names, shapes and "
                        "counters are absent"));
  if (t.kernels.empty())
    throw UserError("TK0907", "the trace holds no device tasks")
        .at(t.trace.path)
        .help("nothing was collected on the device: see `tokamak profile --check`");
  drop_strays(t, t.trace.path);
}

template <class F>
void side(Timeline& t, const std::filesystem::path& path, F read) {
  if (path.empty()) return;
  try {
    read();
  } catch (const UserError& e) {
    t.notes.push_back(cat(path.filename().string(), " is not used: ", e.message()));
  }
}

// A trace of another rank or another run says nothing of this table's kernels: its times lie
// elsewhere, or none of its many launches ends where a kernel begins.
std::string not_of_the_table(const Timeline& t) {
  Ns first = INT64_MAX, last = INT64_MIN;
  for (const TraceChunk& c : t.trace.chunks) {
    first = std::min(first, c.first);
    last = std::max(last, c.last);
  }
  Ns end = 0;
  for (const Kernel& k : t.kernels) end = std::max(end, k.end());
  if (first <= last && (last < t.base_ns || first > t.base_ns + end))
    return "it tells of another time than the kernel table";
  std::unordered_set<Ns> ends;
  for (const FlowEnd& f : t.trace.launch_to)
    if (f.time >= 0 && f.time <= end) ends.insert(f.time);
  if (ends.size() < 20 || ends.size() * 2 < t.kernels.size()) return {};
  const bool meets = std::any_of(t.kernels.begin(), t.kernels.end(), [&](const Kernel& k) {
    return ends.contains(k.start) || ends.contains(k.start - 1) || ends.contains(k.start + 1);
  });
  return meets ? ""
               : cat("none of its ", ends.size(),
                     " launches meets a kernel of the table; is it of another rank?");
}

}  // namespace

bool is_kernel_task(std::string_view name, std::string_view type) {
  for (std::string_view n :
       {"EVENT_RECORD", "EVENT_WAIT", "NOTIFY_RECORD", "NOTIFY_WAIT", "PROFILING_ENABLE",
        "PROFILING_DISABLE", "MODEL_EXECUTE", "MODEL_MAINTAINCE", "MEMCPY_ASYNC"})
    if (name == n) return false;
  for (std::string_view n : {"PLACE_HOLDER_SQE", "EVENT_RECORD_SQE", "EVENT_WAIT_SQE",
                             "NOTIFY_RECORD_SQE", "NOTIFY_WAIT_SQE", "WRITE_VALUE_SQE", "SDMA_SQE",
                             "PCIE_DMA_SQE", "SDMA", "Notify Wait", "Notify Record", "Write Value",
                             "CAPTURE_RECORD_SQE", "CAPTURE_WAIT_SQE", "MODEL_MAINTAINCE_SQE"})
    if (type == n) return false;
  return true;
}

Timeline load_profile(const ProfileFiles& files, const LoadOptions& options) {
  Timeline t;
  side(t, files.info, [&] { t.info = read_profiler_info(files.info, files.metadata); });
  const bool trace = options.trace && !files.trace.empty();
  if (files.kernels.empty() && !trace)
    throw UserError("TK0910", cat("there is no kernel table in ", files.folder.string()))
        .help("do not give --no-trace, or give a folder with kernel_details.csv");
  std::optional<TraceRead> read;
  std::exception_ptr trace_error;
  auto read_it = [&] {
    try {
      // A table that has streams has all that is asked of kernels.
      const bool kernels = files.kernels.empty() || kernel_header(csv_header(files.kernels)).level0;
      read = read_trace(files.trace, {options.allow_truncated, 0, 2, kernels});
    } catch (...) {
      trace_error = std::current_exception();
    }
  };
  std::thread other;
  if (trace && !files.kernels.empty())
    other = std::thread(read_it);
  else if (trace)
    read_it();
  std::exception_ptr kernel_error;
  try {
    if (!files.kernels.empty()) read_kernel_csv(files.kernels, {options.allow_truncated}, t);
  } catch (...) {
    kernel_error = std::current_exception();
  }
  if (other.joinable()) other.join();
  if (kernel_error) std::rethrow_exception(kernel_error);
  if (trace_error) std::rethrow_exception(trace_error);
  if (!files.kernels.empty()) {
    drop_strays(t, files.kernels);
    const Ns first = t.kernels.front().start;
    t.base_ns += first;
    for (Kernel& k : t.kernels) k.start -= first;
  }
  if (read) merge_trace(std::move(*read), t);
  if (read && !files.kernels.empty())
    if (const std::string why = not_of_the_table(t); !why.empty()) {
      t.trace = {};
      t.notes.push_back(cat(files.trace.filename().string(), " is not used: ", why));
    }
  if (files.kernels.empty()) kernels_from_trace(t);
  mark_collectives(t);
  streams_from_trace(t);
  side(t, files.step_trace, [&] { t.step_times = read_step_trace(files.step_trace); });
  side(t, files.communication, [&] { t.collectives = read_communication(files.communication); });
  if (!t.info.producer.empty()) {
    const bool simulated = t.info.producer.find("simulate") != std::string::npos;
    t.origin.kind = simulated ? "simulated" : "cpu";
    t.origin.detail = t.info.producer;
  }
  return t;
}

}  // namespace tk

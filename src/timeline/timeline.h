// The Timeline: what happened on a device, span by span. Times are int64 ns from `base_ns`, streams
// are ids, texts live once in a pool. Read from profiler files (load.h), written by writer.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "timeline/input.h"
#include "timeline/strings.h"

namespace tk {

using Ns = std::int64_t;

enum class Core : std::uint8_t {
  unknown,  // not collected, or a name we do not know: counts as compute
  ai_core,
  ai_vector,
  mix_aic,
  mix_aiv,
  ai_cpu,
  communication,
  dsa,
  other,  // DVPP, SDMA, FFTS+ ...
};
std::string_view core_name(Core core);
Core core_from(std::string_view text);  // unknown for N/A
inline bool is_communication(Core core) { return core == Core::communication; }

constexpr std::int32_t no_stream = -1;

// One kernel on the device (a row of kernel_details.csv).
struct Kernel {
  Ns start = 0, duration = 0;  // start from Timeline::base_ns
  StringId name = 0;           // as the profiler wrote it
  StringId type = 0;           // normalized (BD-15)
  StringId core_text = 0;
  StringId in_shapes = 0, out_shapes = 0;  // "1,1024;1024", without quotes; 0: not collected
  StringId in_types = 0;
  StringId module = 0;  // path in the model, where known
  Core core = Core::unknown;
  bool has_task = false;  // Stream ID or Task ID was there
  std::int32_t stream = no_stream;
  std::int32_t device = 0;
  std::int32_t step = -1;    // index into Timeline::steps; -1: in no step
  std::uint32_t row = 0;     // data row of the CSV, from 0
  std::uint32_t blocks = 0;  // cores used
  std::int64_t task = -1;
  Ns wait_file = -1;  // Wait Time as written; -1: not collected
  Ns end() const { return start + duration; }
};

// The CSV text the kernels came from, so that no cell is copied that nobody asks for.
struct KernelTable {
  Buffer file;
  std::string path;
  std::vector<std::string> columns;      // as kernel_details.csv names them
  std::vector<std::string> header;       // as this file names them
  std::string header_line;               // its bytes
  std::vector<std::uint64_t> row_begin;  // offset of data row i; one more at the end
  // The cells of one row, unquoted, empty where not collected is written.
  std::vector<std::string> cells(std::uint32_t row) const;
  std::string cell(std::uint32_t row, int column) const;
  std::string_view line(std::uint32_t row) const;  // its bytes, without the line end
  int column(std::string_view name) const;
};

// A span of trace_view.json.
struct TraceSpan {
  Ns start = 0, duration = 0;
  StringId name = 0;
  StringId task_type = 0;
  std::int32_t lane = 0;  // index into Trace::lanes
  std::int64_t tid = 0;   // stream, thread or plane
  std::int64_t connection = -1;
  std::int64_t task = -1;
  Ns end() const { return start + duration; }
};

enum class LaneKind : std::uint8_t { other, python, cann, device, communication };

struct TraceLane {
  std::int64_t pid = 0;
  std::string name;  // process_name; empty: not written
  LaneKind kind = LaneKind::other;
};

struct FlowEnd {
  std::uint64_t id = 0;
  Ns time = 0;
  std::int64_t tid = 0;
};

// A piece of the file that holds whole events, so that the part of a step can be read again.
struct TraceChunk {
  std::uint64_t offset = 0, size = 0;      // bytes of the (unpacked) file
  Ns first = INT64_MAX, last = INT64_MIN;  // of its spans, absolute
  bool metadata = false;                   // has events without a span
};

struct Trace {
  std::string path;
  std::uint64_t bytes = 0;
  std::uint64_t events = 0, bad_events = 0;
  std::uint64_t host_events = 0, other_events = 0;  // counted, not kept
  bool truncated = false;
  std::vector<TraceChunk> chunks;  // in the order of the file
  std::vector<TraceLane> lanes;
  // Kernels are in both only where no kernel table has them.
  std::vector<TraceSpan> device;                 // Ascend Hardware
  std::vector<TraceSpan> communication;          // tid 0: one span per collective; above: planes
  std::vector<TraceSpan> steps;                  // ProfilerStep#n
  std::vector<FlowEnd> launch_from, launch_to;   // host to device (async_npu, HostToDevice)
  std::vector<std::pair<Ns, double>> frequency;  // AI Core Freq, MHz
};

// One row of step_trace_time.csv, ns.
struct StepTime {
  std::string device, step;
  double computing = 0, communication_not_overlapped = 0, overlapped = 0, communication = 0;
  double free = 0, stage = 0, bubble = 0, preparing = 0;
};

// One collective of communication.json, ns.
struct CollectiveTime {
  std::string step, name, group;
  double start = 0;  // absolute, a double in the file: for display only
  double elapse = 0, transit = 0, wait = 0, synchronization = 0, idle = 0;
  double megabytes = 0, bandwidth = 0;  // over all links; GB/s
};

struct Origin {
  std::string kind = "measured";  // measured, simulated, cpu
  std::string detail;             // device and cost model, or the host
};

struct ProfilerInfo {
  bool present = false;
  std::string level, metrics;  // Level1, PipeUtilization ("" unknown)
  std::optional<int> rank;
  std::string torch_npu_version, cann_version, producer;
  int wait = -1, warmup = -1, active = -1, repeat = -1, skip_first = -1;
  int world_size = 0;
  std::optional<bool> record_shapes, with_stack;
};

struct Timeline {
  StringPool strings;
  Ns base_ns = 0;                  // absolute ns of the first start
  std::vector<Kernel> kernels;     // by start, then row
  std::vector<std::string> steps;  // Step Id texts, by value; "-" if there is no such column
  bool has_step_column = false, has_stream = false, has_type = false, has_shapes = false;
  bool has_device_column = false;
  std::shared_ptr<const KernelTable> table;  // absent for a Timeline that was not read from CSV
  std::size_t rows_in_file = 0, rows_dropped = 0;
  std::vector<std::size_t> dropped_lines;  // first 20
  std::vector<std::string> notes;          // what the reader wants a person to know
  Trace trace;
  std::vector<StepTime> step_times;
  std::vector<CollectiveTime> collectives;
  ProfilerInfo info;
  Origin origin;

  std::string_view text(StringId id) const { return strings[id]; }
  std::string absolute_us(Ns start) const;  // decimal us since 1970
};

// Type if it is there, else made of Name (BD-15).
std::string normalized_name(std::string_view type, std::string_view name);

}  // namespace tk

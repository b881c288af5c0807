#include "timeline/writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "timeline/artifacts.h"
#include "timeline/decimal.h"
#include "timeline/overview.h"
#include "timeline/steps.h"

namespace tk {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view columns =
    "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start "
    "Time(us),Duration(us),Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,"
    "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output "
    "Formats,Context ID,aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio,"
    "aic_scalar_time(us),aic_scalar_ratio,aic_mte1_time(us),aic_mte1_ratio,aic_mte2_time(us),aic_"
    "mte2_ratio,aic_fixpipe_time(us),aic_fixpipe_ratio,aic_icache_miss_rate,"
    "aiv_time(us),aiv_total_cycles,aiv_vec_time(us),aiv_vec_ratio,aiv_scalar_time(us),aiv_scalar_"
    "ratio,aiv_mte2_time(us),aiv_mte2_ratio,aiv_mte3_time(us),aiv_mte3_ratio,"
    "aiv_icache_miss_rate,cube_utilization(%)";
constexpr int counters = 25;  // behind Context ID

std::string cell(std::string_view text) {
  if (text.empty()) return "N/A";
  if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
  std::string out = "\"";
  for (char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::string shapes(std::string_view text) {
  return text.empty() ? "N/A" : cat("\"\"\"", text, "\"\"\"");
}

// The columns behind Context ID. Total cycles are those of all cores that the kernel ran on;
// cube_utilization is of all that the device has (as the profiler has it: cycles over frequency,
// cores and Duration).
std::string counter_cells(const PipeCounters& c, Ns duration) {
  std::string out;
  const auto time = [&](double us) { out += us < 0 ? ",N/A" : fmt::format(",{:.3f}", us); };
  const auto share = [&](double us, double of) {
    time(us);
    out += us < 0 ? ",N/A" : fmt::format(",{:.3f}", of > 0 ? us / of : 0.0);
  };
  const auto cycles = [&](double us, int cores) {
    const long long n = std::llround(std::max(0.0, us) * c.mhz * cores);
    out += us < 0 ? ",N/A" : fmt::format(",{}", n);
    return static_cast<double>(n);
  };
  constexpr double unknown = -1;
  time(c.aicore);
  const double cube_cycles = cycles(c.aicore, c.cubes);
  share(c.mac, c.aicore);
  share(unknown, c.aicore);  // scalar
  share(unknown, c.aicore);  // mte1
  share(c.aic_mte2, c.aicore);
  share(unknown, c.aicore);  // fixpipe
  out += ",N/A";             // icache
  time(c.aiv);
  cycles(c.aiv, c.vectors);
  share(c.vec, c.aiv);
  share(unknown, c.aiv);
  share(c.aiv_mte2, c.aiv);
  share(c.aiv_mte3, c.aiv);
  out += ",N/A";
  const double most = c.mhz * c.cubes_of_device * static_cast<double>(duration) / 1e3;
  out += c.aicore < 0 || most <= 0 ? ",N/A" : fmt::format(",{:.3f}", 100 * cube_cycles / most);
  return out;
}

// VN-26: of a mix the cores of the side that follows, beside Block Num of the one that leads.
int mixed_blocks(const Kernel& k, const PipeCounters* c) {
  if (c == nullptr) return 0;
  if (k.core == Core::mix_aic) return c->vectors;
  return k.core == Core::mix_aiv ? c->cubes : 0;
}

std::string kernel_csv(const Timeline& t, const std::vector<PipeCounters>& collected) {
  const auto waits = wait_times(t);
  bool modules = false;
  for (const Kernel& k : t.kernels) modules = modules || k.module;
  std::string out = cat(columns, modules ? ",Module" : "", "\n");
  std::string none;
  for (int i = 0; i < counters; ++i) none += ",N/A";
  for (std::size_t i = 0; i < t.kernels.size(); ++i) {
    const Kernel& k = t.kernels[i];
    const std::string step = k.step < 0 ? "" : t.steps[static_cast<std::size_t>(k.step)];
    out += fmt::format(
        "{},{},4294967295,{},{},{},{},{},{},{}\t,{},{},{},{},N/A,{},{},N/A,{},N/A,N/A,N/A{}", step,
        k.device,
        k.task >= 0  ? std::to_string(k.task)
        : k.has_task ? std::to_string(i)
                     : "N/A",
        k.stream >= 0 ? std::to_string(k.stream) : "N/A", cell(t.text(k.name)),
        cell(t.text(k.type)), k.has_task ? "dynamic" : "N/A", cell(t.text(k.core_text)),
        t.absolute_us(k.start), ns_to_us(k.duration), ns_to_us(waits[i]), k.blocks,
        mixed_blocks(k, i < collected.size() ? &collected[i] : nullptr),
        shapes(t.text(k.in_shapes)), cell(t.text(k.in_types)), shapes(t.text(k.out_shapes)),
        i < collected.size() && collected[i].collected() ? counter_cells(collected[i], k.duration)
                                                         : none);
    if (modules) out += cat(',', cell(t.text(k.module)));
    out += '\n';
  }
  return out;
}

std::string trace_json(const Timeline& t, const std::vector<StepSummary>& steps) {
  const auto stream_tid = [](const Kernel& k) { return k.stream; };
  constexpr int host = 1, device = 2, comm = 3, overlap = 4;
  std::string out = "[";
  bool first = true;
  auto event = [&](const std::string& text) {
    out += first ? "\n" : ",\n";
    first = false;
    out += text;
  };
  auto process = [&](int pid, const char* name, int order) {
    event(
        fmt::format("{{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": {}, \"tid\": 0, "
                    "\"args\": {{\"name\": \"{}\"}}}}",
                    pid, name));
    event(
        fmt::format("{{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": {}, \"tid\": 0, "
                    "\"args\": {{\"sort_index\": {}}}}}",
                    pid, order));
  };
  process(host, "Python", 0);
  process(device, "Ascend Hardware", 13);
  process(comm, "Communication", 15);
  process(overlap, "Overlap Analysis", 23);
  for (const auto& [time, mhz] : t.trace.frequency)
    event(
        fmt::format("{{\"ph\": \"C\", \"name\": \"AI Core Freq\", \"pid\": {}, \"tid\": 0, \"ts\": "
                    "\"{}\", \"args\": {{\"MHz\": {}}}}}",
                    device, t.absolute_us(time), mhz));
  for (const StepSummary& s : steps)
    if (s.kernels && t.has_step_column) {
      std::string name;
      append_json_text(name, cat("ProfilerStep#", s.name));
      event(
          fmt::format("{{\"ph\": \"X\", \"name\": {}, \"pid\": {}, \"tid\": 1, \"ts\": \"{}\", "
                      "\"dur\": {}, \"cat\": \"cpu_op\", \"args\": {{}}}}",
                      name, host, t.absolute_us(s.first), ns_to_us(s.last - s.first)));
    }
  for (const Kernel& k : t.kernels) {
    std::string name, core;
    append_json_text(name, t.text(k.name));
    append_json_text(core, t.text(k.core_text));
    const bool collective = k.core == Core::communication;
    event(fmt::format(
        "{{\"ph\": \"X\", \"name\": {}, \"pid\": {}, \"tid\": {}, \"ts\": \"{}\", \"dur\": {}, "
        "\"args\": {{\"Task Type\": {}, \"Physic Stream Id\": {}, \"Task Id\": {}}}}}",
        name, collective ? comm : device, collective ? 0 : stream_tid(k), t.absolute_us(k.start),
        ns_to_us(k.duration), core, k.stream, k.task));
  }
  out += "\n]\n";
  return out;
}

std::string op_statistic(const Timeline& t) {
  struct Sum {
    std::size_t n = 0;
    Ns sum = 0, low = INT64_MAX, high = 0;
  };
  std::map<std::pair<std::string_view, std::string_view>, Sum> all;
  Ns whole = 0;
  for (const Kernel& k : t.kernels) {
    Sum& s = all[{t.text(k.type), t.text(k.core_text)}];
    ++s.n;
    s.sum += k.duration;
    s.low = std::min(s.low, k.duration);
    s.high = std::max(s.high, k.duration);
    whole += k.duration;
  }
  std::string out =
      "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max "
      "Time(us),Ratio(%)\n";
  for (const auto& [key, s] : all)
    out +=
        fmt::format("0,{},{},{},{},{},{:.3f},{},{:.3f}\n", cell(key.first), cell(key.second), s.n,
                    ns_to_us(s.sum), ns_to_us(s.low),
                    static_cast<double>(s.sum) / 1e3 / static_cast<double>(s.n), ns_to_us(s.high),
                    whole ? 100.0 * static_cast<double>(s.sum) / static_cast<double>(whole) : 0.0);
  return out;
}

std::string step_trace(const std::vector<StepSummary>& steps) {
  std::string out =
      "Device_id,Step,Computing,Communication(Not "
      "Overlapped),Overlapped,Communication,Free,Stage,Bubble,Communication(Not Overlapped and "
      "Exclude Receive),Preparing\n";
  for (const StepSummary& s : steps)
    if (s.kernels)
      out += fmt::format("0,{},{},{},{},{},{},{},{},{},0\n", s.name == "-" ? "" : s.name,
                         ns_to_us(s.computing), ns_to_us(s.exposed), ns_to_us(s.overlapped),
                         ns_to_us(s.communication), ns_to_us(s.free), ns_to_us(s.stage),
                         ns_to_us(s.bubble), ns_to_us(s.exposed - s.bubble));
  return out;
}

// One row per kernel: here the operator is its kernel. What a host did is not in a Timeline of
// ours.
std::string operator_details(const Timeline& t) {
  std::string out =
      "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us),Device Self "
      "Duration(us),Device Total Duration(us),Device Self Duration With AICore(us),Device Total "
      "Duration With AICore(us)\n";
  for (const Kernel& k : t.kernels) {
    const std::string us = ns_to_us(k.duration);
    const bool cube = k.core == Core::ai_core || k.core == Core::mix_aic || k.core == Core::mix_aiv;
    out += fmt::format("{},{},{},N/A,N/A,{},{},{},{}\n", cell(t.text(k.type)),
                       shapes(t.text(k.in_shapes)), cell(t.text(k.module)), us, us,
                       cube ? us : "N/A", cube ? us : "N/A");
  }
  return out;
}

// Collectives by step; waiting, transfer and volume where the Timeline knows them, else left out.
nlohmann::json communication(const Timeline& t) {
  nlohmann::json root = nlohmann::json::object();
  std::map<std::string, int> count;
  std::map<std::pair<std::string, std::string>, const CollectiveTime*> inside;  // step, name
  for (const CollectiveTime& c : t.collectives) inside.emplace(std::pair(c.step, c.name), &c);
  for (const Kernel& k : t.kernels) {
    if (k.core != Core::communication || k.step < 0) continue;
    const std::string& step = t.steps[static_cast<std::size_t>(k.step)];
    nlohmann::json& entry = root[step == "-" ? "step" : cat("step", step)];
    if (entry.is_null())
      entry = {{"p2p", nlohmann::json::object()}, {"collective", nlohmann::json::object()}};
    const std::string name(t.text(k.name));
    const bool p2p = name.find("send") != name.npos || name.find("receive") != name.npos;
    const int n = count[cat(step, '/', name)]++;
    nlohmann::json times = {{"Start Timestamp(us)", static_cast<double>(t.base_ns + k.start) / 1e3},
                            {"Elapse Time(ms)", static_cast<double>(k.duration) / 1e6}};
    const std::string key = n ? cat(name, "#", n) : name;
    std::string group = "0";
    nlohmann::json links;
    if (const auto it = inside.find({step == "-" ? "" : step, key}); it != inside.end()) {
      const CollectiveTime& c = *it->second;
      const double known = c.wait + c.transit;
      if (!c.group.empty()) group = c.group;
      times["Transit Time(ms)"] = c.transit / 1e6;
      times["Wait Time(ms)"] = c.wait / 1e6;
      times["Synchronization Time(ms)"] = c.synchronization / 1e6;
      times["Idle Time(ms)"] = c.idle / 1e6;
      times["Wait Time Ratio"] = known > 0 ? c.wait / known : 0;
      times["Synchronization Time Ratio"] =
          c.synchronization > 0 ? c.synchronization / (c.synchronization + c.transit) : 0;
      if (c.megabytes > 0)
        links["SDMA"] = {{"Transit Size(MB)", c.megabytes},
                         {"Transit Time(ms)", c.transit / 1e6},
                         {"Bandwidth(GB/s)", c.bandwidth}};
    }
    nlohmann::json& body = entry[p2p ? "p2p" : "collective"][cat(key, '@', group)];
    body["Communication Time Info"] = std::move(times);
    if (!links.is_null()) body["Communication Bandwidth Info"] = std::move(links);
  }
  return root;
}

}  // namespace

fs::path write_profile(const Timeline& t, const fs::path& folder, const WriteOptions& o) {
  TK_CHECK(!o.producer.empty(), "a written profile says who made it");
  char host[65] = "host";
  gethostname(host, sizeof host - 1);
  std::string name(host);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-') c = '-';
  const std::time_t now = std::time(nullptr);
  char when[32];
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::strftime(when, sizeof when, "%Y%m%d%H%M%S000", &parts);
  const fs::path root = folder / fmt::format("{}_{}_{}_ascend_pt", name, getpid(), when);
  const fs::path out = root / "ASCEND_PROFILER_OUTPUT";
  std::error_code error;
  fs::create_directories(out, error);
  if (error) throw UserError("TK0103", cat("cannot write ", out.string(), ": ", error.message()));
  const auto by_step = kernels_by_step(t);
  const auto steps = summarize_steps(t, by_step);
  write_file(out / "kernel_details.csv", kernel_csv(t, o.counters));
  write_file(out / "trace_view.json", trace_json(t, steps));
  write_file(out / "op_statistic.csv", op_statistic(t));
  write_file(out / "step_trace_time.csv", step_trace(steps));
  write_file(out / "operator_details.csv", operator_details(t));
  if (const nlohmann::json all = communication(t); !all.empty())
    write_json(out / "communication.json", all);
  using nlohmann::json;
  const json config = {
      {"common_config",
       {{"record_shapes", true},
        {"with_stack", false},
        {"schedule",
         {{"wait", 0},
          {"warmup", 0},
          {"active", t.steps.size()},
          {"repeat", 1},
          {"skip_first", 0}}}}},
      {"experimental_config", {{"_profiler_level", o.level}, {"_aic_metrics", "ACL_AICORE_NONE"}}}};
  write_json(root / fmt::format("profiler_info_{}.json", o.rank),
             {{"config", config}, {"rank_id", o.rank}, {"producer", o.producer}});
  json metadata = {{"ENV_VARIABLES", json::object()}, {"producer", o.producer}};
  if (o.world_size > 0)
    metadata["distributed_info"] = {{"world_size", o.world_size}, {"rank", o.rank}};
  write_json(root / "profiler_metadata.json", metadata);
  return root;
}

Timeline make_timeline(const std::vector<KernelText>& kernels, Ns base_ns) {
  Timeline t;
  t.base_ns = base_ns;
  t.has_step_column = t.has_stream = t.has_type = true;
  std::map<int, std::int32_t> steps;
  for (const KernelText& k : kernels) steps.emplace(k.step, 0);
  for (auto& [number, index] : steps) {
    index = static_cast<std::int32_t>(t.steps.size());
    t.steps.push_back(std::to_string(number));
  }
  for (const KernelText& from : kernels) {
    Kernel k;
    k.start = from.start;
    k.duration = from.duration;
    k.name = t.strings.add(from.name);
    k.type = t.strings.add(from.type);
    k.core_text = t.strings.add(from.core);
    k.core = core_from(from.core);
    k.in_shapes = t.strings.add(from.in_shapes);
    k.out_shapes = t.strings.add(from.out_shapes);
    k.in_types = t.strings.add(from.in_types);
    k.module = t.strings.add(from.module);
    k.stream = from.stream;
    k.has_task = from.stream >= 0;
    k.step = steps[from.step];
    k.blocks = from.blocks;
    t.has_shapes = t.has_shapes || k.in_shapes;
    t.kernels.push_back(k);
  }
  std::stable_sort(t.kernels.begin(), t.kernels.end(),
                   [](const Kernel& a, const Kernel& b) { return a.start < b.start; });
  for (std::size_t i = 0; i < t.kernels.size(); ++i) {
    t.kernels[i].row = static_cast<std::uint32_t>(i);
    t.kernels[i].task = t.kernels[i].has_task ? static_cast<std::int64_t>(i) : -1;
  }
  t.rows_in_file = t.kernels.size();
  return t;
}

}  // namespace tk

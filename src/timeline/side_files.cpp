#include "timeline/side_files.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "timeline/csv.h"
#include "timeline/decimal.h"

namespace tk {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

json read_json(const fs::path& path) {
  const Buffer file = read_whole(path, std::uint64_t{256} << 20);
  std::string text = is_utf8(file.text()) ? std::string(file.text()) : valid_utf8(file.text());
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded())
    throw UserError("TK0911", "the file is no valid JSON; it is cut or damaged")
        .at(path.string())
        .help("copy it again, or remove it: it is not needed for a breakdown");
  return value;
}

int need(const CsvTable& table, const fs::path& path, std::string_view name) {
  const int column = table.column(name);
  if (column < 0) {
    std::string found;
    for (const std::string& h : table.header)
      found += cat(found.empty() ? "" : ", ", h.substr(0, 60));
    throw UserError("TK0911", cat("column ", name, " is missing"))
        .at(path.string(), 1)
        .note(cat("columns found: ", found.substr(0, 600)))
        .help("take the profiler's own file, or remove it: it is not needed for a breakdown");
  }
  return column;
}

double number(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : 0;
}

std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
  return {};
}

int int_of(const json& object, const char* key, int otherwise) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_integer() ? it->get<int>() : otherwise;
}

}  // namespace

std::vector<StepTime> read_step_trace(const fs::path& path) {
  const CsvTable table = CsvTable::read(path);
  const int step = need(table, path, "Step"), computing = need(table, path, "Computing");
  const int exposed = need(table, path, "Communication(Not Overlapped)");
  const int free = need(table, path, "Free");
  const int overlapped = table.column("Overlapped"), communication = table.column("Communication");
  const int stage = table.column("Stage"), bubble = table.column("Bubble");
  const int preparing = table.column("Preparing"), device = table.column("Device_id");
  std::vector<StepTime> out;
  for (const auto& row : table.rows) {
    auto ns = [&](int column) {
      return column < 0 ? 0.0
                        : decimal_double(row[static_cast<std::size_t>(column)]).value_or(0) * 1e3;
    };
    StepTime s;
    s.step = row[static_cast<std::size_t>(step)];
    if (is_missing(s.step)) s.step = "-";
    if (device >= 0) s.device = row[static_cast<std::size_t>(device)];
    s.computing = ns(computing);
    s.communication_not_overlapped = ns(exposed);
    s.overlapped = ns(overlapped);
    s.communication = ns(communication);
    s.free = ns(free);
    s.stage = ns(stage);
    s.bubble = ns(bubble);
    s.preparing = ns(preparing);
    out.push_back(s);
  }
  return out;
}

std::vector<CollectiveTime> read_communication(const fs::path& path) {
  const json root = read_json(path);
  if (!root.is_object())
    throw UserError("TK0911", "the file holds no object of steps").at(path.string());
  std::vector<CollectiveTime> out;
  for (const auto& [step, kinds] : root.items()) {
    if (!kinds.is_object()) continue;
    for (const auto& [kind, ops] : kinds.items()) {
      if (!ops.is_object()) continue;
      for (const auto& [op, body] : ops.items()) {
        if (op == "Total Op Info" || !body.is_object()) continue;
        const auto times = body.find("Communication Time Info");
        if (times == body.end() || !times->is_object()) continue;
        CollectiveTime c;
        c.step = step.starts_with("step") ? step.substr(4) : step;
        const std::size_t at = op.find('@');
        c.name = op.substr(0, at);
        if (at != op.npos) c.group = op.substr(at + 1);
        c.start = number(*times, "Start Timestamp(us)") * 1e3;
        c.elapse = number(*times, "Elapse Time(ms)") * 1e6;
        c.transit = number(*times, "Transit Time(ms)") * 1e6;
        c.wait = number(*times, "Wait Time(ms)") * 1e6;
        c.synchronization = number(*times, "Synchronization Time(ms)") * 1e6;
        c.idle = number(*times, "Idle Time(ms)") * 1e6;
        // SDMA is the sum of HCCS, PCIE and SIO. The time above may leave it out (CANN 8.3 writes
        // 0 where HCCS moved 440 MB).
        const auto links = body.find("Communication Bandwidth Info");
        double on_links = 0;
        if (links != body.end() && links->is_object())
          for (const auto& [link, data] : links->items())
            if (data.is_object() && (link == "SDMA" || link == "RDMA")) {
              c.megabytes += number(data, "Transit Size(MB)");
              c.bandwidth = std::max(c.bandwidth, number(data, "Bandwidth(GB/s)"));
              on_links += number(data, "Transit Time(ms)") * 1e6;
            }
        if (c.transit <= 0) c.transit = std::min(on_links, c.elapse);
        out.push_back(std::move(c));
      }
    }
  }
  return out;
}

ProfilerInfo read_profiler_info(const fs::path& info, const fs::path& metadata) {
  ProfilerInfo out;
  if (!info.empty()) {
    const json root = read_json(info);
    if (!root.is_object()) throw UserError("TK0911", "the file holds no object").at(info.string());
    out.present = true;
    auto part = [&](const json& from, const char* key) {
      const auto it = from.find(key);
      return it != from.end() && it->is_object() ? *it : json::object();
    };
    const json config = part(root, "config");
    const json common = part(config, "common_config"), extra = part(config, "experimental_config");
    if (extra.contains("_profiler_level")) out.level = text_of(extra["_profiler_level"]);
    if (extra.contains("_aic_metrics")) {
      const std::string m = text_of(extra["_aic_metrics"]);
      struct Name {
        const char *seen, *ours;
      };
      constexpr Name names[] = {{"ACL_AICORE_PIPE_UTILIZATION", "PipeUtilization"},
                                {"ACL_AICORE_ARITHMETIC_UTILIZATION", "ArithmeticUtilization"},
                                {"ACL_AICORE_MEMORY_BANDWIDTH", "Memory"},
                                {"ACL_AICORE_L0B_AND_WIDTH", "MemoryL0"},
                                {"ACL_AICORE_MEMORY_UB", "MemoryUB"},
                                {"ACL_AICORE_RESOURCE_CONFLICT_RATIO", "ResourceConflictRatio"},
                                {"ACL_AICORE_L2_CACHE", "L2Cache"},
                                {"ACL_AICORE_MEMORY_ACCESS", "MemoryAccess"},
                                {"ACL_AICORE_NONE", "none"}};
      out.metrics = m;
      for (const Name& n : names)
        if (m == n.seen) out.metrics = n.ours;
    }
    const json schedule = part(common, "schedule");
    out.wait = int_of(schedule, "wait", -1);
    out.warmup = int_of(schedule, "warmup", -1);
    out.active = int_of(schedule, "active", -1);
    out.repeat = int_of(schedule, "repeat", -1);
    out.skip_first = int_of(schedule, "skip_first", -1);
    if (common.contains("record_shapes") && common["record_shapes"].is_boolean())
      out.record_shapes = common["record_shapes"].get<bool>();
    if (common.contains("with_stack") && common["with_stack"].is_boolean())
      out.with_stack = common["with_stack"].get<bool>();
    if (root.contains("rank_id"))
      if (const auto r = decimal_int(text_of(root["rank_id"])); r && *r >= 0 && *r < 1000000)
        out.rank = static_cast<int>(*r);
    if (root.contains("torch_npu_version"))
      out.torch_npu_version = text_of(root["torch_npu_version"]);
    if (root.contains("cann_version")) out.cann_version = text_of(root["cann_version"]);
    if (root.contains("producer")) out.producer = text_of(root["producer"]);
  }
  if (!metadata.empty()) {
    const json root = read_json(metadata);
    for (const char* key : {"distributed_args", "distributed_info"})
      if (root.is_object() && root.contains(key) && root[key].is_object())
        out.world_size = int_of(root[key], "world_size", out.world_size);
  }
  return out;
}

std::vector<OpStatistic> read_op_statistic(const fs::path& path) {
  const CsvTable table = CsvTable::read(path);
  const int type = need(table, path, "OP Type"), count = need(table, path, "Count");
  const int sum = need(table, path, "Total Time(us)"), core = table.column("Core Type");
  const int low = table.column("Min Time(us)"), high = table.column("Max Time(us)");
  const int avg = table.column("Avg Time(us)");
  std::vector<OpStatistic> out;
  for (const auto& row : table.rows) {
    auto value = [&](int c) {
      return c < 0 ? 0.0 : decimal_double(row[static_cast<std::size_t>(c)]).value_or(0);
    };
    OpStatistic s;
    s.type = row[static_cast<std::size_t>(type)];
    if (core >= 0) s.core = row[static_cast<std::size_t>(core)];
    s.count = decimal_int(row[static_cast<std::size_t>(count)]).value_or(0);
    s.total_us = value(sum);
    s.min_us = value(low);
    s.avg_us = value(avg);
    s.max_us = value(high);
    out.push_back(std::move(s));
  }
  return out;
}

}  // namespace tk

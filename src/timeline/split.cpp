#include "timeline/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "timeline/artifacts.h"
#include "timeline/decimal.h"
#include "timeline/split_trace.h"

namespace tk {

using nlohmann::json;

namespace {

std::string safe(std::string text) {
  for (char& c : text)
    if (!(std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.')) c = '_';
  return text;
}

struct Target {
  std::string folder, kind;
  std::vector<std::uint32_t> ops;
};

// Unowned operators in runs: before the first component, after the last, between two.
std::vector<Target> targets(const Timeline& t, const StepOps& ops, const Structure& s) {
  std::vector<Target> out;
  for (const Component& c : s.components) out.push_back({split_folder(c), "component", c.ops});
  auto add = [&](const std::vector<std::uint32_t>& v, const std::string& folder, const char* kind) {
    if (!v.empty()) out.push_back({folder, kind, v});
  };
  if (s.components.empty()) {
    std::vector<std::uint32_t> all;
    for (std::uint32_t i = 0; i < ops.size(); ++i) all.push_back(i);
    add(all, cat("gap_0_", ops.size() - 1), "unmatched");
    return out;
  }
  add(s.pre, "pre", "unmatched");
  add(s.post, "post", "unmatched");
  // Between: by the component that began last before it, in time.
  std::vector<std::size_t> order(s.components.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  auto start = [&](std::uint32_t op) { return t.kernels[ops.ops[op]].start; };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return start(s.components[a].ops.front()) < start(s.components[b].ops.front());
  });
  std::map<std::size_t, std::vector<std::uint32_t>> gaps;
  for (std::uint32_t op : s.between) {
    std::size_t place = 0;
    while (place + 1 < order.size() &&
           start(s.components[order[place + 1]].ops.front()) <= start(op))
      ++place;
    gaps[place].push_back(op);
  }
  for (const auto& [place, v] : gaps) {
    const std::string before = split_folder(s.components[order[place]]);
    add(v,
        place + 1 < order.size()
            ? cat("gap_", before, "_to_", split_folder(s.components[order[place + 1]]))
            : cat("gap_after_", before),
        "unmatched");
  }
  return out;
}

std::string trace_text(const Timeline& t, const StepOps& ops,
                       const std::vector<std::uint32_t>& members) {
  std::string out =
      "[\n{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 1, \"tid\": 0, \"args\": {\"name\": "
      "\"Ascend Hardware\"}}";
  std::map<std::int32_t, std::int64_t> tids;
  for (std::uint32_t op : members) {
    const std::int32_t stream = ops.streams[op];
    const std::int64_t tid = stream >= 0 ? stream : 1000000 - stream;
    if (tids.emplace(stream, tid).second) {
      out += fmt::format(
          ",\n{{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": {}, \"args\": "
          "{{\"name\": ",
          tid);
      append_json_text(out, stream >= 0 ? cat("Stream ", stream) : ops.stream_name(stream));
      out += "}}";
    }
    const Kernel& k = t.kernels[ops.ops[op]];
    out += ",\n{\"ph\": \"X\", \"name\": ";
    append_json_text(out, t.text(k.name));
    out += fmt::format(
        ", \"pid\": 1, \"tid\": {}, \"ts\": \"{}\", \"dur\": {}, \"args\": {{\"Type\": ", tid,
        t.absolute_us(k.start), ns_to_us(k.duration));
    append_json_text(out, t.text(k.type));
    out += fmt::format(", \"org_index\": {}}}}}", k.row);
  }
  return out + "\n]\n";
}

}  // namespace

std::string split_folder(const Component& c) {
  return safe(fmt::format("L{:03}_{}_{}", c.layer, c.phase, c.type));
}

void write_splits(const std::filesystem::path& run, const Timeline& t, const StepOps& ops,
                  const Structure& s) {
  std::vector<Target> all = targets(t, ops, s);
  std::vector<int> claims(ops.size());
  std::set<std::string> names;
  for (Target& target : all) {
    for (std::uint32_t op : target.ops) {
      if (op >= ops.size() || claims[op]++)
        TK_CHECK(false, "operator ", op, " lies in two components or in none that exists");
    }
    if (!names.insert(target.folder).second) {
      target.folder += cat("_", *std::min_element(target.ops.begin(), target.ops.end()), "_",
                           *std::max_element(target.ops.begin(), target.ops.end()));
      names.insert(target.folder);
    }
  }
  for (std::size_t op = 0; op < claims.size(); ++op)
    if (!claims[op]) TK_CHECK(false, "operator ", op, " lies in no component and in no gap");
  json list = json::array();
  std::vector<TraceWindow> windows;
  for (const Target& target : all) {
    std::vector<std::uint32_t> sorted = target.ops;
    std::sort(sorted.begin(), sorted.end());
    Ns from = INT64_MAX, to = 0;
    std::string csv;
    if (t.table) csv = cat("org_index,", t.table->header_line, "\n");
    for (std::uint32_t op : sorted) {
      const Kernel& k = t.kernels[ops.ops[op]];
      from = std::min(from, k.start);
      to = std::max(to, k.end());
      if (t.table) csv += cat(k.row, ",", t.table->line(k.row), "\n");
    }
    const auto folder = run / "splits" / target.folder;
    std::filesystem::create_directories(folder);
    if (t.table) write_output(folder / "kernels.csv", csv);
    windows.push_back(
        {t.base_ns + from, t.base_ns + to, folder / "trace_view.json", sorted.size()});
    json entry = {{"folder", target.folder},
                  {"kind", target.kind},
                  {"op_range", {sorted.front(), sorted.back()}},
                  {"ops_count", sorted.size()},
                  {"files",
                   {{"csv", t.table ? "kernels.csv" : ""},
                    {"csv_scope", "op_membership_exact"},
                    {"csv_rows", sorted.size()},
                    {"trace", "trace_view.json"},
                    {"trace_time_range_us", {t.absolute_us(from), t.absolute_us(to)}}}}};
    if (sorted.back() - sorted.front() + 1 != sorted.size()) entry["op_indices"] = sorted;
    list.push_back(std::move(entry));
  }
  // The profile's own trace where there is one, else one made of the kernels.
  std::vector<TraceWindow> sliced = windows;
  for (TraceWindow& w : sliced) w.events = 0;
  const bool own = !t.trace.chunks.empty() && slice_trace(t.trace, sliced);
  std::map<std::filesystem::path, std::size_t> events;
  for (const TraceWindow& w : own ? sliced : windows) events[w.file] = w.events;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!own) write_output(windows[i].file, trace_text(t, ops, all[i].ops));
    list[i]["files"].update({{"trace_source", own ? "sliced" : "synthesized"},
                             {"trace_scope", own ? "time_envelope_context" : "op_membership_exact"},
                             {"trace_events", events[windows[i].file]}});
  }
  write_json(run / "splits" / "manifest.json", {{"source", t.table ? t.table->path : t.trace.path},
                                                {"n_ops", ops.size()},
                                                {"targets", std::move(list)}});
}

}  // namespace tk

#include "timeline/theory.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "timeline/csv.h"
#include "timeline/decimal.h"
#include "timeline/intervals.h"

namespace tk {

using nlohmann::json;

namespace {

int first_column(const CsvTable& table, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const int c = table.column(name); c >= 0) return c;
  return -1;
}

// The spellings of the skill's script and of the estimator it reads.
struct Columns {
  int org, us, compute, memory, overhead, bound, supported;
  explicit Columns(const CsvTable& t)
      : org(first_column(t, {"org_index", "Org Index", "source_org_index",
                             "kernel_details_org_index", "csv_org_index"})),
        us(first_column(t, {"theoretical_operator_time_us", "Theoretical Operator Time(us)",
                            "theoretical_total_time_us"})),
        compute(first_column(t, {"theoretical_compute_time_us", "Theoretical Compute Time(us)"})),
        memory(first_column(t, {"theoretical_memory_time_us", "Theoretical Memory Time(us)"})),
        overhead(first_column(t, {"fixed_overhead_us", "头尾开销", "Fixed Overhead(us)"})),
        bound(first_column(t, {"bound_type", "Bound Type"})),
        supported(first_column(t, {"supported", "Supported", "support"})) {}
};

double number(const std::vector<std::string>& row, int column) {
  if (column < 0) return -1;
  const auto v = decimal_double(row[static_cast<std::size_t>(column)]);
  return v && *v >= 0 ? *v : -1;
}

bool says_no(const std::vector<std::string>& row, int column) {
  if (column < 0) return false;
  std::string text = row[static_cast<std::size_t>(column)];
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* no : {"false", "0", "no", "n", "n/a", "unsupported"})
    if (text == no) return true;
  return false;
}

std::string_view bound_of(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (text.find("mem") != text.npos) return "memory";
  if (text.find("comp") != text.npos || text.find("cube") != text.npos) return "compute";
  return {};
}

}  // namespace

Theory read_theory(const std::filesystem::path& path, const Timeline& t, const StepOps& ops) {
  const CsvTable table = CsvTable::read(path);
  const Columns c(table);
  if (c.us < 0)
    throw UserError("TK0923",
                    "this table has no column theoretical_operator_time_us (or Theoretical "
                    "Operator Time(us))")
        .at(path.string(), 1)
        .help("give the operator_analysis.csv that was made from this profile's kernel table");
  std::unordered_map<std::int64_t, std::size_t> by_row;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    std::int64_t row = static_cast<std::int64_t>(i);
    if (c.org >= 0) {
      const auto given = decimal_int(table.rows[i][static_cast<std::size_t>(c.org)]);
      if (!given) continue;
      row = *given;
    }
    if (!by_row.emplace(row, i).second)
      throw UserError("TK0923", cat("two rows have org_index ", row))
          .at(path.string(), static_cast<int>(i + 2))
          .help("each row of the kernel table has one row here; the file is joined of several");
  }
  Theory out;
  out.kind = "operator_analysis_csv";
  out.source = path.string();
  out.ops.resize(ops.size());
  for (std::size_t op = 0; op < ops.size(); ++op) {
    const std::uint32_t kernel_row = t.kernels[ops.ops[op]].row;
    const auto found = by_row.find(kernel_row);
    if (found == by_row.end()) {
      out.missing_rows.push_back(kernel_row);
      continue;
    }
    ++out.matched;
    const auto& row = table.rows[found->second];
    KernelTheory& k = out.ops[op];
    if (says_no(row, c.supported)) continue;
    k.us = number(row, c.us);
    k.compute_us = number(row, c.compute);
    k.memory_us = number(row, c.memory);
    k.overhead_us = number(row, c.overhead);
    if (c.bound >= 0) k.bound = bound_of(row[static_cast<std::size_t>(c.bound)]);
    out.supported += k.supported();
  }
  if (out.missing_rows.size() * 20 > ops.size())
    out.warnings.push_back(
        cat("theory: ", out.missing_rows.size(), " of ", ops.size(), " kernels have no row in ",
            path.filename().string(),
            ": it was made of another kernel table, of another step, or with other rows left out"));
  return out;
}

std::vector<TheoryDecision> read_theory_decisions(const std::filesystem::path& path) {
  const Buffer file = read_whole(path, 64 << 20);
  json root = json::parse(file.text(), nullptr, false);
  if (root.is_object() && root.contains("decisions")) root = json(root["decisions"]);
  if (!root.is_array())
    throw UserError("TK0923", "the decisions are no JSON list")
        .at(path.string())
        .help(
            "[{\"component_type\": \"moe\", \"sub_item\": \"dispatch\", \"selected_stream\": "
            "\"203\"}]");
  std::vector<TheoryDecision> out;
  for (std::size_t i = 0; i < root.size(); ++i) {
    const json& x = root[i];
    auto text = [&](const char* key) {
      if (!x.contains(key) || x[key].is_null()) return std::string();
      return x[key].is_string() ? x[key].get<std::string>() : x[key].dump();
    };
    if (!x.is_object() || text("component_type").empty() || text("sub_item").empty())
      throw UserError("TK0923", cat("decision ", i, " needs \"component_type\" and \"sub_item\""))
          .at(path.string());
    TheoryDecision d{text("component_type"),
                     text("sub_item"),
                     text("selected_stream"),
                     text("semantic_note"),
                     text("reason"),
                     {},
                     {}};
    if (!text("phase").empty()) d.phase = text("phase");
    if (x.contains("layer_idx") && x["layer_idx"].is_number_integer())
      d.layer = x["layer_idx"].get<int>();
    out.push_back(std::move(d));
  }
  return out;
}

TheoryCandidate theory_of(const Timeline& t, const StepOps& ops, const Theory& theory,
                          const std::vector<std::uint32_t>& members, const std::string& type,
                          const std::string& item, const std::string& phase, int layer) {
  TheoryCandidate out;
  std::map<std::int32_t, std::pair<TheoryStream, Intervals>> streams;
  for (std::uint32_t op : members) {
    auto& [stream, intervals] = streams[ops.streams[op]];
    const Kernel& k = t.kernels[ops.ops[op]];
    stream.stream = ops.streams[op];
    ++stream.ops;
    intervals.push_back({k.start, k.end()});
    const Role role = role_of(t.text(k.type), t.text(k.name), k.core);
    if (std::find(stream.roles.begin(), stream.roles.end(), role) == stream.roles.end())
      stream.roles.push_back(role);
    if (theory.ops[op].supported()) {
      ++stream.supported;
      stream.sum_us += theory.ops[op].us;
    } else {
      ++out.unsupported;
    }
  }
  for (auto& [id, entry] : streams) {
    entry.first.busy = union_length(std::move(entry.second));
    out.streams.push_back(std::move(entry.first));
  }
  std::stable_sort(out.streams.begin(), out.streams.end(),
                   [](const TheoryStream& a, const TheoryStream& b) { return a.busy > b.busy; });
  if (out.streams.empty()) return out;
  // The exact place first, then the entry for all places (BD-92).
  const TheoryDecision* decision = nullptr;
  for (const bool exact : {true, false})
    for (const TheoryDecision& d : theory.decisions)
      if (!decision && d.type == type && d.item == item &&
          (exact ? d.phase == phase && d.layer == layer : !d.phase && !d.layer))
        decision = &d;
  if (decision) out.note = decision->note;
  if (decision && !decision->stream.empty()) {
    const auto it = std::find_if(
        out.streams.begin(), out.streams.end(),
        [&](const TheoryStream& s) { return ops.stream_name(s.stream) == decision->stream; });
    if (it == out.streams.end()) {
      out.warning = cat("stream ", decision->stream, " was chosen and is not there");
    } else {
      out.selected = static_cast<std::size_t>(it - out.streams.begin());
      out.decided = true;
    }
  }
  if (out.streams.size() > 1 && out.streams[0].busy > 0 && !out.decided)
    out.review = static_cast<double>(out.streams[1].busy) >=
                 theory.review_ratio * static_cast<double>(out.streams[0].busy);
  // Streams describe themselves by what runs on them (BD-92).
  if (out.streams.size() > 1 && out.note.empty())
    for (const TheoryStream& s : out.streams) {
      std::string what;
      for (const Role r : s.roles) what += cat(what.empty() ? "" : ", ", role_name(r));
      out.note += cat(out.note.empty() ? "" : "; ", ops.stream_name(s.stream), ": ", what);
    }
  const TheoryStream& chosen = out.streams[out.selected];
  if (chosen.supported) out.us = chosen.sum_us;
  return out;
}

json theory_source_json(const Theory& theory) {
  if (theory.kind.empty()) return nullptr;
  json j = {{"kind", theory.kind},
            {"path", theory.source},
            {"matched_operator_count", theory.matched},
            {"supported_operator_count", theory.supported},
            {"missing_operator_count", theory.missing_rows.size()}};
  if (!theory.missing_rows.empty()) {
    const std::size_t n = std::min<std::size_t>(20, theory.missing_rows.size());
    j["missing_org_index_sample"] = std::vector<std::uint32_t>(
        theory.missing_rows.begin(), theory.missing_rows.begin() + static_cast<std::ptrdiff_t>(n));
  }
  return j;
}

}  // namespace tk

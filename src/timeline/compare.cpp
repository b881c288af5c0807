#include "timeline/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "timeline/decimal.h"
#include "timeline/input.h"
#include "timeline/page/html.h"
#include "timeline/page/page.h"

namespace tk {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

json read_object(const fs::path& file) {
  const Buffer text = read_whole(file, std::uint64_t{1} << 30);
  // Of a run with many kernels nearly all is what is said of each of them.
  const auto wanted = [](int, json::parse_event_t event, json& key) {
    if (event != json::parse_event_t::key) return true;
    for (const char* each : {"op_records", "per_instance_ms", "instances_meta", "theoretical",
                             "kernel_outliers", "kernel_count_anomalies"})
      if (key == each) return false;
    return true;
  };
  json root = json::parse(text.text(), wanted, false);
  if (root.is_discarded() || !root.is_object())
    throw UserError("TK0920", "the file is no JSON object")
        .at(file.string())
        .help("make the run again");
  return root;
}

double number(const json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_number() ? it->get<double>() : 0;
}

void add_row(Run& run, const std::string& type, const std::string& name, const json& item) {
  RunRow row;
  if (const auto m = item.find("metric"); m != item.end() && m->is_object()) {
    row.median = number(*m, "median_ms");
    row.mean = number(*m, "mean_ms");
    row.p95 = number(*m, "p95_ms");
    row.max = number(*m, "max_ms");
    row.std = number(*m, "std_ms");
  }
  if (const auto o = item.find("outliers"); o != item.end() && o->is_array())
    for (const json& x : *o)
      if (x.is_object() && x.contains("phase") && x["phase"].is_string())
        row.outliers.push_back(
            cat(x["phase"].get<std::string>(), "#", static_cast<long>(number(x, "layer_idx"))));
  run.order.emplace_back(type, name);
  run.rows[{type, name}] = std::move(row);
}

double pick(const RunRow& r, const std::string& metric) {
  if (metric == "mean") return r.mean;
  if (metric == "p95") return r.p95;
  if (metric == "max") return r.max;
  if (metric == "std") return r.std;
  return r.median;
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::tm parts{};
  localtime_r(&now, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

}  // namespace

Run read_run(const fs::path& folder) {
  Run run;
  run.folder = folder;
  run.label = folder.filename().string();
  const fs::path metrics = folder / "metrics.json", overview = folder / "overview.json";
  std::error_code ignored;
  const bool has_metrics = fs::exists(metrics, ignored),
             has_overview = fs::exists(overview, ignored);
  if (!has_metrics && !has_overview)
    throw UserError("TK0920", cat("no metrics.json in ", folder.string()))
        .help("give a run's folder (runs/<label>) or a profile");
  if (has_overview) {
    const json root = read_object(overview);
    if (root.contains("steps") && root["steps"].is_array() && root.contains("step"))
      for (const json& s : root["steps"]) {
        if (!s.is_object() || s.value("step", json()) != root["step"]) continue;
        for (const char* key : {"computing_us", "communication_not_overlapped_us", "overlapped_us",
                                "free_us", "stage_us"}) {
          const double ms = number(s, key) / 1e3;
          const std::string name = std::string(key) == "stage_us"
                                       ? "TOTAL"
                                       : std::string(key, std::string(key).size() - 3);
          run.order.emplace_back("step", name);
          run.rows[{"step", name}] = {ms, ms, ms, ms, 0, {}};
        }
        break;
      }
    if (root.contains("origin") && root["origin"].is_object())
      run.origin = root["origin"].value("kind", "");
  }
  if (has_metrics) {
    const json root = read_object(metrics);
    if (!root.contains("sections") || !root["sections"].is_array())
      throw UserError("TK0920", "the file has no list \"sections\"").at(metrics.string());
    if (root.contains("label") && root["label"].is_string()) run.label = root["label"];
    for (const json& s : root["sections"]) {
      if (!s.is_object() || !s.contains("component_type") || !s["component_type"].is_string())
        throw UserError("TK0920", "a section has no component_type").at(metrics.string());
      const std::string type = s["component_type"];
      if (s.contains("sub_items") && s["sub_items"].is_array())
        for (const json& item : s["sub_items"])
          if (item.is_object() && item.contains("name") && item["name"].is_string())
            add_row(run, type, item["name"], item);
      if (s.contains("total") && s["total"].is_object()) add_row(run, type, "TOTAL", s["total"]);
    }
  }
  return run;
}

std::vector<Run> read_runs(const fs::path& runs) {
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator it(runs, error), end; !error && it != end; it.increment(error))
    for (const char* name : {"metrics.json", "overview.json"}) {
      std::error_code ignored;
      const auto time = fs::last_write_time(it->path() / name, ignored);
      if (!ignored) {
        found.emplace_back(time, it->path());
        break;
      }
    }
  std::sort(found.begin(), found.end());
  std::vector<Run> out;
  for (const auto& [time, path] : found) out.push_back(read_run(path));
  return out;
}

std::vector<std::string> largest_changes(const Run& base, const Run& run, const std::string& metric,
                                         std::size_t n) {
  struct Change {
    double delta;
    std::string text;
  };
  std::vector<Change> all;
  for (const auto& [key, row] : run.rows) {
    const auto it = base.rows.find(key);
    if (it == base.rows.end()) continue;
    const double before = pick(it->second, metric), after = pick(row, metric);
    if (before == after) continue;
    all.push_back({std::fabs(after - before),
                   fmt::format("{} / {}: {} -> {}{}", key.first, key.second, show_ns(before * 1e6),
                               show_ns(after * 1e6),
                               before > 0 ? fmt::format(" ({:+.1f} %)", 100 * (after / before - 1))
                                          : std::string())});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Change& a, const Change& b) { return a.delta > b.delta; });
  std::vector<std::string> out;
  for (std::size_t i = 0; i < all.size() && i < n; ++i) out.push_back(all[i].text);
  return out;
}

std::string history_page(const std::vector<Run>& runs, const std::string& baseline,
                         const std::string& metric) {
  if (runs.empty()) throw UserError("TK0920", "there are no runs to compare");
  std::set<std::string> labels;
  for (const Run& r : runs)
    if (!labels.insert(r.label).second)
      throw UserError("TK0920", cat("two runs have the label ", r.label))
          .help("name them apart with --label");
  std::size_t base = 0;
  if (!baseline.empty()) {
    while (base < runs.size() && runs[base].label != baseline) ++base;
    if (base == runs.size())
      throw UserError("TK0920", cat("there is no run with the label ", baseline))
          .help(cat("nearest: ", nearest(baseline, labels)));
  }
  // Rows in the order in which they are first seen, TOTAL last of its type.
  std::vector<std::string> types;
  std::map<std::string, std::vector<std::string>> items;
  for (const Run& r : runs)
    for (const auto& [type, name] : r.order) {
      if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
      auto& list = items[type];
      if (name != "TOTAL" && std::find(list.begin(), list.end(), name) == list.end())
        list.push_back(name);
    }
  std::set<std::string> origins;
  for (const Run& r : runs) origins.insert(r.origin.empty() ? "measured" : r.origin);
  std::string out = page_head("history", true);
  out += fmt::format(
      "<body><header><h1>Runs compared</h1><nav></nav></header><main><p class=facts>{} of each row "
      "&middot; baseline <b>{}</b> &middot; grey: the change is smaller than the spread inside the "
      "runs</p>",
      escaped(metric), escaped(runs[base].label));
  if (origins.size() > 1)
    out += "<p class=\"panel amber\">Measured and simulated runs stand side by side here.</p>";
  out +=
      "<section><div class=scroll "
      "style=\"max-height:none\"><table><thead><tr><th>component</th><th>sub-item</th>";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const bool page = fs::exists(runs[i].folder / "index.html");
    out += fmt::format(
        "<th class=n>{}{}{}<small>{}</small></th>",
        page ? cat("<a href=\"runs/", escaped(runs[i].folder.filename().string()), "/index.html\">")
             : "",
        escaped(runs[i].label), page ? "</a>" : "",
        i == base ? "baseline" : escaped(runs[i].origin));
  }
  out += "</tr></thead><tbody>\n";
  for (const std::string& type : types) {
    std::vector<std::string> names = items[type];
    names.push_back("TOTAL");
    for (const std::string& name : names) {
      out += fmt::format("<tr class=\"{}\"><td>{}</td><td>{}</td>", name == "TOTAL" ? "total" : "",
                         escaped(type), escaped(name));
      const auto b = runs[base].rows.find({type, name});
      for (std::size_t i = 0; i < runs.size(); ++i) {
        const auto r = runs[i].rows.find({type, name});
        if (r == runs[i].rows.end()) {
          out += "<td class=n>&mdash;</td>";
          continue;
        }
        const double value = pick(r->second, metric);
        std::string note;
        if (i == base) {
          for (const std::string& o : r->second.outliers)
            note += cat(note.empty() ? "" : " ", escaped(o));
        } else if (b != runs[base].rows.end()) {
          const double before = pick(b->second, metric);
          if (before == 0) {
            note = value == 0 ? "" : "new";
          } else {
            const double change = 100 * (value / before - 1);
            const double spread =
                std::sqrt((r->second.std * r->second.std + b->second.std * b->second.std) / 2);
            const bool small = std::fabs(value - before) < spread;
            note = fmt::format("<i class={}>{:+.1f} %</i>",
                               small        ? "soft"
                               : change > 0 ? "slow"
                                            : "fast",
                               change);
          }
          const std::set<std::string> then(b->second.outliers.begin(), b->second.outliers.end()),
              here(r->second.outliers.begin(), r->second.outliers.end());
          std::size_t fresh = 0, gone = 0, still = 0;
          for (const std::string& o : here) (then.contains(o) ? still : fresh)++;
          for (const std::string& o : then) gone += !here.contains(o);
          if (fresh + gone + still) note += fmt::format(" +{} &minus;{} ={}", fresh, gone, still);
        } else {
          note = "new";
        }
        out += fmt::format("<td class=n>{}<small>{}</small></td>", show_ns(value * 1e6), note);
      }
      out += "</tr>\n";
    }
  }
  return out + "</tbody></table></div></section></main></body></html>\n";
}

void append_history(const fs::path& file, const std::string& label, const std::string& body) {
  std::error_code ignored;
  std::string text = fs::exists(file, ignored) ? read_file(file) : std::string("# History\n");
  if (!text.ends_with('\n')) text += '\n';
  text += cat("\n## ", label, " - ", now_text(), "\n\n", body);
  write_file(file, text);
}

void withdraw_history(const fs::path& file, const std::string& label, const std::string& reason) {
  std::string text = read_file(file);
  // The newest section of that label.
  std::size_t at = std::string::npos;
  const std::string head = cat("\n## ", label, " - ");
  for (std::size_t i = text.find(head); i != std::string::npos; i = text.find(head, i + 1)) at = i;
  if (at == std::string::npos)
    throw UserError("TK0920", cat("HISTORY.md has no section of ", label)).at(file.string());
  const std::size_t end = text.find("\n## ", at + 1);
  text.erase(at, end == std::string::npos ? std::string::npos : end - at);
  if (!text.ends_with('\n')) text += '\n';
  text += cat("\n> withdraw ", label, ", reason: ", reason.empty() ? "none given" : reason, "\n");
  write_file(file, text);
}

}  // namespace tk

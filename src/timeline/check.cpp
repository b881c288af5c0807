#include "timeline/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "timeline/check_tables.h"
#include "timeline/decimal.h"
#include "timeline/find.h"
#include "timeline/kernel_csv.h"
#include "timeline/load.h"
#include "timeline/side_files.h"
#include "timeline/trace_json.h"

namespace tk {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

struct Expectation {
  std::set<std::string> stages;
  int steps = 0, ranks = 0;
};

Expectation read_expectation(const std::string& text) {
  Expectation e;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    at = end + 1;
    const std::size_t equal = part.find('=');
    const std::string name = part.substr(0, equal);
    const auto value =
        equal == part.npos ? std::optional<std::int64_t>() : decimal_int(part.substr(equal + 1));
    if ((name == "prefill" || name == "decode") && equal == part.npos)
      e.stages.insert(name);
    else if ((name == "steps" || name == "ranks") && value && *value > 0 && *value < 1000000)
      (name == "steps" ? e.steps : e.ranks) = static_cast<int>(*value);
    else
      throw UserError("TK0922", cat("--expect ", part, " is not understood"))
          .help("for example --expect prefill,decode,steps=10,ranks=2");
  }
  return e;
}

class Checker {
 public:
  explicit Checker(const ProfileOptions& o) : o_(o), expect_(read_expectation(o.expect)) {}

  CheckReport run() {
    read_log();
    std::vector<ProfileFiles> found;
    try {
      found = find_profiles(o_.path);
    } catch (const UserError& e) {
      std::error_code ignored;
      if (!fs::is_directory(o_.path, ignored)) throw;
      empty_folder();
      return std::move(report_);
    }
    folders(found);
    std::vector<RankCounts> counts;
    for (const ProfileFiles& f : found) counts.push_back(one(f, found.size()));
    compare_ranks(counts);
    return std::move(report_);
  }

 private:
  void add(const char* id, std::string what, CheckStatus status, std::string found,
           std::string expected = {}, std::string advice = {}) {
    report_.items.push_back(
        {id, std::move(what), status, std::move(found), std::move(expected), std::move(advice)});
  }

  void read_log() {
    if (o_.log.empty()) return;
    const std::string text = read_file(o_.log);
    for (std::size_t at = text.find("run failed"); at != std::string::npos;
         at = text.find("run failed", at + 1))
      ++log_failures_;
    if (log_failures_ == 0)
      add("PF-31", "log", CheckStatus::ok, "no parser failed");
    else
      add("PF-31", "log", CheckStatus::fail, cat(log_failures_, " times \"run failed\""), "none",
          "the parser (msprof) could not work on this file system: move the output to a local "
          "disk, copy the raw *_ascend_pt there and call torch_npu.profiler.profiler.analyse(dir); "
          "if that works the disk was the cause. If no disk helps, collect with the code of "
          "`tokamak emit profiling --way inject` (PF-04). Link models/<model>/res to a local "
          "folder; "
          "WORK_DIR set by hand is overwritten by the start script");
  }

  void empty_folder() {
    add("PF-43", "output folder", CheckStatus::fail, "no profile in it",
        "kernel_details.csv or op_summary_*.csv",
        "in this order: step() of the profiler is never called; no more steps than warmup; no "
        "write permission on the folder; no on_trace_ready");
  }

  void folders(const std::vector<ProfileFiles>& found) {
    std::set<std::string> stages;
    std::set<int> ranks;
    for (const ProfileFiles& f : found) {
      stages.insert(f.stage);
      if (f.rank) ranks.insert(*f.rank);
    }
    std::string missing;
    for (const std::string& s : expect_.stages)
      if (!stages.contains(s)) missing += cat(missing.empty() ? "" : ", ", s);
    for (int r : ranks) report_.ranks.push_back(std::to_string(r));
    if (!missing.empty())
      add("PF-30", "folders", CheckStatus::fail, cat("no profile of stage ", missing), o_.expect,
          "see PF-31: the stage was not collected or not parsed");
    else if (expect_.ranks && static_cast<int>(ranks.size()) != expect_.ranks)
      add("PF-30", "folders", CheckStatus::fail, cat(ranks.size(), " ranks"),
          std::to_string(expect_.ranks),
          "every rank writes its own *_ascend_pt; collect the others");
    else
      add("PF-30", "folders", CheckStatus::ok,
          cat(found.size(), " profile", found.size() == 1 ? "" : "s"));
  }

  RankCounts one(const ProfileFiles& f, std::size_t profiles) {
    const std::string name =
        profiles > 1 ? cat(" (", f.rank ? cat("rank ", *f.rank) : f.folder.string(), ")")
                     : std::string();
    RankCounts counts;
    counts.name = f.rank ? cat("rank ", *f.rank) : f.folder.string();
    std::error_code ignored;
    if (f.kernels.empty()) {
      bool db = false;
      for (fs::directory_iterator it(f.folder, ignored), end; !ignored && it != end;
           it.increment(ignored))
        db = db || it->path().extension() == ".db";
      add("PF-32", "kernel_details.csv" + name, CheckStatus::fail, "missing", "present",
          log_failures_ ? "see PF-31"
          : db          ? "the export type was db: export again as text"
                        : "no on_trace_ready, or parsing was switched off: call "
                          "torch_npu.profiler.profiler.analyse(dir)");
    }
    Timeline t;
    bool loaded = false, level0 = false;
    try {
      if (!f.info.empty()) t.info = read_profiler_info(f.info, f.metadata);
    } catch (const UserError& e) {
      add("PF-44", "profiler_info" + name, CheckStatus::warn, e.message(), "a readable file",
          "copy the file again");
    }
    const ProfilerInfo declared = t.info;
    if (!f.kernels.empty()) {
      try {
        read_kernel_csv(f.kernels, {o_.allow_truncated}, t);
        loaded = true;
        const KernelHeader header = kernel_header(t.table->header);
        level0 = header.level0 && !t.has_stream;
        const std::string group = header.metrics == "none" ? "no counters" : header.metrics;
        report_.level =
            declared.level.empty() ? (level0 ? "Level0" : "Level1 or 2") : declared.level;
        report_.metrics = group;
        if (level0)
          add("PF-32", "kernel_details.csv" + name, CheckStatus::fail,
              cat("Level0: ", header.columns.size(),
                  " columns, no Stream ID, no shapes, no counters"),
              "Level1 with PipeUtilization",
              "_ExperimentalConfig(profiler_level=Level1, aic_metrics=PipeUtilization); `tokamak "
              "emit profiling` writes it (PF-10)");
        else if (!declared.metrics.empty() && declared.metrics != "none" &&
                 header.metrics != declared.metrics)
          add("PF-32", "kernel_details.csv" + name, CheckStatus::warn, cat("columns of ", group),
              cat(declared.metrics, " as profiler_info says"),
              "files of two collections are mixed?");
        else
          add("PF-32", "kernel_details.csv" + name, CheckStatus::ok,
              cat(t.kernels.size(), " rows, ", header.columns.size(), " columns, ", group));
      } catch (const UserError& e) {
        add("PF-32", "kernel_details.csv" + name, CheckStatus::fail, e.message(), "a whole table",
            "copy or collect again");
      }
    }
    statistics(f, name, level0);
    trace(f, name, t, loaded);
    const bool details = !f.operator_details.empty(), step_trace = !f.step_trace.empty();
    if (details && step_trace)
      add("PF-35", "operator_details.csv, step_trace_time.csv" + name, CheckStatus::ok, "present");
    else
      add("PF-35", "operator_details.csv, step_trace_time.csv" + name, CheckStatus::ok,
          details      ? "no step_trace_time.csv"
          : step_trace ? "no operator_details.csv"
                       : "absent",
          "not needed for a breakdown");
    if (loaded) tables(f, name, t, declared, counts);
    communication(f, name, declared, profiles, level0);
    report_.origin = declared.producer.empty() ? "measured" : declared.producer;
    add("PF-44", "origin" + name, CheckStatus::ok, report_.origin);
    return counts;
  }

  void statistics(const ProfileFiles& f, const std::string& name, bool level0) {
    if (f.layout == "msprof" || f.layout == "file") return;
    if (!f.op_statistic.empty() && !f.api_statistic.empty())
      add("PF-33", "op_statistic.csv, api_statistic.csv" + name, CheckStatus::ok, "present");
    else if (level0)
      add("PF-33", "op_statistic.csv, api_statistic.csv" + name, CheckStatus::ok,
          "absent, as at Level0");
    else
      add("PF-33", "op_statistic.csv, api_statistic.csv" + name, CheckStatus::fail,
          f.op_statistic.empty() ? f.api_statistic.empty() ? "both missing" : "no op_statistic.csv"
                                 : "no api_statistic.csv",
          "present at Level1",
          "the profiler's parser failed: see PF-31; parse again with "
          "torch_npu.profiler.profiler.analyse(dir)");
  }

  void trace(const ProfileFiles& f, const std::string& name, Timeline& t, bool loaded) {
    if (f.trace.empty()) {
      add("PF-34", "trace_view.json" + name, CheckStatus::warn, "missing", "present",
          "without it there are no launches: host gaps cannot be told from others");
      return;
    }
    try {
      TraceRead read = read_trace(f.trace, {true, loaded ? t.base_ns : 0, 2});
      const bool cut = read.trace.truncated;
      const std::uint64_t events = read.trace.events;
      merge_trace(std::move(read), t);
      if (cut)
        add("PF-34", "trace_view.json" + name, CheckStatus::fail, "cut: it does not end in ]",
            "a whole list of events",
            "the schedule was left in RECORD (call step() once more, PF-17), or the parser failed; "
            "torch_npu 2.7 and older leave the file cut, 2.8.0.post2 and newer repair it: the "
            "warning is a mistake either way");
      else
        add("PF-34", "trace_view.json" + name, CheckStatus::ok, cat(events, " events"));
    } catch (const UserError& e) {
      add("PF-34", "trace_view.json" + name, CheckStatus::fail, e.message(), "valid JSON",
          "copy the file again");
    }
  }

  void tables(const ProfileFiles& f, const std::string& name, Timeline& t,
              const ProfilerInfo& declared, RankCounts& counts) {
    const auto by_step = kernels_by_step(t);
    const auto steps = summarize_steps(t, by_step);
    counts.fill(t);
    report_.steps = t.has_step_column ? t.steps : std::vector<std::string>();
    std::vector<StepTime> times;
    if (!f.step_trace.empty()) {
      try {
        times = read_step_trace(f.step_trace);
      } catch (const UserError& e) {
        add("PF-36", "step_trace_time.csv" + name, CheckStatus::warn, e.message(),
            "a readable file", "copy the file again");
      }
    }
    const int wanted = expect_.steps ? expect_.steps : declared.active;
    const std::size_t found = t.has_step_column ? t.steps.size() : 0;
    if (!t.has_step_column)
      add("PF-36", "steps" + name, CheckStatus::warn, "no Step Id column: no step range",
          "one Step Id per step", "give a schedule and call step() once per step");
    else if (wanted > 0 && static_cast<int>(found) != wanted)
      add("PF-36", "steps" + name, CheckStatus::fail, cat(found, " steps"),
          cat(wanted, " (active)"),
          "a step() is missing in the loop, or the window was left early (PF-17)");
    else if (!times.empty() && times.size() != found)
      add("PF-36", "steps" + name, CheckStatus::warn,
          cat(found, " Step Ids, ", times.size(), " rows in step_trace_time.csv"), "equal numbers",
          "files of two collections are mixed?");
    else
      add("PF-36", "steps" + name, CheckStatus::ok, cat(found, " step", found == 1 ? "" : "s"));
    for (CheckItem& item : check_tables(f, t, steps, times, o_.latency_ms)) {
      item.what += name;
      report_.items.push_back(std::move(item));
    }
  }

  void communication(const ProfileFiles& f, const std::string& name, const ProfilerInfo& declared,
                     std::size_t profiles, bool level0) {
    if (f.layout != "torch_npu") return;
    const bool several = declared.world_size > 1 || (declared.world_size == 0 && profiles > 1);
    if (level0) return;
    if (several && f.communication.empty())
      add("PF-38", "communication.json" + name, CheckStatus::warn, "missing",
          "present with several ranks", "collectives cannot be cut into transfer and waiting");
    else
      add("PF-38", "communication.json" + name, CheckStatus::ok,
          f.communication.empty() ? "absent, one rank" : "present");
  }

  void compare_ranks(const std::vector<RankCounts>& counts) {
    if (counts.size() < 2) return;
    std::string text;
    for (std::size_t i = 1; i < counts.size(); ++i) {
      const std::string d = counts[0].difference(counts[i]);
      if (!d.empty()) text += cat(text.empty() ? "" : "; ", d);
    }
    if (text.empty())
      add("PF-39", "ranks", CheckStatus::ok, cat(counts.size(), " profiles with equal kernels"));
    else
      add("PF-39", "ranks", CheckStatus::warn, text.substr(0, 400), "equal Step Ids and kernels",
          "analysis across ranks is off for these");
  }

  const ProfileOptions& o_;
  Expectation expect_;
  CheckReport report_;
  std::size_t log_failures_ = 0;
};

const char* status_text(CheckStatus s) {
  return s == CheckStatus::ok ? "ok" : s == CheckStatus::warn ? "warn" : "fail";
}

}  // namespace

bool CheckReport::usable() const {
  return std::none_of(items.begin(), items.end(),
                      [](const CheckItem& i) { return i.status == CheckStatus::fail; });
}

CheckReport check_profile(const ProfileOptions& options) { return Checker(options).run(); }

json check_json(const CheckReport& r) {
  json items = json::array();
  for (const CheckItem& i : r.items)
    items.push_back({{"id", i.id},
                     {"item", i.what},
                     {"status", status_text(i.status)},
                     {"found", i.found},
                     {"expected", i.expected},
                     {"do", i.advice}});
  return {{"items", std::move(items)}, {"verdict", r.usable() ? "usable" : "not usable"},
          {"level", r.level},          {"metrics", r.metrics},
          {"steps", r.steps},          {"ranks", r.ranks},
          {"origin", r.origin}};
}

std::string check_text(const CheckReport& r) {
  std::string out;
  for (const CheckItem& i : r.items) {
    out += fmt::format("{:<5} {:<6} {}: {}\n", status_text(i.status), i.id, i.what, i.found);
    if (i.status == CheckStatus::ok) continue;
    if (!i.expected.empty()) out += fmt::format("             expected: {}\n", i.expected);
    if (!i.advice.empty()) out += fmt::format("             do: {}\n", i.advice);
  }
  return out + (r.usable() ? "usable\n" : "not usable\n");
}

}  // namespace tk

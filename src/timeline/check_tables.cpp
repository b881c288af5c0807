#include "timeline/check_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/overview.h"
#include "timeline/side_files.h"

namespace tk {

namespace {

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

CheckItem item(const char* id, const char* what, CheckStatus status, std::string found,
               std::string expected = {}, std::string advice = {}) {
  return {id, what, status, std::move(found), std::move(expected), std::move(advice)};
}

void first_step(const std::vector<StepSummary>& steps, const std::vector<StepTime>& times,
                std::vector<CheckItem>& out) {
  std::vector<double> computing;
  if (times.size() > 1)
    for (const StepTime& s : times) computing.push_back(s.computing);
  else
    for (const StepSummary& s : steps) computing.push_back(static_cast<double>(s.computing));
  if (computing.size() < 2) return;
  const double rest = median({computing.begin() + 1, computing.end()});
  if (rest > 0 && computing[0] >= 10 * rest)
    out.push_back(item(
        "PF-37", "first step", CheckStatus::fail,
        fmt::format("computing {} against {} in the others", show_ns(computing[0]), show_ns(rest)),
        "below 10 x the median of the others",
        "a compile inside the window: run one prefill and one decode before it (PF-16)"));
  else
    out.push_back(item("PF-37", "first step", CheckStatus::ok,
                       fmt::format("computing {}, median of the others {}", show_ns(computing[0]),
                                   show_ns(rest))));
}

void overhead(const std::vector<StepSummary>& steps, double latency_ms,
              std::vector<CheckItem>& out) {
  if (latency_ms <= 0) return;
  std::vector<double> spans;
  for (const StepSummary& s : steps)
    if (s.kernels) spans.push_back(static_cast<double>(s.last - s.first));
  if (spans.empty()) return;
  const double percent = 100 * (median(spans) / 1e6 / latency_ms - 1);
  out.push_back(item(
      "PF-40", "overhead of the collection", percent > 30 ? CheckStatus::warn : CheckStatus::ok,
      fmt::format("a step takes {} here, {:+.1f} % of the {} ms without the profiler",
                  show_ns(median(spans)), percent, latency_ms),
      "below 30 %", "scale comparisons by this factor"));
}

void clock(const Timeline& t, std::vector<CheckItem>& out) {
  const auto& f = t.trace.frequency;
  if (f.empty()) return;
  std::size_t affected = 0, changes = 0;
  for (std::size_t i = 1; i < f.size(); ++i) {
    if (f[i].second == f[i - 1].second) continue;
    ++changes;
    for (const Kernel& k : t.kernels)
      affected += k.end() >= f[i].first - 1000000 && k.start <= f[i].first + 1000000;
  }
  if (changes)
    out.push_back(item("PF-41", "clock", CheckStatus::warn,
                       cat(changes, " changes of the AI Core frequency; ", affected,
                           " kernels within 1 ms of one"),
                       "a constant clock", "their columns made of cycles are unreliable"));
  else
    out.push_back(item("PF-41", "clock", CheckStatus::ok,
                       fmt::format("{} MHz throughout", f.front().second)));
}

// The profiler's own formulas, rechecked. More than 1 % of the rows off: edited or mixed.
void consistency(const ProfileFiles& files, const Timeline& t, std::vector<CheckItem>& out) {
  std::vector<std::string> off;
  const auto waits = wait_times(t);
  std::size_t rows = 0, bad = 0;
  for (std::size_t i = 0; i < t.kernels.size(); ++i) {
    if (t.kernels[i].wait_file < 0) continue;
    ++rows;
    bad += std::abs(t.kernels[i].wait_file - waits[i]) > 300;
  }
  if (bad * 100 > rows) off.push_back(cat("Wait Time in ", bad, " of ", rows, " rows"));
  const EngineCells engines = engine_cells(t);
  if (engines.disagree())
    off.push_back(cat("engine time longer than the duration in ", engines.longer, " of ",
                      engines.timed, " cells"));
  if (!files.op_statistic.empty()) {
    try {
      std::map<std::string, std::pair<std::int64_t, double>> ours, theirs;
      for (const Kernel& k : t.kernels) {
        auto& x = ours[std::string(t.text(k.type))];
        ++x.first;
        x.second += static_cast<double>(k.duration) / 1e3;
      }
      for (const OpStatistic& s : read_op_statistic(files.op_statistic)) {
        theirs[s.type].first += s.count;
        theirs[s.type].second += s.total_us;
      }
      std::size_t differ = 0;
      for (const auto& [type, x] : theirs) {
        const auto it = ours.find(type);
        differ += it == ours.end() || it->second.first != x.first ||
                  std::fabs(it->second.second - x.second) > 0.01 * x.second + 1;
      }
      if (differ * 10 > theirs.size())
        off.push_back(cat("op_statistic.csv differs in ", differ, " of ", theirs.size(), " types"));
    } catch (const UserError& e) {
      off.push_back(cat("op_statistic.csv: ", e.message()));
    }
  }
  if (off.empty()) {
    out.push_back(
        item("PF-42", "consistency", CheckStatus::ok,
             cat("Wait Time, engine times", files.op_statistic.empty() ? "" : ", op_statistic",
                 " agree with the rows")));
    return;
  }
  std::string text;
  for (const std::string& s : off) text += cat(text.empty() ? "" : "; ", s);
  out.push_back(item("PF-42", "consistency", CheckStatus::warn, text,
                     "the profiler's own formulas hold",
                     "the file was edited, or files of two collections are mixed"));
}

}  // namespace

EngineCells engine_cells(const Timeline& t) {
  EngineCells out;
  if (!t.table) return out;
  const int aic = t.table->column("aicore_time(us)"), aiv = t.table->column("aiv_time(us)");
  if (aic < 0 && aiv < 0) return out;
  // Every row would be split again; a sample tells the same.
  for (std::size_t i = 0, step = std::max<std::size_t>(1, t.kernels.size() / 20000);
       i < t.kernels.size(); i += step) {
    const auto cells = t.table->cells(t.kernels[i].row);
    for (int c : {aic, aiv}) {
      if (c < 0) continue;
      const auto v = decimal_us_to_ns(cells[static_cast<std::size_t>(c)]);
      if (!v) continue;
      ++out.timed;
      out.longer +=
          static_cast<double>(*v) > static_cast<double>(t.kernels[i].duration) * 1.01 + 50;
    }
  }
  return out;
}

void RankCounts::fill(const Timeline& t) {
  steps = t.steps;
  for (const Kernel& k : t.kernels)
    if (k.core != Core::communication) ++types[std::string(t.text(k.type))];
}

std::string RankCounts::difference(const RankCounts& other) const {
  if (steps != other.steps) return cat(name, " and ", other.name, " have different Step Ids");
  for (const auto& [type, n] : types) {
    const auto it = other.types.find(type);
    const std::size_t m = it == other.types.end() ? 0 : it->second;
    if (m != n) return cat(name, " and ", other.name, ": ", type, " ", n, " / ", m);
  }
  for (const auto& [type, m] : other.types)
    if (!types.contains(type)) return cat(name, " and ", other.name, ": ", type, " 0 / ", m);
  return {};
}

std::vector<CheckItem> check_tables(const ProfileFiles& files, const Timeline& t,
                                    const std::vector<StepSummary>& steps,
                                    const std::vector<StepTime>& times, double latency_ms) {
  std::vector<CheckItem> out;
  first_step(steps, times, out);
  overhead(steps, latency_ms, out);
  clock(t, out);
  consistency(files, t, out);
  return out;
}

}  // namespace tk

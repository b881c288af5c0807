#include "timeline/overview.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/intervals.h"

namespace tk {

using nlohmann::json;

namespace {

double us(Ns ns) { return static_cast<double>(ns) / 1e3; }

template <class Key, class Name>
std::vector<TimeShare> shares(const Timeline& t, const StepOps& ops, Key key, Name name) {
  std::map<decltype(key(std::size_t{})), TimeShare> all;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Kernel& k = t.kernels[ops.ops[i]];
    TimeShare& s = all[key(i)];
    if (s.count == 0) {
      name(i, s);
      s.low = k.duration;
    }
    ++s.count;
    s.sum += k.duration;
    s.low = std::min(s.low, k.duration);
    s.high = std::max(s.high, k.duration);
  }
  std::vector<TimeShare> out;
  for (auto& [k, s] : all) out.push_back(std::move(s));
  std::stable_sort(out.begin(), out.end(), [](const TimeShare& a, const TimeShare& b) {
    return a.sum != b.sum ? a.sum > b.sum : a.name < b.name;
  });
  return out;
}

void check_steps(const Timeline& t, Overview& o) {
  for (const StepTime& f : t.step_times) {
    const StepSummary* s = nullptr;
    for (const StepSummary& x : o.steps)
      if (x.name == f.step || (o.steps.size() == 1 && f.step == "-")) s = &x;
    if (!s || s->kernels == 0) continue;
    const double stage = std::max(1.0, f.stage);
    auto check = [&](const char* name, double file, Ns ours) {
      const double mine = static_cast<double>(ours);
      o.checks.push_back({f.step, name, file, mine, std::fabs(file - mine) <= 1e-3 * stage});
    };
    check("Computing", f.computing, s->computing);
    check("Communication(Not Overlapped)", f.communication_not_overlapped, s->exposed);
    check("Overlapped", f.overlapped, s->overlapped);
    check("Communication", f.communication, s->communication);
    check("Free", f.free, s->free);
    check("Stage", f.stage, s->stage);
    if (s->preparing >= 0 && f.preparing > 0) check("Preparing", f.preparing, s->preparing);
  }
}

// Stretches in which the device waits for the host more than it works.
void host_stretches(const Timeline& t, Overview& o, const StepOps& ops) {
  std::vector<Ns> starts;
  for (std::uint32_t i : ops.ops) starts.push_back(t.kernels[i].start);
  std::sort(starts.begin(), starts.end());
  HostStretch run;
  auto close = [&] {
    if (run.idle > 0) {
      run.kernels =
          static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end(), run.to) -
                                   std::lower_bound(starts.begin(), starts.end(), run.from));
      o.host_bound.push_back(run);
    }
    run = {};
  };
  for (const Gap& g : o.gaps) {
    if (g.kind != Bubble::host) continue;
    // Joined to the run if it keeps being idle at least half of the time.
    if (run.idle > 0 && (g.from - run.to) <= run.idle + g.length() &&
        2 * (run.idle + g.length()) >= g.to - run.from) {
      run.to = g.to;
      run.idle += g.length();
    } else {
      close();
      run = {g.from, g.to, g.length(), 0, g.after};
    }
  }
  close();
  std::stable_sort(o.host_bound.begin(), o.host_bound.end(),
                   [](const HostStretch& a, const HostStretch& b) { return a.idle > b.idle; });
  if (o.host_bound.size() > 20) o.host_bound.resize(20);
}

}  // namespace

std::vector<Ns> wait_times(const Timeline& t) {
  std::vector<Ns> out(t.kernels.size(), 0);
  std::unordered_map<std::int32_t, Ns> end;
  for (std::size_t i = 0; i < t.kernels.size(); ++i) {
    const Kernel& k = t.kernels[i];
    const auto [it, first] = end.try_emplace(k.device, k.end());
    if (first) continue;
    out[i] = std::max<Ns>(0, k.start - it->second);
    it->second = k.end();
  }
  return out;
}

Overview make_overview(const Timeline& t, const std::vector<StepSummary>& steps, std::size_t step,
                       const StepOps& ops, const GapFinder& finder) {
  Overview o;
  o.steps = steps;
  o.step = step;
  auto kernel = [&](std::size_t i) -> const Kernel& { return t.kernels[ops.ops[i]]; };
  o.by_type = shares(
      t, ops,
      [&](std::size_t i) { return std::pair(kernel(i).type, static_cast<int>(kernel(i).core)); },
      [&](std::size_t i, TimeShare& s) {
        s.name = t.text(kernel(i).type);
        s.core = core_name(kernel(i).core);
      });
  o.by_core = shares(
      t, ops, [&](std::size_t i) { return kernel(i).core; },
      [&](std::size_t i, TimeShare& s) { s.name = core_name(kernel(i).core); });
  o.by_stream = shares(
      t, ops, [&](std::size_t i) { return ops.streams[i]; },
      [&](std::size_t i, TimeShare& s) { s.name = ops.stream_name(ops.streams[i]); });
  std::map<std::string, Intervals> busy;
  for (std::size_t i = 0; i < ops.size(); ++i)
    busy[ops.stream_name(ops.streams[i])].push_back({kernel(i).start, kernel(i).end()});
  for (TimeShare& s : o.by_stream) s.busy = union_length(std::move(busy[s.name]));
  o.slowest = ops.ops;
  const std::size_t top = std::min<std::size_t>(50, o.slowest.size());
  std::partial_sort(o.slowest.begin(), o.slowest.begin() + static_cast<std::ptrdiff_t>(top),
                    o.slowest.end(), [&](std::uint32_t a, std::uint32_t b) {
                      return t.kernels[a].duration != t.kernels[b].duration
                                 ? t.kernels[a].duration > t.kernels[b].duration
                                 : a < b;
                    });
  o.slowest.resize(top);
  o.has_flows = finder.has_flows();
  o.gaps = finder.gaps(ops.ops);
  for (const Gap& g : o.gaps) {
    o.gap_time[static_cast<std::size_t>(g.kind)] += g.length();
    ++o.gap_count[static_cast<std::size_t>(g.kind)];
  }
  host_stretches(t, o, ops);
  check_steps(t, o);
  const std::vector<Ns> waits = wait_times(t);
  for (std::size_t i = 0; i < t.kernels.size(); ++i) {
    o.wait_total += waits[i];
    if (t.kernels[i].wait_file < 0) continue;
    ++o.wait_rows;
    const Ns off = std::abs(t.kernels[i].wait_file - waits[i]);
    o.wait_differs += off > 300;
    o.wait_worst = std::max(o.wait_worst, off);
  }
  for (const CollectiveTime& c : t.collectives)
    if (c.step == steps[step].name || c.step.empty())
      o.collectives.push_back(
          {c.name, static_cast<Ns>(c.elapse), static_cast<Ns>(c.transit), static_cast<Ns>(c.wait)});
  std::stable_sort(o.collectives.begin(), o.collectives.end(),
                   [](const RankWait& a, const RankWait& b) { return a.elapse > b.elapse; });
  return o;
}

json overview_json(const Timeline& t, const Overview& o) {
  json j;
  j["schema"] = "tokamak.profile_overview.v1";
  j["origin"] = {{"kind", t.origin.kind}, {"detail", t.origin.detail}};
  j["kernels"] = t.kernels.size();
  j["rows_in_file"] = t.rows_in_file;
  j["rows_dropped"] = t.rows_dropped;
  j["step"] = o.steps[o.step].name;
  json steps = json::array();
  for (const StepSummary& s : o.steps) {
    json x = {{"step", s.name},
              {"kernels", s.kernels},
              {"kernel_sum_us", us(s.kernel_sum)},
              {"computing_us", us(s.computing)},
              {"communication_us", us(s.communication)},
              {"communication_not_overlapped_us", us(s.exposed)},
              {"overlapped_us", us(s.overlapped)},
              {"free_us", us(s.free)},
              {"stage_us", us(s.stage)},
              {"bubble_us", us(s.bubble)},
              {"preparing_us", nullptr},
              {"group", s.group},
              {"flagged", s.flagged}};
    if (s.preparing >= 0) x["preparing_us"] = us(s.preparing);
    steps.push_back(std::move(x));
  }
  j["steps"] = std::move(steps);
  auto table = [](const std::vector<TimeShare>& v, bool busy) {
    json rows = json::array();
    for (const TimeShare& s : v) {
      json x = {{"name", s.name},
                {"count", s.count},
                {"total_us", us(s.sum)},
                {"min_us", us(s.low)},
                {"max_us", us(s.high)}};
      if (!s.core.empty()) x["core"] = s.core;
      if (busy) x["busy_us"] = us(s.busy);
      rows.push_back(std::move(x));
    }
    return rows;
  };
  j["by_type"] = table(o.by_type, false);
  j["by_stream"] = table(o.by_stream, true);
  j["by_core"] = table(o.by_core, false);
  json slow = json::array();
  for (std::uint32_t i : o.slowest) {
    const Kernel& k = t.kernels[i];
    slow.push_back({{"org_index", k.row},
                    {"name", t.text(k.name)},
                    {"type", t.text(k.type)},
                    {"duration_us", us(k.duration)},
                    {"start_us", us(k.start)}});
  }
  j["slowest"] = std::move(slow);
  json gaps;
  for (std::size_t c = 0; c < bubble_classes; ++c)
    gaps[std::string(bubble_name(static_cast<Bubble>(c)))] = {{"count", o.gap_count[c]},
                                                              {"total_us", us(o.gap_time[c])}};
  j["gaps"] = std::move(gaps);
  j["flows"] = o.has_flows;
  json host = json::array();
  for (const HostStretch& h : o.host_bound)
    host.push_back({{"start_us", us(h.from)},
                    {"end_us", us(h.to)},
                    {"idle_us", us(h.idle)},
                    {"kernels", h.kernels},
                    {"first_kernel", t.text(t.kernels[h.first].name)}});
  j["host_bound"] = std::move(host);
  json checks = json::array();
  for (const StepCheck& c : o.checks)
    checks.push_back({{"step", c.step},
                      {"figure", c.name},
                      {"file_us", c.file / 1e3},
                      {"computed_us", c.ours / 1e3},
                      {"equal", c.equal}});
  j["step_trace_check"] = std::move(checks);
  j["wait_time"] = {{"rows", o.wait_rows},
                    {"differs", o.wait_differs},
                    {"worst_us", us(o.wait_worst)},
                    {"total_us", us(o.wait_total)}};
  json comm = json::array();
  for (const RankWait& r : o.collectives)
    comm.push_back({{"name", r.name},
                    {"elapse_us", us(r.elapse)},
                    {"transit_us", us(r.transit)},
                    {"wait_us", us(r.wait)}});
  j["collectives"] = std::move(comm);
  j["notes"] = t.notes;
  return j;
}

std::string overview_text(const Timeline& t, const Overview& o) {
  std::string s;
  auto line = [&](const std::string& text) { s += text + "\n"; };
  const StepSummary& x = o.steps[o.step];
  line(fmt::format("{} kernels in {} step{}; step {}: {} kernels, {} from first start to last end",
                   t.kernels.size(), o.steps.size(), o.steps.size() == 1 ? "" : "s", x.name,
                   x.kernels, show_ns(static_cast<double>(x.last - x.first))));
  line(fmt::format(
      "  computing {}, communication not overlapped {}, overlapped {}, free {}",
      show_ns(static_cast<double>(x.computing)), show_ns(static_cast<double>(x.exposed)),
      show_ns(static_cast<double>(x.overlapped)), show_ns(static_cast<double>(x.free))));
  std::size_t off = 0;
  for (const StepCheck& c : o.checks) off += !c.equal;
  if (!o.checks.empty())
    line(fmt::format("  step_trace_time.csv: {} of {} figures agree within 0.1 % of the stage",
                     o.checks.size() - off, o.checks.size()));
  line("  time by type:");
  for (std::size_t i = 0; i < o.by_type.size() && i < 12; ++i) {
    const TimeShare& y = o.by_type[i];
    line(fmt::format("    {:<36} {:<15} {:>7} x {:>12}  {:5.1f} %", y.name.substr(0, 36), y.core,
                     y.count, show_ns(static_cast<double>(y.sum)),
                     x.kernel_sum
                         ? 100.0 * static_cast<double>(y.sum) / static_cast<double>(x.kernel_sum)
                         : 0.0));
  }
  line("  streams:");
  for (const TimeShare& y : o.by_stream)
    line(fmt::format("    {:<20} {:>7} kernels, busy {}", y.name, y.count,
                     show_ns(static_cast<double>(y.busy))));
  line("  nothing ran:");
  for (std::size_t c = 0; c < bubble_classes; ++c)
    if (o.gap_count[c])
      line(fmt::format("    {:<16} {:>7} gaps {:>12}", bubble_name(static_cast<Bubble>(c)),
                       o.gap_count[c], show_ns(static_cast<double>(o.gap_time[c]))));
  if (!o.has_flows)
    line("    (no flows from host to device in the profile: host gaps cannot be told from others)");
  for (const std::string& n : t.notes) line("  note: " + n);
  return s;
}

}  // namespace tk

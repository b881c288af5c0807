#include "timeline/steps.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/intervals.h"

namespace tk {

namespace {

using Counts = std::map<StringId, std::size_t>;

Counts type_counts(const Timeline& t, const std::vector<std::uint32_t>& kernels) {
  std::vector<std::uint32_t> n(t.strings.size());
  Counts out;
  for (std::uint32_t i : kernels) ++n[t.kernels[i].type];
  for (std::uint32_t i : kernels) {
    const StringId type = t.kernels[i].type;
    if (n[type]) out[type] = n[type];
    n[type] = 0;
  }
  return out;
}

Ns median(std::vector<Ns> v) {
  std::sort(v.begin(), v.end());
  return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

}  // namespace

std::vector<StepSummary> summarize_steps(const Timeline& t,
                                         const std::vector<std::vector<std::uint32_t>>& by_step) {
  std::vector<StepSummary> out;
  std::map<Counts, std::size_t> groups;
  std::map<std::string, Ns, std::less<>> host_start;  // of ProfilerStep#n
  for (const TraceSpan& span : t.trace.steps)
    host_start.emplace(t.text(span.name).substr(std::string_view("ProfilerStep#").size()),
                       span.start);
  std::vector<signed char> receive(t.strings.size(), -1);
  for (std::size_t s = 0; s < by_step.size(); ++s) {
    StepSummary x;
    x.name = t.steps[s];
    x.kernels = by_step[s].size();
    Intervals compute, comm;
    bool any = false;
    for (std::uint32_t i : by_step[s]) {
      const Kernel& k = t.kernels[i];
      x.first = any ? std::min(x.first, k.start) : k.start;
      x.last = any ? std::max(x.last, k.end()) : k.end();
      any = true;
      x.kernel_sum += k.duration;
      (k.core == Core::communication ? comm : compute).push_back({k.start, k.end()});
      if (k.core == Core::communication) {
        signed char& is = receive[k.name];
        if (is < 0) is = t.text(k.name).find("hcom_receive") != std::string_view::npos;
        if (is && !k.has_task) x.bubble += k.duration;
      }
    }
    compute = merged(std::move(compute));
    comm = merged(std::move(comm));
    x.computing = total(compute);
    x.communication = total(comm);
    x.exposed = total(difference(comm, compute));
    x.overlapped = x.communication - x.exposed;
    x.free = (x.last - x.first) - x.computing - x.exposed;
    x.stage = (x.last - x.first) - x.bubble;
    if (const auto it = host_start.find(x.name); it != host_start.end() && x.kernels)
      x.preparing = x.first - it->second;
    x.group = groups.try_emplace(type_counts(t, by_step[s]), groups.size()).first->second;
    out.push_back(std::move(x));
  }
  std::map<std::size_t, std::vector<Ns>> sums;
  for (const StepSummary& x : out) sums[x.group].push_back(x.kernel_sum);
  for (StepSummary& x : out) {
    const auto m = static_cast<double>(median(sums[x.group]));
    const auto v = static_cast<double>(x.kernel_sum);
    x.flagged = sums[x.group].size() > 1 && (v > 1.3 * m || v < 0.7 * m);
  }
  return out;
}

StepChoice choose_step(const Timeline& t, const std::vector<std::vector<std::uint32_t>>& by_step,
                       const std::vector<StepSummary>& steps, const std::string& wanted,
                       bool strict) {
  std::size_t usable = 0, groups = 0;
  for (const StepSummary& s : steps) {
    usable += s.kernels > 0;
    groups = std::max(groups, s.group + 1);
  }
  if (usable == 0)
    throw UserError("TK0912", "no kernel belongs to a step")
        .at(t.table ? t.table->path : t.trace.path)
        .help("call step() of the profiler once per step; see `tokamak profile --check`");
  StepChoice c;
  if (groups > 1) {
    std::vector<std::size_t> size(groups);
    std::size_t big = 0;
    for (const StepSummary& s : steps) ++size[s.group];
    for (std::size_t g = 1; g < groups; ++g)
      if (size[g] > size[big]) big = g;
    std::size_t of_big = 0, of_other = steps.size();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].group == big)
        of_big = i;
      else if (of_other == steps.size())
        of_other = i;
    }
    Counts a = type_counts(t, by_step[of_big]), b = type_counts(t, by_step[of_other]);
    std::vector<std::string> differences;
    for (const auto& [type, n] : a) {
      const std::size_t m = b.contains(type) ? b[type] : 0;
      if (m != n) differences.push_back(cat(t.text(type), " ", n, " / ", m));
    }
    for (const auto& [type, m] : b)
      if (!a.contains(type)) differences.push_back(cat(t.text(type), " 0 / ", m));
    std::string text;
    for (std::size_t i = 0; i < differences.size() && i < 10; ++i)
      text += cat(i ? ", " : "", differences[i]);
    if (differences.size() > 10) text += cat(" and ", differences.size() - 10, " more");
    const std::string message =
        cat(groups, " groups of steps with different kernels; step ", steps[of_big].name,
            " and step ", steps[of_other].name, " differ in ", text);
    if (strict)
      throw UserError("TK0912", message).help("leave out --strict-steps, or name a --step");
    c.warnings.push_back(message);
  }
  auto list = [&] {
    std::string text;
    for (std::size_t i = 0; i < steps.size() && i < 20; ++i)
      text += cat(i ? ", " : "", steps[i].name);
    if (steps.size() > 20) text += cat(" and ", steps.size() - 20, " more");
    return text;
  };
  if (wanted != "auto") {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].name != wanted || steps[i].kernels == 0) continue;
      c.step = i;
      c.origin = "user";
      if (steps[i].flagged)
        c.warnings.push_back(cat("step ", wanted, " is not typical: its kernel sum ",
                                 show_ns(static_cast<double>(steps[i].kernel_sum)),
                                 " is more than 30 % off the median"));
      return c;
    }
    throw UserError("TK0912", cat("there is no step ", wanted)).note(cat("steps: ", list()));
  }
  if (usable == 1) {
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (steps[i].kernels) c.step = i;
    c.origin = "auto:only";
    return c;
  }
  // The step nearest the median of the largest group, ties to the later, never the first.
  std::vector<std::size_t> members(groups);
  for (const StepSummary& s : steps) members[s.group] += s.kernels > 0;
  const std::size_t group =
      static_cast<std::size_t>(std::max_element(members.begin(), members.end()) - members.begin());
  const bool whole = members[group] == 1;  // every step differs: take the median of all
  std::vector<Ns> sums;
  for (const StepSummary& s : steps)
    if (s.kernels && (whole || s.group == group)) sums.push_back(s.kernel_sum);
  const Ns m = median(sums);
  std::size_t first = 0;
  while (steps[first].kernels == 0) ++first;
  Ns best = INT64_MAX;
  for (std::size_t i = first + 1; i < steps.size(); ++i) {
    if (steps[i].kernels == 0 || !(whole || steps[i].group == group)) continue;
    const Ns off = std::abs(steps[i].kernel_sum - m);
    if (off <= best) {
      best = off;
      c.step = i;
    }
  }
  if (best == INT64_MAX) c.step = first;
  c.origin = "auto:nearest_median";
  return c;
}

}  // namespace tk

#include "timeline/bubbles.h"

#include <algorithm>

namespace tk {

namespace {

// A MIX kernel takes both engines; a real device shows a steady 0.8 to 1.5 us before and after one.
constexpr Ns longest_switch = 2000;

bool mix(Core c) { return c == Core::mix_aic || c == Core::mix_aiv; }

}  // namespace

std::string_view bubble_name(Bubble b) {
  switch (b) {
    case Bubble::host:
      return "host";
    case Bubble::event_wait:
      return "event wait";
    case Bubble::engine_switch:
      return "engine switch";
    case Bubble::collective_wait:
      return "collective wait";
    case Bubble::unknown:
      break;
  }
  return "unknown";
}

std::vector<Ns> launch_times(const Timeline& t) {
  std::vector<Ns> out;
  if (t.trace.launch_to.empty() || t.trace.launch_from.empty()) return out;
  // Both ends by id, which is the order they are written in; the first start of an id counts.
  std::vector<FlowEnd> from_copy, to_copy;
  auto by_id = [](const FlowEnd& a, const FlowEnd& b) {
    return a.id != b.id ? a.id < b.id : a.time < b.time;
  };
  auto sorted = [&](const std::vector<FlowEnd>& v, std::vector<FlowEnd>& copy) -> const auto& {
    if (std::is_sorted(v.begin(), v.end(), by_id)) return v;
    copy = v;
    std::sort(copy.begin(), copy.end(), by_id);
    return copy;
  };
  const std::vector<FlowEnd>& from = sorted(t.trace.launch_from, from_copy);
  const std::vector<FlowEnd>& to = sorted(t.trace.launch_to, to_copy);
  struct Arrival {
    Ns at, launched;
    std::int64_t tid;
  };
  std::vector<Arrival> arrivals;
  arrivals.reserve(to.size());
  auto start = from.begin();
  for (const FlowEnd& f : to) {
    while (start != from.end() && start->id < f.id) ++start;
    if (start != from.end() && start->id == f.id) arrivals.push_back({f.time, start->time, f.tid});
  }
  auto by_time = [](const Arrival& a, const Arrival& b) { return a.at < b.at; };
  if (!std::is_sorted(arrivals.begin(), arrivals.end(), by_time))
    std::sort(arrivals.begin(), arrivals.end(), by_time);
  if (arrivals.empty()) return out;
  out.assign(t.kernels.size(), -1);
  std::size_t from_here = 0;
  for (std::size_t i = 0; i < t.kernels.size(); ++i) {
    const Kernel& k = t.kernels[i];
    while (from_here < arrivals.size() && arrivals[from_here].at < k.start - 1) ++from_here;
    for (std::size_t j = from_here; j < arrivals.size() && arrivals[j].at <= k.start + 1; ++j)
      if (k.stream == no_stream || arrivals[j].tid == k.stream)
        out[i] = std::max(out[i], arrivals[j].launched);
  }
  return out;
}

GapFinder::GapFinder(const Timeline& t)
    : t_(t), launch_(launch_times(t)), has_flows_(!launch_.empty()) {
  for (const TraceSpan& s : t.trace.device) {
    const std::string_view name = t.text(s.name), type = t.text(s.task_type);
    if (name == "EVENT_WAIT" || name == "NOTIFY_WAIT" || type == "EVENT_WAIT_SQE" ||
        type == "NOTIFY_WAIT_SQE" || type == "Notify Wait") {
      waits_.push_back(&s);
      longest_wait_ = std::max(longest_wait_, s.duration);
    }
  }
  for (std::uint32_t i = 0; i < t.kernels.size(); ++i)
    if (t.kernels[i].core == Core::communication) {
      collectives_.push_back(i);
      longest_collective_ = std::max(longest_collective_, t.kernels[i].duration);
    }
}

std::vector<Gap> GapFinder::gaps(std::vector<std::uint32_t> kernels) const {
  std::sort(kernels.begin(), kernels.end(), [&](std::uint32_t a, std::uint32_t b) {
    return t_.kernels[a].start != t_.kernels[b].start ? t_.kernels[a].start < t_.kernels[b].start
                                                      : a < b;
  });
  std::vector<Gap> out;
  Ns end = INT64_MIN;
  std::uint32_t last = 0;
  for (std::uint32_t i : kernels) {
    const Kernel& k = t_.kernels[i];
    if (end != INT64_MIN && k.start > end) {
      Gap g{end, k.start, Bubble::unknown, last, i, 0, no_stream};
      const Ns launched = launch(i);
      Ns covered = 0;
      const auto first =
          std::lower_bound(collectives_.begin(), collectives_.end(), g.from - longest_collective_,
                           [&](std::uint32_t c, Ns at) { return t_.kernels[c].start < at; });
      for (auto c = first; c != collectives_.end() && t_.kernels[*c].start < g.to; ++c)
        covered = std::max(
            covered, std::min(g.to, t_.kernels[*c].end()) - std::max(g.from, t_.kernels[*c].start));
      const TraceSpan* wait = nullptr;
      const auto w0 = std::lower_bound(waits_.begin(), waits_.end(), g.from - longest_wait_,
                                       [](const TraceSpan* s, Ns at) { return s->start < at; });
      for (auto w = w0; w != waits_.end() && (*w)->start < g.to; ++w)
        if ((*w)->end() > g.from && (k.stream == no_stream || (*w)->tid == k.stream) &&
            std::min(g.to, (*w)->end()) - std::max(g.from, (*w)->start) > 0)
          wait = *w;
      if (covered * 2 > g.length()) {
        g.kind = Bubble::collective_wait;
      } else if (launched >= 0 && launched > g.from) {
        g.kind = Bubble::host;
        g.late_by = launched - g.from;
      } else if (wait) {
        g.kind = Bubble::event_wait;
        g.stream = static_cast<std::int32_t>(wait->tid);
      } else if (g.length() <= longest_switch && (mix(t_.kernels[last].core) || mix(k.core))) {
        g.kind = Bubble::engine_switch;
      }
      out.push_back(g);
    }
    if (k.end() >= end) {
      end = k.end();
      last = i;
    }
  }
  return out;
}

}  // namespace tk

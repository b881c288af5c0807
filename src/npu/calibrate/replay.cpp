#include "npu/calibrate/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"

namespace tk {
namespace {

constexpr Ns near = 5000;  // ns

sim::Engine engine_of(Core core) {
  switch (core) {
    case Core::ai_core:
      return sim::Engine::ai_core;
    case Core::mix_aic:
      return sim::Engine::mix_aic;
    case Core::mix_aiv:
      return sim::Engine::mix_aiv;
    default:
      return sim::Engine::ai_vector;
  }
}

}  // namespace

Replay replay(const Timeline& t, const std::string& step, const DeviceFile& device,
              const CostFile& costs) {
  std::int32_t index = -1;
  for (std::size_t i = 0; i < t.steps.size(); ++i)
    if (step.empty() ? index < 0 : t.steps[i] == step) index = static_cast<std::int32_t>(i);
  std::vector<const Kernel*> kernels;
  for (const Kernel& k : t.kernels)
    if (k.step == index || (t.steps.empty() && step.empty())) kernels.push_back(&k);
  if (kernels.size() < 2)
    throw UserError("TK1433", step.empty() ? "the profile has no step with two kernels to replay"
                                           : cat("the profile has no step '", step, "' to replay"))
        .help("a step with kernels of known start and duration is needed");
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const Kernel* a, const Kernel* b) { return a->start < b->start; });

  Replay r;
  r.kernels = kernels.size();
  sim::Plan plan;
  std::map<std::int32_t, std::int32_t> streams;
  std::map<std::int32_t, Ns> stream_end;
  std::vector<std::int32_t> waits_for(kernels.size(), sim::none);
  std::vector<char> recorded(kernels.size(), 0);
  Ns busy_until = kernels.front()->start;
  std::size_t last = 0;  // the kernel that ended last so far
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const Kernel& k = *kernels[i];
    streams.emplace(k.stream, static_cast<std::int32_t>(streams.size()));
    r.unexplained_us +=
        static_cast<double>(k.start - busy_until >= near ? k.start - busy_until : 0) / 1e3;
    // The latest end on another stream that is just before this start.
    Ns best = stream_end.count(k.stream) != 0 ? stream_end[k.stream] : INT64_MIN;
    for (std::size_t j = i > 64 ? i - 64 : 0; j < i; ++j) {
      const Kernel& o = *kernels[j];
      if (o.stream == k.stream || o.end() > k.start || k.start - o.end() > near || o.end() <= best)
        continue;
      best = o.end();
      waits_for[i] = static_cast<std::int32_t>(j);
    }
    if (waits_for[i] != sim::none) {
      recorded[static_cast<std::size_t>(waits_for[i])] = 1;
      ++r.edges;
    }
    stream_end[k.stream] = k.end();
    if (k.end() > kernels[last]->end()) last = i;
    busy_until = std::max(busy_until, k.end());
    r.busy_us += static_cast<double>(k.duration) / 1e3;
  }
  plan.streams.resize(streams.size());
  r.streams = streams.size();
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const Kernel& k = *kernels[i];
    sim::Launch l;
    l.stream = streams[k.stream];
    l.engine = engine_of(k.core);
    l.fixed = k.duration * 1000;
    if (waits_for[i] != sim::none) l.waits = sim::append(plan.events, {waits_for[i]});
    if (recorded[i] != 0) l.records = sim::append(plan.events, {static_cast<std::int32_t>(i)});
    plan.launches.push_back(l);
  }
  sim::SimOptions options;
  options.without = 1U << static_cast<unsigned>(sim::Effect::host);
  const sim::Result result =
      sim::simulate(plan, params_of(device, costs, sim::Mode::ge_graph), options);
  std::vector<sim::Ps> start(kernels.size(), 0);
  sim::Ps first = INT64_MAX;
  sim::Ps end = 0;
  for (const sim::Span& s : result.spans) {
    start[static_cast<std::size_t>(s.launch)] = s.start;
    first = std::min(first, s.start);
    end = std::max(end, s.end);
  }
  const Ns zero = kernels.front()->start;
  std::vector<double> errors;
  errors.reserve(kernels.size());
  for (std::size_t i = 0; i < kernels.size(); ++i)
    errors.push_back(std::abs(static_cast<double>(start[i] - first) / 1e6 -
                              static_cast<double>(kernels[i]->start - zero) / 1e3));
  std::sort(errors.begin(), errors.end());
  r.start_error_us = errors[errors.size() / 2];
  r.measured_us = static_cast<double>(kernels[last]->end() - zero) / 1e3;
  r.replayed_us = static_cast<double>(end - first) / 1e6;
  return r;
}

std::string replay_text(const Replay& r) {
  return fmt::format(
      "replayed        {} kernels of one step on {} streams, {} waits across streams (inferred)\n"
      "measured        {:.1f} us from the first start to the last end, {:.1f} us of kernels\n"
      "replay          {:.1f} us ({:+.1f} %); half of the starts are within {:.1f} us\n"
      "not explained   {:.1f} us in gaps of 5 us and more, where the device waited for the host\n",
      r.kernels, r.streams, r.edges, r.measured_us, r.busy_us, r.replayed_us,
      100 * (r.replayed_us / r.measured_us - 1), r.start_error_us, r.unexplained_us);
}

}  // namespace tk

#include "npu/sim/simulate.h"

#include <algorithm>

#include "npu/sim/result.h"

namespace tk::sim {

Result simulate(const Plan& plan, const DeviceParams& device, const SimOptions& options) {
  const Prepared prepared = prepare(plan, device);
  Loop loop(prepared, device, options);
  loop.s.spans.reserve(plan.launches.size());
  Result result;
  Sums before, after = sums_of(loop);
  const bool may_repeat = options.steps > 2 && options.jitter_ppm == 0 && options.mhz_from.empty();
  std::vector<L2> l2;
  Ps now = 0, launched = 0, previous = 0, ahead = -1;
  for (int step = 0; step < options.steps; ++step) {
    const bool repeats =
        may_repeat && step > 1 && (!options.launch_ahead || ahead == now - launched) &&
        std::equal(l2.begin(), l2.end(), loop.s.ranks.begin(),
                   [](const L2& a, const RankState& b) { return a.same_as(b.l2); });
    if (repeats) {
      const std::size_t n = plan.launches.size();
      const Ps length = now - previous;
      const std::size_t last = result.spans.size() - n;
      for (int k = step; k < options.steps; ++k) {
        for (std::size_t i = 0; i < n; ++i) {
          Span s = result.spans[last + i];
          s.step = k;
          s.start += (k - step + 1) * length, s.end += (k - step + 1) * length;
          result.spans.push_back(s);
        }
        result.step_end.push_back(now + (k - step + 1) * length);
      }
      after = repeated(after, before, options.steps - step);
      break;
    }
    if (may_repeat) {
      l2.clear();
      for (const RankState& rk : loop.s.ranks) l2.push_back(rk.l2);
    }
    ahead = now - launched;
    loop.begin_step(step, now, options.launch_ahead ? launched : now);
    launched = now;
    loop.run();
    previous = now;
    now = loop.s.now;
    take_step(&loop, previous, &result);
    before = std::move(after);
    after = sums_of(loop);
  }
  finish(loop, after, &result);
  return result;
}

std::array<Ps, term_count> terms_alone(const Plan& plan, const DeviceParams& device,
                                       const SimOptions& options, const Span& span) {
  const Prepared prepared = prepare(plan, device);
  return alone(Loop(prepared, device, options), span).term;
}

std::string_view effect_name(Effect e) {
  constexpr std::array<std::string_view, effect_count> names = {
      "host", "sharing", "cores", "l2", "gaps", "heads", "events", "links", "prefetch"};
  return names[static_cast<std::size_t>(e)];
}

std::string_view cause_name(Cause c) {
  constexpr std::array<std::string_view, cause_count> names = {"host",  "event", "core", "peers",
                                                               "queue", "gap",   "empty"};
  return names[static_cast<std::size_t>(c)];
}

std::string_view term_name(Term t) {
  constexpr std::array<std::string_view, term_count> names = {
      "cube", "vector", "hbm_read", "hbm_write", "l2", "link", "fixed"};
  return names[static_cast<std::size_t>(t)];
}

}  // namespace tk::sim

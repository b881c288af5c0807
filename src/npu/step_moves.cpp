#include "npu/step_moves.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "npu/prefetch.h"
#include "npu/superkernel.h"

namespace tk {
namespace {

constexpr double least_superkernel_gain = 0.01;  // SK-42

sim::DeviceParams with_guesses(sim::DeviceParams d, std::int64_t percent) {
  for (sim::Ps* t : {&d.part_preloaded, &d.part_cold, &d.sync_base, &d.sync_full})
    *t = *t * percent / 100;
  // A faster engine is the better case.
  d.prefetch_rate = d.prefetch_rate * 100 / percent;
  return d;
}

double step_ms(const sim::Plan& plan, const sim::DeviceParams& d, const sim::SimOptions& o) {
  const sim::Result r = sim::simulate(plan, d, o);
  return static_cast<double>(r.step_end[1] - r.step_end[0]) / 1e9;
}

// `before` without the change; its guesses do not occur there. The published gains of these moves
// lie between nothing and an eighth of what is predicted (docs/virtual-npu.md), so that the low end
// is no gain, and none is kept before it has been measured.
StepGain weigh(std::string what, std::string detail, double before, const Simulation& after) {
  StepGain g;
  g.what = std::move(what);
  g.detail = std::move(detail);
  g.before_ms = before;
  g.after_ms = after.step_ms();
  g.low = std::min(
      0.0, 1 - step_ms(after.plan, with_guesses(after.params, 150), after.options) / before);
  g.high = 1 - step_ms(after.plan, with_guesses(after.params, 50), after.options) / before;
  g.verdict = g.high <= 0 ? "loss" : "pending: measure";
  return g;
}

}  // namespace

CoreLimit parse_core_limit(std::string_view text) {
  CoreLimit limit;
  const char* p = text.data();
  const char* end = p + text.size();
  const auto number = [&](auto* v) {
    const auto [next, error] = std::from_chars(p, end, *v);
    const bool good = error == std::errc() && *v >= 0;
    p = next;
    return good;
  };
  const auto mark = [&](char c) {
    if (p == end || *p != c) return false;
    ++p;
    return true;
  };
  bool good = true;
  if (text.find('=') != std::string_view::npos) good = number(&limit.stream) && mark('=');
  good = good && number(&limit.cube) && mark(':') && number(&limit.vector) && p == end &&
         limit.cube > 0 && limit.vector > 0;
  if (!good)
    throw UserError("TK1451", cat("'", text, "' is no core limit"))
        .help("write cube and vector cores as 12:24, or 2=8:16 for stream 2 alone");
  return limit;
}

Simulation simulate_step(const Step& step, const DeviceFile& device, const CostFile& costs,
                         sim::Mode mode, Scene scene, std::uint32_t without,
                         const StepMoves& moves) {
  if (!moves.superkernel.empty() && mode == sim::Mode::eager)
    throw UserError("TK1453", "eager mode has no SuperKernel")
        .help("choose --mode ge_graph or npugraph_ex");
  sim::SimOptions options = step_options(mode, without);
  // The host is busy with tiling until the last launch.
  if (moves.plan.dynamic) options.launch_ahead = false;
  options.mhz_from = moves.mhz_from;
  const auto run = [&](const Step& s, sim::Plan plan) {
    return simulate_plan(s, std::move(plan), device, costs, scene, options);
  };
  Step now = step;
  Simulation best = run(now, plan_of(now, device, costs, mode, moves.plan));
  std::vector<StepGain> gains;
  if (moves.prefetch) {
    StepGain gain;
    gain.what = "prefetch";
    gain.detail = "no weight has a window before it";
    gain.before_ms = gain.after_ms = best.step_ms();
    gain.verdict = "no gain";
    bool found = false;
    Step best_step = now;
    Simulation with = best;
    for (const double share : {1.0, 0.7, 0.5, 0.3, 0.1}) {
      const std::vector<PrefetchSite> sites = prefetch_sites(now, best, share);
      if (sites.empty()) continue;
      const Step tried = with_prefetches(now, sites);
      Simulation s = run(tried, plan_of(tried, device, costs, mode, moves.plan));
      if (!found || s.step < with.step) {
        found = true;
        std::int64_t bytes = 0;
        for (const PrefetchSite& site : sites) bytes += site.bytes;
        gain.detail = fmt::format("{} transfers, {:.1f} MB, up to {:.0f} % of each weight",
                                  sites.size(), static_cast<double>(bytes) / 1e6, 100 * share);
        with = std::move(s);
        best_step = tried;
      }
    }
    if (found) gain = weigh(gain.what, gain.detail, best.step_ms(), with);
    if (moves.prefetch_stays) {
      best = std::move(with);
      now = std::move(best_step);
    }
    gains.push_back(std::move(gain));
  }
  if (!moves.superkernel.empty()) {
    const bool choose = moves.superkernel == "auto";
    Segments segments =
        with_segments(best.plan, scopes_of(now, moves.superkernel), best.params, choose);
    const std::string detail = fmt::format("{}: {} segments of {} launches", moves.superkernel,
                                           segments.segments, segments.launches);
    Simulation with = run(now, std::move(segments.plan));
    StepGain gain = weigh("superkernel", detail, best.step_ms(), with);
    if (gain.high > 0 && gain.high < least_superkernel_gain) gain.verdict = "no gain";
    if (!choose) best = std::move(with);
    gains.push_back(std::move(gain));
  }
  best.gains = std::move(gains);
  return best;
}

}  // namespace tk

#include "npu/clock.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/error.h"

namespace tk {
namespace {

struct Alike {
  std::int64_t count = 0;
  double ms = 0;
};

std::map<std::string, Alike> kernels_of(const Simulation& s) {
  std::map<std::string, Alike> all;
  for (const sim::Span& span : s.spans) {
    const sim::Launch& l = s.plan.launches[static_cast<std::size_t>(span.launch)];
    const sim::LaunchText& t = s.plan.texts[static_cast<std::size_t>(l.text)];
    Alike& a = all[cat(t.type, " ", t.in_shapes, " ", t.in_types, " ", t.out_shapes)];
    ++a.count;
    a.ms += static_cast<double>(span.end - span.start) / 1e9;
  }
  return all;
}

}  // namespace

NpuClock::NpuClock(std::string_view target) : device_(load_device_file(target)) {}

Simulation NpuClock::step(const Graph& graph, const StepShape& shape, sim::Mode mode) const {
  return step(lower_graph(graph, shape, {}), shape, mode);
}

Simulation NpuClock::step(const Step& work, const StepShape& shape, sim::Mode mode) const {
  Scene scene;
  scene.batch = shape.sequences;
  scene.tokens = shape.tokens;
  scene.kv = shape.kv_len;
  return simulate_step(work, device_, default_costs(), mode, std::move(scene));
}

Difference difference(const Simulation& before, const Simulation& after) {
  std::map<std::string, Alike> a = kernels_of(before);
  std::map<std::string, Alike> b = kernels_of(after);
  for (const auto& [key, alike] : b) a.emplace(key, Alike{});
  Difference d;
  double squares = 0;
  for (const auto& [key, was] : a) {
    const Alike& is = b[key];
    // The mean of those alike: which of them is gone is not known.
    const auto extra = [](const Alike& more, const Alike& less) {
      return more.count <= less.count ? 0
                                      : more.ms * static_cast<double>(more.count - less.count) /
                                            static_cast<double>(more.count);
    };
    const double ms = extra(was, is) + extra(is, was);
    d.changed_ms += ms;
    squares += ms * ms;
  }
  d.ratio = after.step_ms() / before.step_ms();
  const Band ratio = band_of("ratio");
  const Band kernel = band_of("kernel, source of constants");
  TK_CHECK(ratio.cases > 0 && kernel.cases > 0, "validation.json has the bands");
  const double own = kernel.p90 * std::sqrt(squares) / before.step_ms();
  d.low = std::max(d.ratio - own, d.ratio / (1 + ratio.p90));
  d.high = std::min(d.ratio + own, d.ratio * (1 + ratio.p90));
  return d;
}

}  // namespace tk

#include "npu/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"

namespace tk {
namespace {

double us(sim::Ps ps) { return static_cast<double>(ps) / 1e6; }

sim::Term bound_of(const sim::Span& s) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < sim::term_count; ++i)
    if (s.term[i] > s.term[best]) best = i;
  return static_cast<sim::Term>(best);
}

void sum_kernels(const Step& step, Simulation* s) {
  struct Sum {
    KernelSum sum;
    std::array<double, sim::term_count> by_term{};
  };
  std::map<std::string, Sum> sums;
  for (const sim::Span& span : s->spans) {
    const KernelWork& k = step.kernels()[static_cast<std::size_t>(span.launch)];
    Sum& sum = sums[k.type];
    sum.sum.type = k.type;
    sum.sum.family = family_name(k.family);
    ++sum.sum.launches;
    const double time = us(span.end - span.start);
    sum.sum.us += time;
    const auto bound = static_cast<std::size_t>(bound_of(span));
    // A head longer than the work is what decides.
    if (2 * span.term[bound] >= span.end - span.start) sum.by_term[bound] += time;
  }
  for (auto& [type, sum] : sums) {
    const auto most = static_cast<std::size_t>(
        std::max_element(sum.by_term.begin(), sum.by_term.end()) - sum.by_term.begin());
    const auto term = static_cast<sim::Term>(most);
    // The only fixed term of a kernel is that of weights read group by group (cost_model.cpp).
    sum.sum.bound = 2 * sum.by_term[most] <= sum.sum.us ? "start and end of the kernel"
                    : term == sim::Term::fixed          ? "weights, read group by group"
                                                        : std::string(sim::term_name(term));
    s->kernels.push_back(std::move(sum.sum));
  }
  std::stable_sort(s->kernels.begin(), s->kernels.end(),
                   [](const KernelSum& a, const KernelSum& b) { return a.us > b.us; });
}

}  // namespace

sim::Mode parse_mode(std::string_view text) {
  if (text == "eager") return sim::Mode::eager;
  if (text == "npugraph_ex") return sim::Mode::npugraph_ex;
  if (text == "ge_graph") return sim::Mode::ge_graph;
  throw UserError("TK1417", cat("there is no mode '", text, "'"))
      .help("the modes are eager, npugraph_ex and ge_graph");
}

std::string_view mode_name(sim::Mode mode) {
  return mode == sim::Mode::eager         ? "eager"
         : mode == sim::Mode::npugraph_ex ? "npugraph_ex"
                                          : "ge_graph";
}

std::string_view core_name(sim::Engine e) {
  switch (e) {
    case sim::Engine::ai_core:
      return "AI_CORE";
    case sim::Engine::ai_vector:
      return "AI_VECTOR_CORE";
    case sim::Engine::mix_aic:
      return "MIX_AIC";
    case sim::Engine::mix_aiv:
      return "MIX_AIV";
    case sim::Engine::ai_cpu:
      return "AI_CPU";
    case sim::Engine::communication:
      return "COMMUNICATION";
    case sim::Engine::dma:
    case sim::Engine::prefetch:
      return "SDMA";
  }
  return "";
}

std::string_view band_kind(sim::Mode mode) {
  return mode == sim::Mode::eager ? "eager step" : "graph step";
}

std::uint32_t parse_effects(std::string_view text) {
  std::uint32_t bits = 0;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view name = text.substr(0, comma);
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
    std::string all;
    bool found = false;
    for (std::size_t i = 0; i < sim::effect_count; ++i) {
      const std::string_view effect = sim::effect_name(static_cast<sim::Effect>(i));
      all += cat(all.empty() ? "" : ", ", effect);
      if (effect != name) continue;
      bits |= 1U << i;
      found = true;
    }
    if (!found)
      throw UserError("TK1418", cat("there is no effect '", name, "'"))
          .help(cat("the effects are ", all));
  }
  return bits;
}

sim::SimOptions step_options(sim::Mode mode, std::uint32_t without) {
  sim::SimOptions options;
  options.without = without;
  options.steps = 2;
  options.launch_ahead = mode != sim::Mode::eager;
  return options;
}

Simulation simulate_step(const Step& step, const DeviceFile& device, const CostFile& costs,
                         sim::Mode mode, Scene scene, std::uint32_t without) {
  return simulate_plan(step, plan_of(step, device, costs, mode), device, costs, std::move(scene),
                       step_options(mode, without));
}

Simulation simulate_plan(const Step& step, sim::Plan plan, const DeviceFile& device,
                         const CostFile& costs, Scene scene, const sim::SimOptions& options) {
  const sim::Mode mode = plan.mode;
  Simulation s;
  s.scene = std::move(scene);
  s.scene.mode = mode_name(mode);
  s.device = device.name;
  s.cost_id = costs.id;
  s.params = params_of(device, costs, mode);
  s.options = options;
  s.plan = std::move(plan);
  s.result = sim::simulate(s.plan, s.params, options);
  TK_CHECK(s.result.step_end.size() == 2, "two steps were asked for");
  s.begin = s.result.step_end[0];
  s.step = s.result.step_end[1] - s.result.step_end[0];
  std::array<sim::Ps, sim::cause_count> idle{};
  for (const sim::Span& span : s.result.spans) {
    if (span.step != 1) continue;
    s.spans.push_back(span);
    s.hbm_bytes += span.hbm_read + span.hbm_write;
    if (s.plan.launches[static_cast<std::size_t>(span.launch)].stream == 0)
      for (std::size_t i = 0; i < idle.size(); ++i) idle[i] += span.idle[i];
  }
  std::stable_sort(s.spans.begin(), s.spans.end(),
                   [](const sim::Span& a, const sim::Span& b) { return a.start < b.start; });
  for (std::size_t i = 0; i < idle.size(); ++i)
    if (idle[i] > 0)
      s.idle_us.emplace_back(sim::cause_name(static_cast<sim::Cause>(i)), us(idle[i]));
  sum_kernels(step, &s);
  for (const KernelWork& k : step.kernels()) s.default_rules += k.default_rule ? 1 : 0;
  s.weight_bytes = step.weight_bytes();
  s.state_bytes = step.state_bytes();
  s.memory_bytes = static_cast<std::int64_t>(device.numbers.at("hbm_gib") * (1LL << 30));
  s.band = band_of(band_kind(mode));
  return s;
}

std::string summary_text(const Simulation& s) {
  std::string out = fmt::format(
      "simulated step  {:.3f} ms on {} ({}), {}, batch {}, {} tokens, kv {}, tp {}, ep {}\n",
      s.step_ms(), s.device, s.scene.mode, s.scene.phase, s.scene.batch, s.scene.tokens, s.scene.kv,
      s.scene.tp, s.scene.ep);
  if (s.band.cases > 0) {
    out += fmt::format(
        "band            {:.3f} to {:.3f} ms: 9 of 10 of {} published {}s were off by at most "
        "{:.0f} % (half by {:.0f} %),\n"
        "                each predicted by costs that were fitted without its model\n",
        s.step_ms() / (1 + s.band.p90), s.step_ms() * (1 + s.band.p90), s.band.cases, s.band.kind,
        100 * s.band.p90, 100 * s.band.median);
  } else {
    out += cat("band            unknown: no published case of a ", s.band.kind, "\n");
  }
  for (const StepGain& g : s.gains)
    out += fmt::format(
        "{:<15} {}\n                {:.3f} -> {:.3f} ms, {:.1f} % less ({:.1f} to {:.1f} % with "
        "its guesses at 1.5 and 0.5 times): {}\n",
        g.what, g.detail, g.before_ms, g.after_ms, 100 * g.gain(), 100 * g.low, 100 * g.high,
        g.verdict);
  const sim::Bounds& b = s.result.bounds;
  out += fmt::format(
      "bounds          critical path {:.3f} ms, {} {:.3f} ms, serial {:.3f} ms (two "
      "steps)\n",
      us(b.critical_path) / 1e3, b.busiest_name, us(b.busiest) / 1e3, us(b.serial) / 1e3);
  if (s.scene.bucket > 0)
    out += fmt::format("bucket          {}: {} of its rows are padding\n", s.scene.bucket,
                       s.scene.bucket - s.scene.batch);
  if (s.scene.miss == "eager")
    out += "bucket          missed: no captured batch is as large; runs eagerly\n";
  if (s.scene.miss == "recapture")
    out += fmt::format(
        "bucket          missed: no captured batch is as large; captured first, {:.1f} s once\n",
        s.scene.once_s);
  if (!s.scene.without.empty()) out += cat("without         ", s.scene.without, "\n");
  out += fmt::format(
      "memory          weights {:.2f} GiB, caches {:.2f} GiB of this rank; {:.3f} GB "
      "moved from and to HBM in the step\n",
      static_cast<double>(s.weight_bytes) / (1 << 30),
      static_cast<double>(s.state_bytes) / (1 << 30), static_cast<double>(s.hbm_bytes) / 1e9);
  if (s.weight_bytes + s.state_bytes > s.memory_bytes)
    out += fmt::format("                does not fit: the device has {:.0f} GiB\n",
                       static_cast<double>(s.memory_bytes) / (1 << 30));
  out += "resources       ";
  for (const sim::ResourceUse& r : s.result.resources)
    if (r.busy > 0 && s.result.total > 0)
      out += fmt::format("{} {:.0f} %  ", r.name,
                         100 * static_cast<double>(r.busy) / static_cast<double>(s.result.total));
  out += "busy\nwhat dominates\n";
  double sum = 0;
  for (const KernelSum& k : s.kernels) sum += k.us;
  for (std::size_t i = 0; i < std::min<std::size_t>(8, s.kernels.size()); ++i) {
    const KernelSum& k = s.kernels[i];
    out += fmt::format("  {:<28} {:>10.1f} us {:>5.1f} %  {:>5} launches  {}\n", k.type, k.us,
                       sum > 0 ? 100 * k.us / sum : 0, k.launches, k.bound);
  }
  out += "idle of the main stream\n";
  for (const auto& [cause, time] : s.idle_us)
    out += fmt::format("  {:<28} {:>10.1f} us\n", cause, time);
  if (s.default_rules > 0)
    out += fmt::format(
        "note            {} launches are of operators without a cost rule of their "
        "own: all inputs read, all results written\n",
        s.default_rules);
  return out;
}

}  // namespace tk

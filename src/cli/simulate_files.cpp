#include "cli/simulate_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/html.h"
#include "timeline/writer.h"

namespace tk::cli {
namespace {

constexpr std::int64_t ps_of_ns = 1000;

// VN-29: what the simulator has terms for.
PipeCounters counters_of(const sim::Span& span, const sim::Launch& l, const sim::DeviceParams& d) {
  const auto us = [](sim::Ps ps) { return static_cast<double>(ps) / 1e6; };
  const auto term = [&](sim::Term t) { return us(span.term[static_cast<std::size_t>(t)]); };
  PipeCounters c;
  c.mhz = d.mhz;
  c.cubes = span.cubes;
  c.vectors = span.vectors;
  c.cubes_of_device = d.cube_cores;
  const bool mix = l.engine == sim::Engine::mix_aic || l.engine == sim::Engine::mix_aiv;
  const bool cube = l.engine == sim::Engine::ai_core || mix;
  const bool vector = l.engine == sim::Engine::ai_vector || mix;
  if (!cube && !vector) return c;
  const double busy = us(span.end - span.start - span.head);
  const double read = std::min(busy, std::max(term(sim::Term::hbm_read), term(sim::Term::l2)));
  c.aicore = c.mac = c.aic_mte2 = c.aiv = c.vec = c.aiv_mte2 = c.aiv_mte3 = 0;
  if (cube) {
    c.aicore = busy;
    c.mac = std::min(busy, term(sim::Term::cube));
    c.aic_mte2 = read;
  }
  if (vector) {
    c.aiv = busy;
    c.vec = std::min(busy, term(sim::Term::vector));
    c.aiv_mte2 = mix ? -1 : read;  // a mix reads through its cube side
    c.aiv_mte3 = term(sim::Term::hbm_write) > 0 ? std::min(busy, term(sim::Term::hbm_write)) : -1;
  }
  return c;
}

// VN-72: what of a collective's time it waited for others, and what it moved after that.
CollectiveTime collective_of(const sim::Plan& plan, const sim::Launch& l, const sim::LaunchText& t,
                             const sim::Span& span, Ns duration) {
  const sim::Collective& c = plan.collectives[static_cast<std::size_t>(l.collective)];
  CollectiveTime out;
  out.step = "1";
  out.name = t.name;
  out.group = cat(c.group);
  out.elapse = static_cast<double>(duration);
  out.wait = std::min(out.elapse, static_cast<double>(span.peers) / ps_of_ns);
  out.transit = out.elapse - out.wait;
  out.megabytes = static_cast<double>(c.bytes) / 1e6;
  out.bandwidth = out.transit > 0 ? static_cast<double>(c.bytes) / out.transit : 0;
  return out;
}

}  // namespace

std::string producer_of(const std::string& device, const Scene& scene, const std::string& cost_id) {
  return cat("tokamak simulate ", device, " ", scene.mode, ", costs ", cost_id);
}

std::string write_simulated_profile(const SimulatedRun& run, const std::string& folder) {
  const sim::Plan& plan = *run.plan;
  std::vector<KernelText> kernels;
  std::vector<PipeCounters> counters;
  std::vector<CollectiveTime> collectives;
  std::int32_t first_stream = 0;
  while (plan.streams[static_cast<std::size_t>(first_stream)].rank != run.rank) ++first_stream;
  for (const sim::Span& span : *run.spans) {
    const sim::Launch& l = plan.launches[static_cast<std::size_t>(span.launch)];
    const sim::LaunchText& t = plan.texts[static_cast<std::size_t>(l.text)];
    KernelText k;
    // Both ends are rounded alike, so what follows still follows.
    k.start = (span.start - run.begin) / ps_of_ns;
    k.duration = (span.end - run.begin) / ps_of_ns - k.start;
    k.name = t.name;
    k.type = t.type;
    k.core = core_name(l.engine);
    k.in_shapes = t.in_shapes;
    k.out_shapes = t.out_shapes;
    k.in_types = t.in_types;
    k.module = t.module;
    k.stream = l.stream - first_stream;
    k.step = 1;
    k.blocks = static_cast<std::uint32_t>(std::max<std::int32_t>(1, l.blocks));
    if (run.knows_peers && l.engine == sim::Engine::communication)
      collectives.push_back(collective_of(plan, l, t, span, k.duration));
    kernels.push_back(std::move(k));
    counters.push_back(counters_of(span, l, *run.params));
  }
  Timeline t = make_timeline(kernels, 0);
  t.collectives = std::move(collectives);
  for (const auto& [time, mhz] : run.mhz_from)
    t.trace.frequency.emplace_back(std::max<Ns>(0, (time - run.begin) / ps_of_ns), mhz);
  return write_profile(t, folder,
                       {run.producer, run.rank, "Level1", std::move(counters), run.world_size})
      .string();
}

std::string sweep_json(const std::vector<SweepPoint>& points, const std::string& model,
                       const std::string& device, const std::string& mode, const std::string& phase,
                       const Band& band, double memory) {
  nlohmann::ordered_json j;
  j["kind"] = "simulated";
  j["model"] = model;
  j["device"] = device;
  j["mode"] = mode;
  j["phase"] = phase;
  j["band_p90_error"] = band.p90;
  j["memory_bytes"] = memory;
  j["points"] = nlohmann::ordered_json::array();
  for (const SweepPoint& p : points)
    j["points"].push_back({{"batch", p.batch},
                           {"step_ms", p.step_ms},
                           {"tokens_per_s", p.tokens_per_second()},
                           {"bytes", p.bytes},
                           {"fits", p.bytes <= memory}});
  return j.dump(1) + "\n";
}

std::string sweep_html(const std::vector<SweepPoint>& points, const std::string& model,
                       const std::string& device, const std::string& mode, const std::string& phase,
                       const Band& band, double memory) {
  constexpr double width = 760;
  constexpr double height = 420;
  constexpr double left = 80;
  constexpr double bottom = 50;
  double most_ms = 0;
  double most_rate = 0;
  for (const SweepPoint& p : points) {
    most_ms = std::max(most_ms, p.step_ms);
    most_rate = std::max(most_rate, p.tokens_per_second());
  }
  const auto x = [&](double ms) { return left + ms / most_ms * (width - left - 20); };
  const auto y = [&](double rate) {
    return height - bottom - rate / most_rate * (height - bottom - 20);
  };
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "aria-label=\"throughput against latency\">\n",
      width, height);
  for (int i = 0; i <= 4; ++i) {
    const double ms = most_ms * i / 4;
    const double rate = most_rate * i / 4;
    svg += fmt::format(
        "<line class=grid x1=\"{0:.1f}\" y1=\"20\" x2=\"{0:.1f}\" y2=\"{1:.1f}\"/>"
        "<text x=\"{0:.1f}\" y=\"{2:.1f}\" text-anchor=\"middle\">{3:.1f}</text>\n",
        x(ms), height - bottom, height - bottom + 18, ms);
    svg += fmt::format(
        "<line class=grid x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.0f}</text>\n",
        left, y(rate), width - 20, left - 6, y(rate) + 4, rate);
  }
  std::string line;
  for (const SweepPoint& p : points)
    line += fmt::format("{:.1f},{:.1f} ", x(p.step_ms), y(p.tokens_per_second()));
  svg += "<polyline points=\"" + line + "\"/>\n";
  for (const SweepPoint& p : points)
    svg += fmt::format(
        "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>batch {}: {:.3f} ms, "
        "{:.1f} tokens/s{}</title></circle>\n",
        p.bytes <= memory ? "fits" : "over", x(p.step_ms), y(p.tokens_per_second()), p.batch,
        p.step_ms, p.tokens_per_second(), p.bytes <= memory ? "" : ", does not fit");
  svg += fmt::format(
      "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">step, ms</text>\n"
      "<text x=\"14\" y=\"{}\" transform=\"rotate(-90 14 {})\" text-anchor=\"middle\">tokens/s of "
      "one rank</text>\n</svg>\n",
      (left + width) / 2, height - 10, height / 2, height / 2);
  std::string rows;
  for (const SweepPoint& p : points)
    rows += fmt::format(
        "<tr><td>{}</td><td>{:.3f}</td><td>{:.1f}</td><td>{:.1f}</td><td>{}</td></tr>\n", p.batch,
        p.step_ms, p.tokens_per_second(), p.bytes / (1LL << 30), p.bytes <= memory ? "yes" : "no");
  const std::string error =
      band.cases > 0 ? fmt::format("9 of 10 of {} published {}s were off by at most {:.0f} %.",
                                   band.cases, band.kind, 100 * band.p90)
                     : cat("The error of a ", band.kind, " is not known.");
  return fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><title>{0} on {1}, simulated</title>\n"
      "<style>body{{font:14px sans-serif;margin:2em;max-width:60em}}"
      "svg text{{font-size:12px;fill:currentColor}}.grid{{stroke:#8884}}"
      "polyline{{fill:none;stroke:#2a6fdb;stroke-width:1.5}}circle.fits{{fill:#2a6fdb}}"
      "circle.over{{fill:#c33}}td,th{{text-align:right;padding:2px 12px}}</style>\n"
      "<h1>{0} on {1}</h1><p>Simulated, not measured: {2}, {3}. {4} Red points do not fit into "
      "the device's memory.</p>\n{5}<table><thead><tr><th>batch<th>step ms<th>tokens/s<th>weights "
      "and caches, GiB<th>fits</tr></thead><tbody>\n{6}</tbody></table></html>\n",
      escaped(model), escaped(device), escaped(mode), escaped(phase), error, svg, rows);
}

}  // namespace tk::cli

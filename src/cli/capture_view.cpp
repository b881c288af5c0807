// tokamak inspect --graph-mode: what stands against capturing a decode step, before and after the
// optimisation.
#include "cli/capture_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "trial/capture_json.h"
#include "trial/optimize.h"

namespace tk::cli {
namespace {

void print_factors(const std::vector<CaptureFactor>& factors) {
  for (const CaptureFactor& f : factors) {
    fmt::print("  {} {:<5} {}{}\n", f.rule, f.blocks ? "stops" : "costs", f.found,
               f.nodes > 1 ? cat(" (", f.nodes, " nodes)") : "");
    fmt::print("        at {}{}\n", f.module, f.place.empty() ? "" : cat(" ", f.place));
    fmt::print("        -> {}\n", f.rewrite.empty() ? "no rewrite is known" : f.rewrite);
  }
}

void print_list(std::string_view title, const std::vector<std::string>& items) {
  for (std::size_t i = 0; i < items.size(); ++i)
    fmt::print("  {:<9}{}\n", i == 0 ? title : "", items[i]);
}

}  // namespace

Capturability capturability_of(const CapturedModel& model, Target target, CaptureBackend backend) {
  Capturability c;
  c.captured = capture_factors(model.graph, backend);
  try {
    Prepared prepared = prepare(model, 128);
    Graph prefill = prepared.cached.graph.clone();
    Graph decode = prepared.cached.graph.clone();
    OptimizeOptions options;
    options.target = target;
    apply_all_moves(&prefill, &decode, options);
    c.decode = capture_factors(decode, backend);
    c.region = capture_region(decode);
  } catch (const UserError& e) {
    c.problem = e.what();  // shown: there is no decode step to capture
  }
  return c;
}

int show_capturability(const Capturability& c, bool json) {
  const bool stopped = !c.problem.empty() || !c.region.missing.empty() ||
                       std::any_of(c.decode.begin(), c.decode.end(),
                                   [](const CaptureFactor& f) { return f.blocks; });
  if (json) {
    nlohmann::ordered_json out{{"capturable", !stopped},
                               {"captured", json_of(c.captured)},
                               {"decode", json_of(c.decode)},
                               {"region", json_of(c.region)}};
    if (!c.problem.empty()) out["problem"] = c.problem;
    fmt::print("{}\n", out.dump(1));
    return stopped ? 1 : 0;
  }
  fmt::print("The model as it was captured\n");
  if (c.captured.empty()) fmt::print("  nothing stands against a capture\n");
  print_factors(c.captured);
  if (!c.problem.empty()) {
    fmt::print("\nThere is no decode step to capture:\n{}\n", c.problem);
    return 1;
  }
  fmt::print("\nThe decode step\n");
  print_factors(c.decode);
  print_list("inputs", c.region.inputs);
  print_list("outputs", c.region.outputs);
  fmt::print("  {:<9}{} in place\n", "states", c.region.states.size());
  fmt::print("  {:<9}{}: one graph for each of their values\n", "buckets",
             fmt::join(c.region.fixed, ", "));
  print_list("missing", c.region.missing);
  print_list("returned", c.region.returned);
  fmt::print("\n{}\n", stopped
                           ? "The decode step cannot be captured."
                           : "The decode step can be captured: no host value, random operator or "
                             "shape from data is in it.");
  return stopped ? 1 : 0;
}

}  // namespace tk::cli

// The blueprint as JSON for programs and as a table for people.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "trial/blueprint.h"

namespace tk {
namespace {

std::string joined(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& i : items) out += cat(out.empty() ? "" : ", ", i);
  return out;
}

std::string gain_of(const OperatorRequest& r) {
  return fmt::format("{:.0f} us, {:.1f} % of the step", r.gain_s() * 1e6,
                     100 * r.gain_s() / r.step_s);
}

}  // namespace

std::string to_json(const Blueprint& b) {
  nlohmann::ordered_json j;
  j["model"] = b.model;
  j["scenario"] = {{"target", name_of(b.scenario.target)},
                   {"tp", b.scenario.tp},
                   {"ep", b.scenario.ep},
                   {"decode_batch", b.scenario.batch},
                   {"quantisation", "none"},
                   {"cache", "paged"},
                   {"layout", "packed tokens"}};
  j["chains"] = nlohmann::ordered_json::array();
  for (const Chain& c : b.chains)
    j["chains"].push_back({{"component", c.component},
                           {"role", c.role},
                           {"phase", c.phase},
                           {"modules", c.modules},
                           {"nodes", c.nodes},
                           {"ops", c.ops}});
  j["sites"] = nlohmann::ordered_json::array();
  for (const SiteVerdict& s : b.sites)
    j["sites"].push_back({{"id", s.id},
                          {"operators", s.operators},
                          {"phase", s.phase},
                          {"place", s.place},
                          {"sites", s.sites},
                          {"verdict", name_of(s.verdict.kind)},
                          {"constraint", s.verdict.constraint},
                          {"reason", s.verdict.reason},
                          {"notes", s.verdict.notes},
                          {"needs", s.needs},
                          {"covers", s.covers},
                          {"uncovered", s.uncovered},
                          {"facts_source", s.source},
                          {"constraints", s.checks}});
  j["operator_requests"] = nlohmann::ordered_json::array();
  for (const OperatorRequest& r : b.requests)
    j["operator_requests"].push_back({{"name", r.name},
                                      {"phase", r.phase},
                                      {"module", r.module},
                                      {"line", r.where},
                                      {"places", r.places},
                                      {"kernels", r.kernels},
                                      {"graph", r.chain},
                                      {"refused", r.refused},
                                      {"tokens", r.tokens},
                                      {"quantisation", "none"},
                                      {"kind", "estimated"},
                                      {"saved_bytes", r.bytes},
                                      {"before_us", r.before_s * 1e6},
                                      {"after_us", r.after_s * 1e6},
                                      {"part_of_step", r.gain_s() / r.step_s}});
  j["gate"] = {{"passed", b.gate.empty()}, {"missing", b.gate}};
  j["decode_step"] = {{"kind", "predicted"},
                      {"unfused_ms", b.decode_ms_before},
                      {"fused_ms", b.decode_ms_after},
                      {"band_p90_error", b.band}};
  return j.dump(2) + "\n";
}

std::string to_markdown(const Blueprint& b) {
  std::string out = cat("# ", b.model, " on ", name_of(b.scenario.target), ", tp ", b.scenario.tp,
                        ", ep ", b.scenario.ep, "\n\n");
  out += "| site | operator | phase | place | sites | verdict | constraint and values |\n";
  out += "|---|---|---|---|---|---|---|\n";
  for (const SiteVerdict& s : b.sites)
    out += cat("| ", s.id, " | ", s.operators, " | ", s.phase, " | `", s.place, "` | ", s.sites,
               " | ", name_of(s.verdict.kind), " | ", s.verdict.reason, " |\n");
  out += "\n| component | chain | phase | nodes | modules |\n|---|---|---|---|---|\n";
  for (const Chain& c : b.chains)
    out += cat("| ", c.component, " | ", c.role, " | ", c.phase, " | ", c.nodes, " | `", c.modules,
               "` |\n");
  if (!b.requests.empty()) {
    out += "\n| no operator for | phase | module | places | kernels | estimated gain |\n";
    out += "|---|---|---|---|---|---|\n";
    for (const OperatorRequest& r : b.requests)
      out += cat("| ", r.name, " | ", r.phase, " | `", r.module, "` | ", r.places, " | ", r.kernels,
                 " | ", gain_of(r), " |\n");
  }
  out +=
      b.gate.empty() ? "\nThe analysis is complete.\n" : cat("\nMissing: ", joined(b.gate), "\n");
  return out;
}

std::string requests_page(const Blueprint& b) {
  if (b.requests.empty()) return "";
  std::string out =
      cat("# Operators that ", b.model, " would gain from on ", name_of(b.scenario.target), "\n\n");
  out +=
      "Each chain runs as several kernels, as no operator of torch_npu computes it. One kernel "
      "would read\nits inputs and write its outputs once. Times are estimated from bytes, flop and "
      "launches at the\ndevice's rates; the gain is what a kernel can reach at best.\n";
  for (const OperatorRequest& r : b.requests) {
    out += cat("\n## ", r.name, "\n\n| | |\n|---|---|\n");
    out += cat("| module | `", r.module, "`, ", r.places, r.places == 1 ? " place" : " places");
    if (!r.where.empty()) out += cat(", ", r.where);
    out += cat(" |\n| phase | ", r.phase, ", ", r.tokens, r.tokens == 1 ? " token" : " tokens",
               ", paged cache, not quantised |\n");
    out += cat("| now | ", r.kernels, " kernels, ", fmt::format("{:.1f}", r.before_s * 1e6),
               " us a step |\n");
    out += cat("| one kernel | ", fmt::format("{:.1f}", r.after_s * 1e6), " us a step, ",
               fmt::format("{:.0f}", r.bytes), " bytes less a place |\n");
    out += cat("| gain | ", gain_of(r), " |\n");
    for (const std::string& why : r.refused) out += cat("| refused | ", why, " |\n");
    if (r.refused.empty()) out += "| refused | nothing: no site of the fusion tree is there |\n";
    out += cat("\n```\n", r.chain, "```\n");
  }
  return out;
}

}  // namespace tk

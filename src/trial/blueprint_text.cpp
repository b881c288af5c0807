// The blueprint as JSON for programs and as a table for people.
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
  out +=
      b.gate.empty() ? "\nThe analysis is complete.\n" : cat("\nMissing: ", joined(b.gate), "\n");
  return out;
}

}  // namespace tk

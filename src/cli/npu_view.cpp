#include "cli/npu_view.h"

#include <fmt/format.h>

#include <algorithm>

namespace tk::cli {

void print_sites(const Blueprint& b) {
  fmt::print("{:<8} {:<36} {:<8} {:>5}  {:<15} {:<34} {}\n", "site", "operator", "phase", "sites",
             "verdict", "place", "because");
  for (const SiteVerdict& s : b.sites)
    fmt::print("{:<8} {:<36} {:<8} {:>5}  {:<15} {:<34} {}\n",
               s.id.find(' ') == std::string::npos ? s.id : "FS-*", s.operators, s.phase, s.sites,
               name_of(s.verdict.kind), s.place, s.verdict.reason);
  fmt::print(
      "\ndecode step   {:.3f} -> {:.3f} ms on {}, predicted (9 of 10 published steps were off by "
      "at "
      "most {:.0f} %)\n",
      b.decode_ms_before, b.decode_ms_after, name_of(b.scenario.target), 100 * b.band);
  if (b.scenario.tp > 1 || b.scenario.ep > 1)
    fmt::print(
        "              of the whole model on one device: --tp and --ep change verdicts only\n");
  for (const std::string& m : b.gate) fmt::print("missing       {}\n", m);
}

void print_chains(const Blueprint& b) {
  fmt::print("{:<10} {:<18} {:<8} {:>5}  {:<8} {:<36} {:<15} {}\n", "component", "chain", "phase",
             "nodes", "site", "operator", "verdict", "because");
  for (const Chain& c : b.chains) {
    bool first = true;
    const auto line = [&](const SiteVerdict* s) {
      fmt::print("{:<10} {:<18} {:<8} {:>5}  ", first ? c.component : "", first ? c.role : "",
                 first ? c.phase : "", first ? fmt::to_string(c.nodes) : "");
      if (s == nullptr)
        fmt::print("no site of the tree\n");
      else
        fmt::print("{:<8} {:<36} {:<15} {}\n", s->id, s->operators, name_of(s->verdict.kind),
                   s->verdict.reason);
      first = false;
    };
    for (const SiteVerdict& s : b.sites)
      if (s.phase == c.phase &&
          std::find(s.covers.begin(), s.covers.end(), c.role) != s.covers.end())
        line(&s);
    if (first) line(nullptr);
  }
}

}  // namespace tk::cli

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "report/report.h"
#include "report/text.h"

namespace tk {
namespace {

std::string cell(std::string text) {
  std::string out;
  for (char c : text) {
    if (c == '|')
      out += "\\|";
    else if (c == '\n')
      out += ' ';
    else
      out += c;
  }
  return out;
}

void numerics_row(std::string* s, const char* stage, const NumericCheck& c) {
  if (!c.done) {
    *s += fmt::format("| {} | {} | | | |\n", stage, cell(c.detail.empty() ? "not done" : c.detail));
    return;
  }
  *s += fmt::format("| {} | {} | {:.2e} | {:.2e} | {:.1f} % |\n", stage,
                    cell((c.passed ? "passed: " : "FAILED: ") + c.what), c.error.max_abs,
                    c.error.relative(), 100 * c.error.top1_agreement());
}

}  // namespace

std::string report_markdown(const Ledger& l) {
  using namespace report;
  std::string s = fmt::format("# {}\n\n{}\n\n## Model\n\n", l.model.name, verdict_sentence(l));
  s += fmt::format(
      "{} parameters ({}, {}); {} nodes captured, {} cached, {} for decode and {} for prefill "
      "after the moves.\n\n",
      count(static_cast<double>(l.model.parameters)),
      bytes(static_cast<double>(l.model.weight_bytes)), l.model.dtype, l.model.captured_nodes,
      l.model.cached_nodes, l.model.decode_nodes, l.model.prefill_nodes);
  s += "| layers | attention |\n|---|---|\n";
  for (const LayerKind& k : layer_kinds(l.cache))
    s += fmt::format("| {} | {} |\n", k.n, attention_text(k.layer));
  s += fmt::format("\nThe cache takes {} for each token, in blocks of {}.\n\n",
                   bytes(static_cast<double>(l.cache.bytes_per_token())), l.cache.block_size);
  if (!l.waterfall.empty()) {
    s += "## Time after each kept change\n\n| after | decode step | prefill |\n|---|---|---|\n";
    for (const Waypoint& w : l.waterfall)
      s += fmt::format("| {} | {} | {} |\n", cell(w.name), ms(w.decode_ms), ms(w.prefill_ms));
    const std::string where = l.band.cases > 0
                                  ? fmt::format("Predicted for {} (costs {})", l.target, l.model_id)
                                  : fmt::format("Measured on {} ({}, {} threads)", l.machine.cpu,
                                                l.machine.isa, l.machine.threads);
    s += fmt::format(
        "\n{}: decode with {} tokens in the cache, prefill of {} tokens. Each step is the one "
        "before times the ratio of its trial.\n\n",
        where, l.decode_context, l.prefill_tokens);
  }
  s += "## Trials\n\n| # | move | phase | place | sites | decision | time ratio | local error | "
       "model error | why |\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (const LedgerRow& r : l.rows) {
    const Comparison& c = r.decode.measured ? r.decode : r.prefill;
    s += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", r.id, r.move, r.phase,
        cell(r.place), r.sites, decision_text(r),
        c.measured ? fmt::format("{:.3f} ({:.3f} to {:.3f})", c.ratio, c.ratio_low, c.ratio_high)
                   : "",
        r.local.done ? fmt::format("{:.1e}", r.local.error.relative()) : "",
        r.model.done ? fmt::format("{:.1e}", r.model.error.relative()) : "", cell(r.why));
  }
  for (const LedgerRow& r : l.rows)
    if (const auto lines = capture_lines(r); !lines.empty()) {
      s += fmt::format("\nTrial {}, capture of {}:\n\n", r.id, r.phase);
      for (const std::string& line : lines) s += fmt::format("- {}\n", line);
    }
  s += "\nA time ratio is after / before: " + ratio_text(l) + "\n\n";
  if (!l.capture.region.inputs.empty()) {
    s += "## Capture plan\n\n| rule | found | at | rewrite |\n|---|---|---|---|\n";
    for (const CaptureFactor& f : l.capture.factors)
      s += fmt::format("| {} | {} | {} {} | {} |\n", f.rule, cell(f.found), cell(f.module),
                       cell(f.place), cell(f.rewrite.empty() ? "none is known" : f.rewrite));
    s += fmt::format("\nInputs of a step: {}; caches in place: {}.\n\n",
                     fmt::join(l.capture.region.inputs, "; "), l.capture.region.states.size());
  }
  s += "## Numerics\n\n| stage | against | largest error | of the largest logit | top-1 "
       "|\n|---|---|---|---|---|\n";
  numerics_row(&s, "captured", l.captured);
  numerics_row(&s, "cached", l.cached);
  numerics_row(&s, "optimised", l.optimized);
  const auto shares = kernel_shares(l);
  if (!shares.empty()) {
    double total = 0;
    for (const KernelShare& k : shares) total += k.us;
    s += "\n## One decode step\n\n| kernel | launches | us | share | GB/s "
         "|\n|---|---|---|---|---|\n";
    for (const KernelShare& k : shares)
      s += fmt::format("| {} | {} | {:.1f} | {:.1f} % | {:.1f} |\n", k.kernel, k.launches, k.us,
                       100 * k.us / total, k.us > 0 ? k.bytes / k.us / 1e3 : 0);
    s += fmt::format("\nA step moves {}; that is {:.0f} % {}.\n", bytes(l.decode_bytes),
                     100 * l.decode_bandwidth_share, bandwidth_text(l));
  }
  return s;
}

}  // namespace tk

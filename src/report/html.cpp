#include "base/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/page.h"
#include "report/report.h"
#include "report/text.h"

namespace tk {
namespace {

std::string card(std::string_view label, std::string_view value, std::string_view note) {
  return fmt::format("<div class=card><span>{}</span><b>{}</b><small>{}</small></div>\n", label,
                     value, note);
}

std::string cards(const Ledger& l) {
  std::string s = "<div class=cards>\n";
  if (l.total_decode.measured)
    s += card("decode step", report::ms(l.total_decode.after.median_ms),
              fmt::format("{} than unfused; {}", report::times(l.total_decode.ratio),
                          report::how(l, l.total_decode)));
  if (l.total_prefill.measured)
    s += card(fmt::format("prefill, {} tokens", l.prefill_tokens),
              report::ms(l.total_prefill.after.median_ms),
              fmt::format("{} than unfused; {}", report::times(l.total_prefill.ratio),
                          report::how(l, l.total_prefill)));
  if (l.captured_decode.measured)
    s += card("next token", fmt::format("{:.1f}x", 1 / l.captured_decode.ratio),
              "against the captured graph run as it is");
  if (l.optimized.done)
    s += card("largest error", fmt::format("{:.1e}", l.optimized.error.relative()),
              "of the largest logit");
  if (l.decode_bandwidth_share > 0)
    s += card("memory bandwidth", fmt::format("{:.0f} %", 100 * l.decode_bandwidth_share),
              report::bandwidth_text(l));
  return s + "</div>\n";
}

std::string model_section(const Ledger& l) {
  std::string s = "<section><h2>What the model is</h2><table><tbody>\n";
  const auto row = [&](std::string_view key, const std::string& value) {
    s += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", key, escaped(value));
  };
  row("parameters",
      fmt::format("{} ({}, {})", report::count(static_cast<double>(l.model.parameters)),
                  report::bytes(static_cast<double>(l.model.weight_bytes)), l.model.dtype));
  for (const auto& k : report::layer_kinds(l.cache))
    row(fmt::format("{} layers", k.n), report::attention_text(k.layer));
  row("KV cache", fmt::format("{} for each token, blocks of {}",
                              report::bytes(static_cast<double>(l.cache.bytes_per_token())),
                              l.cache.block_size));
  row("graph",
      fmt::format("{} nodes captured → {} cached → {} decode, {} prefill", l.model.captured_nodes,
                  l.model.cached_nodes, l.model.decode_nodes, l.model.prefill_nodes));
  row("machine",
      fmt::format("{}; {}; {} threads", l.machine.cpu, l.machine.isa, l.machine.threads));
  return s + "</tbody></table></section>\n";
}

// Horizontal bars, one a waypoint; drawn here so that the page reads without JavaScript.
std::string waterfall_of(const Ledger& l, const char* title, double Waypoint::* field) {
  std::vector<Waypoint> points;
  double previous = -1;
  for (const Waypoint& w : l.waterfall)
    if (w.*field > 0 && w.*field != previous) {
      points.push_back(w);
      previous = w.*field;
    }
  if (points.size() < 2) return "";
  double top = 0;
  for (const Waypoint& w : points) top = std::max(top, w.*field);
  // With a first bar far beyond the rest (no cache) lengths are logarithmic, and say so.
  double low = top;
  for (const Waypoint& w : points) low = std::min(low, w.*field);
  const bool logarithmic = top > 8 * low;
  const auto width = [&](double v) {
    return logarithmic ? 8 + 92 * std::log(v / low) / std::log(top / low) : 100 * v / top;
  };
  std::string s = fmt::format("<div><h3>{}{}</h3><table class=bars><tbody>\n", title,
                              logarithmic ? " <small>logarithmic</small>" : "");
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double v = points[i].*field;
    const std::string change =
        i == 0 ? "" : fmt::format("{:+.1f} %", 100 * (v / (points[i - 1].*field) - 1));
    s += fmt::format(
        "<tr><th>{}</th><td class=bar><i style=\"width:{:.1f}%\"></i></td><td class=n>{}</td><td "
        "class=n>{}</td></tr>\n",
        escaped(points[i].name), width(v), report::ms(v), change);
  }
  return s + "</tbody></table></div>\n";
}

std::string waterfall(const Ledger& l) {
  const std::string decode = waterfall_of(l, "Decode step", &Waypoint::decode_ms);
  const std::string prefill = waterfall_of(l, "Prefill", &Waypoint::prefill_ms);
  if (decode.empty() && prefill.empty()) return "";
  return fmt::format(
      "<section><h2>Time after each kept change</h2><p class=note>{}: {} tokens in the cache "
      "for decode, {} tokens of prefill. "
      "Each bar is the one before times the ratio of its trial.</p><div "
      "class=two>{}{}</div></section>\n",
      l.band.cases > 0 ? "Predicted" : "Measured", l.decode_context, l.prefill_tokens, decode,
      prefill);
}

std::string ratio_cell(const Comparison& c) {
  if (!c.measured) return "<td class=n data-v=9></td>";
  return fmt::format(
      "<td class=n data-v={:.6f} title=\"{} rounds, {:.4f} to {:.4f} ms before, {:.4f} to {:.4f} "
      "ms after\">{:.3f}<small>{:.3f} – {:.3f}</small></td>",
      c.ratio, c.after.rounds, c.before.min_ms, c.before.max_ms, c.after.min_ms, c.after.max_ms,
      c.ratio, c.ratio_low, c.ratio_high);
}

std::string error_cell(const NumericCheck& c) {
  if (!c.done) return fmt::format("<td class=n data-v=-1 title=\"{}\">–</td>", escaped(c.detail));
  return fmt::format("<td class=\"n{}\" data-v={:.3e} title=\"{}; {}\">{:.1e}</td>",
                     c.passed ? "" : " bad", c.error.relative(), escaped(c.what), escaped(c.detail),
                     c.error.relative());
}

std::string trials(const Ledger& l) {
  std::string s =
      "<section><h2>Trials</h2><p class=note>Time ratios are after / before: " +
      report::ratio_text(l) +
      " Errors are relative to the largest value: first at the site on recorded inputs, then of "
      "the "
      "model's logits.</p>"
      "<input id=filter type=search placeholder=\"filter the trials\" aria-label=\"filter the "
      "trials\">"
      "<div class=scroll><table id=trials "
      "class=sortable><thead><tr><th>#<th>move<th>phase<th>place<th class=n>sites<th>decision<th "
      "class=n>time ratio<th "
      "class=n>site error<th class=n>model error<th class=why>why</tr></thead><tbody>\n";
  for (const LedgerRow& r : l.rows) {
    const std::string decision = report::decision_text(r);
    const char* kind = r.decision == Decision::kept          ? "kept"
                       : r.decision == Decision::rolled_back ? "back"
                       : r.decision == Decision::pending     ? "pending"
                                                             : "none";
    std::string notes;
    for (const std::string& n : r.verdict.notes)
      notes += fmt::format("<small>NPU: {}</small>", escaped(n));
    for (const std::string& line : report::capture_lines(r))
      notes += fmt::format("<small>{}</small>", escaped(line));
    s += fmt::format(
        "<tr class={}><td class=n "
        "data-v={}>{}</td><td>{}<small>{}</small></td><td>{}</td><td>{}<small>{}</small></td><td "
        "class=n data-v={}>{}</td>"
        "<td><span class=\"tag {}\">{}</span></td>{}{}{}<td>{}{}</td></tr>\n",
        kind, r.id, r.id, escaped(r.move), escaped(r.target_op), escaped(r.phase), escaped(r.place),
        escaped(r.source), r.sites, r.sites, kind, decision,
        ratio_cell(r.decode.measured ? r.decode : r.prefill), error_cell(r.local),
        error_cell(r.model), escaped(r.why), notes);
  }
  return s + "</tbody></table></div></section>\n";
}

// GM-04: what stands in the way of a capture, where, and what was done about it.
std::string capture_plan(const Ledger& l) {
  if (l.capture.region.inputs.empty()) return "";
  std::string s =
      "<section><h2>Capture plan</h2><p class=note>What changes from step to step in the model as "
      "it "
      "was captured, and what takes it away; the decode step that is captured takes the inputs "
      "below.</p><table><thead><tr><th>rule<th>found<th>at<th>rewrite</tr></thead><tbody>\n";
  for (const CaptureFactor& f : l.capture.factors)
    s += fmt::format("<tr><td>{}</td><td>{}</td><td>{}<small>{}</small></td><td>{}</td></tr>\n",
                     f.rule, escaped(f.found), escaped(f.module), escaped(f.place),
                     escaped(f.rewrite.empty() ? "none is known" : f.rewrite));
  s += "</tbody></table><p class=note>Inputs of a step: ";
  for (const std::string& input : l.capture.region.inputs) s += escaped(input) + "; ";
  return s + fmt::format("caches in place: {}.</p></section>\n", l.capture.region.states.size());
}

std::string numerics(const Ledger& l) {
  std::string s =
      "<section><h2>Numerics</h2><table><thead><tr><th>stage<th>compared<th class=n>largest "
      "error<th class=n>of the largest logit<th "
      "class=n>top-1<th>rule</tr></thead><tbody>\n";
  const auto row = [&](const char* stage, const NumericCheck& c) {
    if (!c.done) {
      s += fmt::format("<tr><th>{}</th><td colspan=5>{}</td></tr>\n", stage,
                       escaped(c.detail.empty() ? "not done" : c.detail));
      return;
    }
    s += fmt::format(
        "<tr><th>{}</th><td>{}</td><td class=n>{:.2e}</td><td class=n>{:.2e}</td><td "
        "class=n>{:.1f} %</td><td class={}>{}: {}</td></tr>\n",
        stage, escaped(c.what), c.error.max_abs, c.error.relative(), 100 * c.error.top1_agreement(),
        c.passed ? "good" : "bad", c.passed ? "passed" : "FAILED", escaped(c.detail));
  };
  row("captured", l.captured);
  row("cached", l.cached);
  row("optimised", l.optimized);
  return s + "</tbody></table></section>\n";
}

// The launches of a step side by side, coloured by kernel; the table says the same in figures.
std::string decode_step(const Ledger& l) {
  if (l.decode_step.empty()) return "";
  const auto shares = report::kernel_shares(l);
  double total = 0;
  for (const auto& k : shares) total += k.us;
  const double end = l.decode_step.back().start_us + l.decode_step.back().duration_us;
  const auto colour = [&](const LaunchSpan& span) {
    const std::string key = span.name + (span.kernel == "reference" ? " (reference)" : "");
    for (std::size_t i = 0; i < shares.size(); ++i)
      if (shares[i].kernel == key) return std::min<std::size_t>(i, 8);
    return std::size_t{8};
  };
  std::string s = fmt::format(
      "<section><h2>One decode step</h2><p class=note>{} launches in {:.1f} us, {}; it moves "
      "{}.</p>"
      "<svg class=step viewBox=\"0 0 1000 44\" preserveAspectRatio=none role=img "
      "aria-label=\"launches of one decode step\">\n",
      l.decode_step.size(), end,
      l.band.cases > 0 ? "simulated" : "measured with the clock read around each",
      report::bytes(l.decode_bytes));
  for (const LaunchSpan& span : l.decode_step)
    s += fmt::format(
        "<rect class=c{} x={:.3f} y=2 width={:.3f} height=40><title>{} {:.1f} us, {:.1f} "
        "GB/s\n{}</title></rect>\n",
        colour(span), 1000 * span.start_us / end,
        std::max(0.3, 1000 * span.duration_us / end - 0.15), escaped(span.name), span.duration_us,
        span.duration_us > 0 ? static_cast<double>(span.bytes) / span.duration_us / 1e3 : 0.0,
        escaped(span.module));
  s += "</svg>\n<table class=sortable><thead><tr><th>kernel<th class=n>launches<th class=n>us<th "
       "class=n>share<th class=n>bytes<th class=n>GB/s</tr></thead><tbody>\n";
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const auto& k = shares[i];
    const double rate = k.us > 0 ? k.bytes / k.us / 1e3 : 0;
    s += fmt::format(
        "<tr><td><i class=\"dot c{}\"></i>{}</td><td class=n data-v={}>{}</td><td class=n "
        "data-v={:.3f}>{:.1f}</td><td class=n data-v={:.5f}>{:.1f} %</td>"
        "<td class=n data-v={:.0f}>{}</td><td class=n data-v={:.3f}>{:.1f}</td></tr>\n",
        std::min<std::size_t>(i, 8), escaped(k.kernel), k.launches, k.launches, k.us, k.us,
        k.us / total, 100 * k.us / total, k.bytes, report::bytes(k.bytes), rate, rate);
  }
  return s + "</tbody></table></section>\n";
}

}  // namespace

std::string report_html(const Ledger& l) {
  return fmt::format(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport "
      "content=\"width=device-width,initial-scale=1\">\n<title>{} – "
      "Tokamak</title>\n<style>{}</style></head><body>\n<header><h1>{}</h1><span class=where>{} → "
      "{}</span><button id=theme type=button>light / "
      "dark</button></header>\n<main><p class=lead>{}</p>\n{}{}{}{}{}{}{}<footer>Tokamak {}; the "
      "same figures are in ledger.json.</footer></main>\n<script>{}</script></body></html>\n",
      escaped(l.model.name), page_css, escaped(l.model.name), escaped(l.model.type),
      escaped(l.target), escaped(report::verdict_sentence(l)), cards(l), waterfall(l), trials(l),
      decode_step(l), numerics(l), capture_plan(l), model_section(l), escaped(l.version), page_js);
}

}  // namespace tk

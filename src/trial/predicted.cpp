#include "trial/predicted.h"

namespace tk {

Comparison predicted_comparison(const std::string& metric, const Simulation& before,
                                const Simulation& after) {
  const auto timing_of = [](const Simulation& s) {
    const double ms = s.step_ms();
    return Timing{ms, ms / (1 + s.band.p90), ms * (1 + s.band.p90), 1};
  };
  const Difference d = difference(before, after);
  Comparison c;
  c.metric = metric;
  c.kind = "predicted";
  c.before = timing_of(before);
  c.after = timing_of(after);
  c.ratio = d.ratio;
  c.ratio_low = d.low;
  c.ratio_high = d.high;
  c.measured = true;
  c.launches_before = static_cast<std::int64_t>(before.spans.size());
  c.launches_after = static_cast<std::int64_t>(after.spans.size());
  return c;
}

void record_prediction(const Simulation& step, Ledger* ledger) {
  ledger->model_id = step.cost_id;
  for (const sim::Span& span : step.spans) {
    const sim::Launch& l = step.plan.launches[static_cast<std::size_t>(span.launch)];
    const sim::LaunchText& text = step.plan.texts[static_cast<std::size_t>(l.text)];
    LaunchSpan s;
    s.name = text.type;
    s.kernel = core_name(l.engine);
    s.module = text.module;
    s.start_us = static_cast<double>(span.start - step.begin) / 1e6;
    s.duration_us = static_cast<double>(span.end - span.start) / 1e6;
    s.bytes = span.hbm_read + span.hbm_write + span.l2_bytes;
    ledger->decode_step.push_back(std::move(s));
  }
  ledger->band = {step.band.kind, step.band.cases, step.band.median, step.band.p90};
  ledger->decode_bytes = static_cast<double>(step.hbm_bytes);
  ledger->machine.bandwidth = static_cast<double>(step.params.hbm_rate);
  ledger->decode_bandwidth_share =
      ledger->decode_bytes / (step.step_ms() / 1e3) / ledger->machine.bandwidth;
}

}  // namespace tk

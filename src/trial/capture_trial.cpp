#include "trial/capture_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "cpu/bench.h"
#include "npu/modes.h"
#include "trial/rows.h"
#include "trial/workload.h"

namespace tk {
namespace {

constexpr std::int64_t capture_limit = 64;  // graphs that npugraph_ex keeps (GM-31)
constexpr double least_gain = 0.05;         // of buckets that are measured

double predict(const CaptureCase& c, Phase phase, std::int64_t tokens, sim::Mode mode) {
  const bool decode = phase == Phase::decode;
  const StepShape shape{decode ? 1 : tokens, 1, decode ? tokens + 1 : tokens, c.options.block_size};
  return c.npu->step(decode ? c.decode : c.prefill, shape, mode).step_ms();
}

std::vector<ModeRow> predict_modes(const CaptureCase& c, Phase phase, std::int64_t tokens) {
  std::vector<ModeRow> rows;
  for (const sim::Mode mode : {sim::Mode::eager, sim::Mode::npugraph_ex, sim::Mode::ge_graph})
    rows.push_back({mode, predict(c, phase, tokens, mode), band_of(band_kind(mode))});
  return rows;
}

std::vector<Alternative> alternatives_of(std::span<const ModeRow> rows, double warm_up_s) {
  std::vector<Alternative> out;
  for (const ModeRow& row : rows) {
    Alternative a{std::string(mode_name(row.mode)), row.step_ms, 0, -1, ""};
    if (row.mode != sim::Mode::eager) {
      a.gain = 1 - row.step_ms / rows[0].step_ms;
      a.break_even_steps = break_even_steps(rows, row, warm_up_s);
      a.verdict = capture_verdict(rows, row);
    }
    out.push_back(std::move(a));
  }
  return out;
}

// Eager against a mode, with the band that capture_verdict judges by.
Comparison comparison_of(const std::string& metric, const ModeRow& eager, const ModeRow& graph) {
  const auto timing = [](const ModeRow& r) {
    return Timing{r.step_ms, r.step_ms / (1 + r.band.p90), r.step_ms * (1 + r.band.p90), 1};
  };
  const double error = std::max(eager.band.median, graph.band.median);
  Comparison out;
  out.metric = metric;
  out.kind = "predicted";
  out.before = timing(eager);
  out.after = timing(graph);
  out.ratio = graph.step_ms / eager.step_ms;
  out.ratio_low = std::max(0.0, out.ratio - error);
  out.ratio_high = out.ratio + error;
  out.measured = true;
  return out;
}

std::string change(double ratio) {
  return fmt::format("{:.1f} % {}", 100 * std::abs(1 - ratio),
                     ratio <= 1 ? "less time" : "more time");
}

std::string break_even_text(std::int64_t steps, double warm_up_s, const char* unit) {
  if (steps < 0) return "";
  return fmt::format("; making the graph{} {:.3g} s, paid back after {} {}",
                     unit == std::string_view("steps") ? " takes" : "s takes", warm_up_s, steps,
                     unit);
}

// ---- prefill in buckets ----

SizeCounts prompts_of(const CaptureCase& c, std::int64_t most) {
  SizeCounts counts;
  for (const Request& r : c.options.requests) {
    if (r.prompt > most)
      throw UserError("TK1510", cat("a prompt of ", r.prompt,
                                    " tokens is in the trace, and the model takes ", most))
          .help("leave such requests out of the trace: the model cannot serve them");
    ++counts[r.prompt];
  }
  return counts;
}

// Some of the sizes, the smallest and the largest among them.
std::vector<std::int64_t> some_of(const SizeCounts& counts, std::size_t most) {
  std::vector<std::int64_t> all;
  for (const auto& [size, count] : counts) all.push_back(size);
  if (all.size() <= most) return all;
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < most; ++i) out.push_back(all[i * (all.size() - 1) / (most - 1)]);
  return out;
}

double seconds_of(PrefillLoop& loop) {
  const auto start = Clock::now();
  loop();
  return seconds_since(start);
}

// Of prefills that replay a plan, and of making one.
BucketCosts measure_prefill(Runner* runner, const SizeCounts& counts) {
  std::map<std::int64_t, double> seconds;
  std::vector<double> making;
  for (const std::int64_t size : some_of(counts, 8)) {
    PrefillLoop loop(runner, spread_ids(size, runner->vocab()));
    const double first = seconds_of(loop);
    const double again = std::min({seconds_of(loop), seconds_of(loop), seconds_of(loop)});
    seconds[size] = again;
    making.push_back(std::max(first - again, 0.0));
  }
  return {.seconds = linear_between(std::move(seconds)), .plan_seconds = median(std::move(making))};
}

std::function<double(std::int64_t)> predicted_prefill(const CaptureCase& c,
                                                      const SizeCounts& counts, sim::Mode mode) {
  std::map<std::int64_t, double> seconds;
  for (const std::int64_t size : some_of(counts, 24))
    seconds[size] = predict(c, Phase::prefill, size, mode) / 1e3;
  return linear_between(std::move(seconds));
}

std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  std::string s;
  for (const std::int64_t n : sizes) s += cat(s.empty() ? "" : ", ", n);
  return s;
}

void judge_measured_buckets(LedgerRow* row, const Buckets& exact, const Buckets& chosen) {
  Comparison& t = row->prefill;
  const double gain = 1 - t.ratio;
  row->decision = gain >= least_gain ? Decision::kept : Decision::rolled_back;
  row->why = cat(change(t.ratio), " in ", t.metric, ": prompts padded to ",
                 sizes_text(chosen.sizes), " tokens with ", chosen.sizes.size(),
                 " plans, against a plan for each of ", exact.sizes.size(), " lengths");
  if (gain < least_gain) row->why = cat("padded tokens cost what plans save: ", row->why);
}

void prefill_by_measure(const CaptureCase& c, const SizeCounts& counts, LedgerRow* row,
                        std::vector<std::int64_t>* buckets) {
  const std::int64_t longest = counts.rbegin()->first;
  BucketCosts costs;
  {
    const auto runner = c.runner({.max_len = longest + 1});
    costs = measure_prefill(runner.get(), counts);
  }
  const Buckets chosen = choose_buckets(counts, costs, 0);
  const Buckets exact = cost_of_buckets({}, counts, costs);
  Comparison& t = row->prefill;
  t.metric = cat("all ", c.options.requests.size(), " prompts of the trace");
  t.before.median_ms = t.before.min_ms = t.before.max_ms = exact.total() * 1e3;
  t.after.median_ms = t.after.min_ms = t.after.max_ms = chosen.total() * 1e3;
  t.before.rounds = t.after.rounds = 1;
  t.ratio = t.ratio_low = t.ratio_high = chosen.total() / exact.total();
  t.measured = true;
  *buckets = chosen.sizes;
  judge_measured_buckets(row, exact, chosen);
}

void prefill_by_prediction(const CaptureCase& c, const SizeCounts& counts, LedgerRow* row,
                           std::vector<std::int64_t>* buckets) {
  const auto eager = predicted_prefill(c, counts, sim::Mode::eager);
  const BucketCosts costs{predicted_prefill(c, counts, sim::Mode::npugraph_ex), c.options.warm_up_s,
                          1};
  const Buckets chosen = choose_buckets(counts, costs, capture_limit);
  double eager_s = 0;
  for (const auto& [size, count] : counts) eager_s += static_cast<double>(count) * eager(size);
  const auto mode_row = [](sim::Mode mode, double seconds) {
    return ModeRow{mode, seconds * 1e3, band_of(band_kind(mode))};
  };
  const ModeRow rows[] = {mode_row(sim::Mode::eager, eager_s),
                          mode_row(sim::Mode::npugraph_ex, chosen.total())};
  row->prefill = comparison_of(cat("all ", c.options.requests.size(), " prompts of the trace"),
                               rows[0], rows[1]);
  row->alternatives = alternatives_of(rows, 0);
  const std::string_view verdict = row->alternatives[1].verdict;
  row->decision = verdict == "capture"   ? Decision::kept
                  : verdict == "no gain" ? Decision::rolled_back
                                         : Decision::pending;
  *buckets = chosen.sizes;
  const auto n = static_cast<double>(c.options.requests.size());
  const double saved = (eager_s - chosen.seconds) / n;
  const auto pays = saved > 0 ? static_cast<std::int64_t>(std::ceil(chosen.plan_seconds / saved))
                              : std::int64_t{-1};
  row->why = cat(row->decision == Decision::rolled_back ? "capture does not pay: " : "",
                 change(row->prefill.ratio), " in ", row->prefill.metric,
                 " (predicted), padded to ", sizes_text(chosen.sizes), " tokens",
                 break_even_text(pays, chosen.plan_seconds, "prompts"),
                 row->decision == Decision::pending ? "; within the band of the prediction" : "");
}

}  // namespace

LedgerRow capture_row(const Graph& graph, Phase phase, Target target) {
  LedgerRow row;
  row.stage = "capture";
  row.move = "capture";
  row.doc = "a step launched operator by operator -> one graph, replayed";
  row.target_op = target == Target::cpu ? "launch list" : "npugraph_ex";
  row.phase = name_of_phase(phase);
  row.place = "model";
  row.sites = 1;
  row.verdict = capture_verdict(graph, phase, CaptureBackend::npugraph_ex);
  row.nodes_before = row.nodes_after = static_cast<std::int64_t>(graph.n_nodes());
  return row;
}

bool capture_wanted(const OptimizeOptions& o) {
  const auto in = [](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), "capture") != names.end();
  };
  return (o.moves.empty() || in(o.moves)) && !in(o.disabled);
}

std::vector<AcceptanceItem> acceptance_of(const Verdict& verdict, const CaptureCheck& check) {
  const auto counted = [](std::int64_t found, std::int64_t expected) {
    return cat(found, " of ", expected, " expected");
  };
  return {{"the whole step is one region", verdict.ok() ? "nothing breaks it" : verdict.reason,
           verdict.ok()},
          {"graphs made at warm-up", counted(check.at_warm_up, check.predicted),
           check.at_warm_up == check.predicted},
          {"graphs made while serving", counted(check.while_serving, 0), check.while_serving == 0},
          {"replay equals the step operator by operator",
           check.same_bits
               ? cat("bit for bit in ", check.prefills, " prefills and ", check.steps,
                     " decode steps, with a batch change")
               : cat("first different in ", check.first_difference, ": largest error ",
                     check.error.max_abs, ", ", check.error.relative(), " of the largest logit"),
           check.same_bits}};
}

void judge_capture(LedgerRow* row) {
  std::string failed;
  for (const AcceptanceItem& item : row->acceptance)
    if (!item.passed) failed += cat(failed.empty() ? "" : "; ", item.what, ": ", item.found);
  if (!failed.empty()) {
    row->decision = Decision::rolled_back;
    row->why = failed;
    return;
  }
  const Comparison& t = row->decode;
  row->why = cat(change(t.ratio), " in ", t.metric, t.kind == "predicted" ? " (predicted)" : "");
  const auto chosen = std::find_if(row->alternatives.begin(), row->alternatives.end(),
                                   [&](const Alternative& a) { return a.name == row->target_op; });
  const std::string_view verdict = chosen == row->alternatives.end() ? "" : chosen->verdict;
  if (verdict == "no gain") {
    row->decision = Decision::rolled_back;
    row->why = "right, but no gain: " + row->why;
  } else if (verdict == "pending") {
    row->decision = Decision::pending;
    row->why += "; within the band of the prediction, to be measured on the device";
  } else if (t.slower()) {
    row->decision = Decision::rolled_back;
    row->why = "right, but slower: " + row->why;
  } else {
    row->decision = Decision::kept;
    if (!t.faster())
      row->why = cat("no difference beyond noise, and one launch a step: ", row->why);
  }
}

LedgerRow capture_decode(const CaptureCase& c) {
  const auto start = Clock::now();
  LedgerRow row = capture_row(c.decode, Phase::decode, c.options.target);
  const auto op_by_op = c.runner({.op_by_op = true});
  const auto replay = c.runner({});
  const CaptureCheck check = check_capture(op_by_op.get(), replay.get());
  if (!check.done) {
    row.local.detail = check.detail;
    row.decision = Decision::pending;
    row.why = cat("the check could not be run: ", check.detail);
    return row;
  }
  row.acceptance = acceptance_of(row.verdict, check);
  row.local.done = true;
  row.local.passed = check.same_bits;
  row.local.what = cat("logits of ", check.prefills, " prefills and ", check.steps,
                       " decode steps against the same operator by operator");
  row.local.error = check.error;
  row.local.detail = "equal to the bit";
  double warm_up_s = c.options.warm_up_s;
  if (c.npu != nullptr) {
    const std::vector<ModeRow> rows = predict_modes(c, Phase::decode, c.decode_context);
    row.alternatives = alternatives_of(rows, warm_up_s);
    row.decode = comparison_of(
        cat("decode step, batch 1, ", c.decode_context, " tokens in the cache, against eager"),
        rows[0], rows[1]);
  } else {
    warm_up_s = check.warm_up_s;
    row.decode = c.time_decode(*op_by_op, *replay);
    row.decode.metric += ", against operator by operator";
    const double before = row.decode.before.median_ms;
    const double after = row.decode.after.median_ms;
    row.alternatives = {{"operator by operator", before, 0, -1, ""},
                        {row.target_op, after, 1 - after / before, -1, ""}};
    if (row.decode.faster())
      row.alternatives[1].break_even_steps =
          static_cast<std::int64_t>(std::ceil(warm_up_s * 1e3 / (before - after)));
  }
  judge_capture(&row);
  if (row.decision == Decision::kept) {
    const auto chosen = std::find_if(row.alternatives.begin(), row.alternatives.end(),
                                     [&](const Alternative& a) { return a.name == row.target_op; });
    row.why += break_even_text(chosen->break_even_steps, warm_up_s, "steps");
  }
  row.seconds = seconds_since(start);
  return row;
}

LedgerRow capture_prefill(const CaptureCase& c, std::int64_t most_tokens,
                          std::vector<std::int64_t>* kept) {
  const auto start = Clock::now();
  LedgerRow row = capture_row(c.prefill, Phase::prefill, c.options.target);
  const SizeCounts counts = prompts_of(c, most_tokens);
  if (counts.empty()) {
    row.why = cat(row.verdict.reason, "; --requests TRACE tries buckets of prompt lengths");
    if (c.npu != nullptr) {
      const std::vector<ModeRow> rows = predict_modes(c, Phase::prefill, c.prefill_tokens);
      row.alternatives = alternatives_of(rows, c.options.warm_up_s);
      row.why += cat(" (", c.prefill_tokens,
                     " tokens without padding: ", change(rows[1].step_ms / rows[0].step_ms),
                     ", predicted)");
    }
    return row;
  }
  row.doc = "a prefill of any length -> graphs of a few lengths, prompts padded to the next";
  if (c.npu != nullptr && c.options.warm_up_s <= 0) {
    row.verdict = {VerdictKind::pending,
                   "what making a graph takes is not known, and not guessed",
                   "GM-61",
                   {}};
    row.decision = Decision::pending;
    row.why = cat(row.verdict.reason, ": give --warm-up S, seconds that a capture takes");
    return row;
  }
  row.verdict = {};
  std::vector<std::int64_t> buckets;
  if (c.npu != nullptr)
    prefill_by_prediction(c, counts, &row, &buckets);
  else
    prefill_by_measure(c, counts, &row, &buckets);
  if (row.decision != Decision::rolled_back) {
    row.model = c.check(
        c.runner({.max_len = counts.rbegin()->first + 1, .prefill_buckets = buckets}).get());
    if (!row.model.passed) {
      row.decision = Decision::rolled_back;
      row.why = cat("padded prompts give other logits: off by ", row.model.error.relative(),
                    " of the largest");
    }
  }
  if (row.decision == Decision::kept) *kept = std::move(buckets);
  row.seconds = seconds_since(start);
  return row;
}

}  // namespace tk

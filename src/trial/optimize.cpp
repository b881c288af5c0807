#include "trial/optimize.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>

#include "base/error.h"
#include "cpu/isa.h"
#include "cpu/kernels/bandwidth.h"
#include "cpu/pack.h"
#include "graph/rewrite.h"
#include "trial/capture_trial.h"
#include "trial/engine_model.h"
#include "trial/future.h"
#include "trial/machine.h"
#include "trial/predicted.h"
#include "trial/rows.h"
#include "trial/site_check.h"
#include "trial/step.h"
#include "trial/timing.h"
#include "trial/workload.h"

namespace tk {
namespace {

class Pipeline {
 public:
  Pipeline(const CapturedModel& model, const Golden* golden, const OptimizeOptions& options)
      : model_(model), golden_(golden), o_(options) {}

  Optimized run() {
    if (!model_.has_weights)
      throw UserError("TK0810", cat("the model in ", model_.folder.string(),
                                    " has no weights: nothing can be run or measured"))
          .help("add --analysis-only for its structure, sites and verdicts");
    say("checking the weights");
    check_finite(model_.weights);
    say("deriving the cached model");
    prepared_ = prepare(model_, o_.block_size);
    limits();
    references();
    baseline();
    for (const Move& move : candidates(o_))
      for (Phase phase : phases)
        if (wanted(move, phase, o_)) try_move(move, phase);
    if (capture_wanted(o_)) capture();
    finish();
    return std::move(out_);
  }

 private:
  Ledger& ledger() { return out_.ledger; }
  void say(const std::string& line) const {
    if (o_.progress) o_.progress(line);
  }
  Graph& graph(Phase p) { return p == Phase::decode ? decode_ : prefill_; }

  void limits() {
    const std::int64_t most = model_.config.max_positions > 0 ? model_.config.max_positions : 4096;
    prefill_tokens_ = std::max<std::int64_t>(1, std::min(o_.prefill_tokens, most - 1));
    decode_context_ = std::max<std::int64_t>(1, std::min(o_.decode_context, most - 2));
    max_len_ = std::min(most, std::max({prefill_tokens_, decode_context_, std::int64_t{62}}) + 2);
    ledger().model = facts_of(model_, prepared_);
    ledger().cache = prepared_.cached.cache;
    ledger().prefill_tokens = prefill_tokens_;
    ledger().decode_context = decode_context_;
    ledger().machine.cpu = cpu_name();
    ledger().machine.isa = isa_name();
    ledger().version = TK_VERSION;
    ledger().target = name_of(o_.target);
  }

  void references() {
    say(golden_ != nullptr ? "checking the captured graph against the golden logits"
                           : "running the captured graph for reference logits");
    reference_ = golden_ != nullptr ? reference_of_golden(*golden_, model_)
                                    : reference_of_captured(model_, max_len_);
    for (const ReferenceSequence& s : reference_.sequences)
      max_len_ = std::max(max_len_, static_cast<std::int64_t>(s.ids.size()) + 1);
    if (golden_ == nullptr) {
      ledger().captured.detail = "no golden file: the captured graph is the reference";
      return;
    }
    const Agreement a = check_captured(model_.graph, model_.weights, reference_);
    ledger().captured = to_check(a);
    if (!a.passed) disagree("TK0811", "the captured graph does not give the golden logits", a);
  }

  NumericCheck to_check(const Agreement& a) const {
    NumericCheck c;
    c.done = true;
    c.passed = a.passed;
    c.what = cat(a.prefill.rows, " prompt and ", a.decode.rows, " decode positions of ",
                 reference_.sequences.size(), " sequences against ", reference_.source);
    c.error = a.against_f32 ? *a.against_f32 : a.all;
    c.allowed = a.allowed;
    c.detail = a.rule;
    if (!a.greedy_equal) c.detail += cat("; ", a.first_difference);
    return c;
  }

  // Found after the captured graph was right: a bug of ours.
  static void must_agree(const std::string& which, const Agreement& a) {
    TK_CHECK(a.passed, which, " does not give the reference logits: largest error ", a.all.max_abs,
             " (", a.rule, ") ", a.first_difference);
  }

  [[noreturn]] void disagree(const char* code, const std::string& what, const Agreement& a) const {
    throw UserError(code, cat(what, ": largest error ", a.all.max_abs, " (", a.all.relative(),
                              " of the largest logit)"))
        .note(cat("the rule: ", a.rule))
        .note(a.greedy_equal ? "greedy tokens are equal"
                             : cat("first difference: ", a.first_difference))
        .help("check that the golden file belongs to these weights");
  }

  std::unique_ptr<Runner> runner(const Graph& prefill, const Graph& decode,
                                 const CaptureCase::RunnerWish& wish = {}) const {
    RunnerOptions r;
    r.engine.rebind = r.engine.one_by_one = wish.op_by_op;
    r.max_tokens = std::max(r.max_tokens, wish.max_len);
    r.threads = o_.threads;
    r.max_batch = 4;
    r.team = team_;
    r.packer = packer_;
    r.max_len = std::max(max_len_, wish.max_len);
    if (model_.config.max_positions > 0)
      r.max_len = std::min(r.max_len, model_.config.max_positions);
    EngineModel m = engine_model(model_, prefill.clone(), decode.clone(), o_.block_size);
    m.prefill_buckets = wish.prefill_buckets;
    return std::make_unique<Runner>(std::move(m), r);
  }

  void baseline() {
    team_ = std::make_shared<Team>(
        o_.threads > 0 ? o_.threads
                       : static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
    packer_ = std::make_shared<WeightPacker>(team_.get(), model_.weights);
    prefill_ = prepared_.cached.graph.clone();
    decode_ = prepared_.cached.graph.clone();
    say("checking the cached model against the reference");
    current_ = runner(prefill_, decode_);
    const Agreement one = check_runner(current_.get(), reference_, false);
    must_agree("the cached model", one);
    const Agreement mixed = check_runner(current_.get(), reference_, true);
    must_agree("the cached model with sequences side by side", mixed);
    ledger().cached = to_check(one);
    ledger().machine.threads = current_->n_threads();
    LedgerRow row;
    row.stage = "cache";
    row.move = "flatten_and_cache";
    row.doc = "forward [B, S] -> packed tokens [T] with a paged KV cache, prefill and decode";
    row.target_op = "tk.paged_attention";
    row.phase = "both";
    row.place = "model";
    row.sites = static_cast<int>(prepared_.cached.cache.layers.size());
    row.decision = Decision::kept;
    row.why = "prefill and decode of the cached graph give the reference logits";
    row.model = ledger().cached;
    row.nodes_before = ledger().model.captured_nodes;
    row.nodes_after = ledger().model.cached_nodes;
    if (!npu_) say("timing the captured graph against the cached one");
    if (!npu_) {
      row.decode = captured_against(*current_);
      ledger().waterfall.push_back({"captured graph, no cache", row.decode.before.median_ms, 0});
    }
    add(row);
    start_ = runner(prefill_, decode_);
    const Graph& cached = prepared_.cached.graph;
    const Comparison d = compare(Phase::decode, {*start_, cached}, {*current_, cached}, 0.3);
    const Comparison p = compare(Phase::prefill, {*start_, cached}, {*current_, cached}, 0.3);
    ledger().waterfall.push_back({"paged KV cache", d.after.median_ms, p.after.median_ms});
  }

  // The captured graph run as it is over the whole sequence, against one decode step.
  Comparison captured_against(Runner& cached) {
    const std::int64_t n = decode_context_ + 1;
    Engine engine(make_plan(model_.graph.clone(), model_.weights), {}, team_.get(),
                  std::make_shared<EngineMemory>());
    std::vector<Tensor> inputs;
    const auto ids = bench_ids(n);
    for (const auto& v : model_.graph.inputs()) {
      Tensor t = Tensor::empty(DType::i64, {1, n});
      const bool position = v->name.find("position") != std::string::npos;
      for (std::int64_t i = 0; i < n; ++i)
        t.as<std::int64_t>()[i] = position ? i : ids[static_cast<std::size_t>(i)];
      inputs.push_back(std::move(t));
    }
    DecodeLoop step(&cached, bench_ids(decode_context_));
    TimingOptions t = timing(1.0);
    t.min_rounds = 5;
    return time_in_turn(
        cat("next token after ", decode_context_,
            " tokens: whole sequence again, against one cached step"),
        [&] { engine.run(inputs); }, [&] { step(); }, t);
  }

  std::vector<std::int64_t> bench_ids(std::int64_t n) const {
    return spread_ids(n, out_.ledger.model.vocab);
  }

  TimingOptions timing(double budget) const {
    TimingOptions t;
    t.budget_s = std::min(budget, std::max(0.2, o_.budget_s / 20));
    return t;
  }
  // One of two alternatives: what runs it here, and its graph.
  struct Side {
    Runner& runner;
    const Graph& graph;
  };
  Comparison compare(Phase phase, const Side& a, const Side& b, double budget) {
    if (npu_)
      return predicted_comparison(metric(phase), predict(phase, a.graph), predict(phase, b.graph));
    return phase == Phase::decode ? time_decode(a.runner, b.runner, budget)
                                  : time_prefill(a.runner, b.runner, budget);
  }
  Comparison time_decode(Runner& a, Runner& b, double budget) {
    DecodeLoop x(&a, bench_ids(decode_context_));
    DecodeLoop y(&b, bench_ids(decode_context_));
    return time_in_turn(metric(Phase::decode), [&] { x(); }, [&] { y(); }, timing(budget));
  }
  Comparison time_prefill(Runner& a, Runner& b, double budget) {
    PrefillLoop x(&a, bench_ids(prefill_tokens_));
    PrefillLoop y(&b, bench_ids(prefill_tokens_));
    return time_in_turn(metric(Phase::prefill), [&] { x(); }, [&] { y(); }, timing(budget));
  }
  std::string metric(Phase phase) const {
    return phase == Phase::decode
               ? cat("decode step, batch 1, ", decode_context_, " tokens in the cache")
               : cat("prefill of ", prefill_tokens_, " tokens");
  }

  Simulation predict(Phase phase, const Graph& g) const {
    const bool decode = phase == Phase::decode;
    return npu_->step(g, {decode ? 1 : prefill_tokens_, 1,
                          decode ? decode_context_ + 1 : prefill_tokens_, o_.block_size});
  }
  void add(LedgerRow row) {
    row.id = static_cast<int>(ledger().rows.size()) + 1;
    ledger().rows.push_back(std::move(row));
  }

  void try_move(const Move& move, Phase phase) {
    // Applying a move can make room for itself again (a norm after a norm); a few rounds at most.
    for (int round = 0; round < 3; ++round) {
      const std::vector<Group> groups = grouped(sites_of(move, graph(phase), o_));
      if (groups.empty()) {
        if (round == 0) add(empty_row(move, phase, graph(phase)));
        return;
      }
      std::vector<Group> adaptable;
      for (const Group& g : groups) {
        if (g.sites[0].verdict.ok()) {
          adaptable.push_back(g);
        } else if (round == 0) {
          LedgerRow row = row_of(move, phase, g);
          row.why = cat(name_of(g.sites[0].verdict.kind), ": ", g.sites[0].verdict.reason);
          add(std::move(row));
        }
      }
      if (adaptable.empty()) return;
      if (!try_groups(move, phase, adaptable)) return;
    }
  }

  // All places together first: one trial when all is well. Otherwise each by itself, so that a bad
  // place does not take the good ones with it. Returns whether anything was kept.
  bool try_groups(const Move& move, Phase phase, const std::vector<Group>& groups) {
    Group all;
    for (const Group& g : groups) {
      all.place += cat(all.place.empty() ? "" : ", ", g.place);
      all.sites.insert(all.sites.end(), g.sites.begin(), g.sites.end());
    }
    if (seconds_since(begin_) > o_.budget_s) {
      LedgerRow row = row_of(move, phase, all);
      row.why = cat("the budget of ", o_.budget_s, " s was spent");
      add(std::move(row));
      return false;
    }
    const Decision d = trial(move, phase, all);
    if (d == Decision::kept) return true;
    const LedgerRow& last = ledger().rows.back();
    const bool worth_splitting =
        !last.model.passed || last.decode.slower() || last.prefill.slower();
    if (groups.size() == 1 || d == Decision::not_tried || !worth_splitting) return false;
    bool kept = false;
    for (const Group& g : groups) {
      // Sites go stale when the graph changes: find this place again.
      Group fresh{g.place, {}};
      for (Site& s : sites_of(move, graph(phase), o_))
        if (s.class_key == g.place && s.verdict.ok()) fresh.sites.push_back(std::move(s));
      if (fresh.sites.empty()) continue;
      kept |= trial(move, phase, fresh) == Decision::kept;
    }
    return kept;
  }

  Decision trial(const Move& move, Phase phase, const Group& group) {
    const auto start = Clock::now();
    LedgerRow row = row_of(move, phase, group);
    say(cat("trial ", ledger().rows.size() + 1, ": ", move.name, ", ", row.phase, ", ", row.sites,
            " site", row.sites == 1 ? "" : "s"));
    Graph& now = graph(phase);
    Graph candidate = now.clone();
    row.nodes_before = static_cast<std::int64_t>(now.n_nodes());
    const std::size_t applied = move.apply(candidate, group.sites);
    candidate.erase_dead();
    verify(candidate, move.name);
    row.nodes_after = static_cast<std::int64_t>(candidate.n_nodes());
    std::unique_ptr<Runner> next;
    if (applied == 0) {
      row.decision = Decision::not_tried;
      row.why = "the sites were taken by an earlier move";
    } else if (judge_local(move, now, group, &row)) {
      next = phase == Phase::decode ? runner(prefill_, candidate) : runner(candidate, decode_);
      judge(phase, now, candidate, *next, &row);
      if (npu_ && row.model.passed) weigh_futures(move, phase, now, candidate, &row);
    }
    row.seconds = seconds_since(start);
    const Decision decision = row.decision;
    if (decision == Decision::kept) {
      now = std::move(candidate);
      current_ = std::move(next);
      Waypoint w = ledger().waterfall.back();
      w.name = cat(move.name, " (", row.phase, ")");
      // A difference within the noise is none.
      if (row.decode.faster()) w.decode_ms *= row.decode.ratio;
      if (row.prefill.faster()) w.prefill_ms *= row.prefill.ratio;
      ledger().waterfall.push_back(w);
    }
    say(cat("  ", name_of(decision), ": ", row.why));
    add(std::move(row));
    return decision;
  }

  // The first and the last site on recorded values. False: the trial is decided.
  bool judge_local(const Move& move, const Graph& now, const Group& group, LedgerRow* row) {
    std::vector<const Site*> chosen{&group.sites.front()};
    if (group.sites.size() > 1 && ledger().model.weight_bytes < (std::int64_t{64} << 20))
      chosen.push_back(&group.sites.back());
    NumericCheck& sum = row->local;
    sum.passed = true;
    for (const Site* site : chosen) {
      const SiteGraph cut = cut_out(now, *site);
      const std::vector<std::int64_t>& ids = reference_.sequences.front().ids;
      // A decode graph may rely on one query a sequence by now.
      const std::ptrdiff_t most = row->phase == name_of_phase(Phase::decode) ? 1 : 5;
      const std::vector<std::int64_t> some(
          ids.begin(),
          ids.begin() + std::min<std::ptrdiff_t>(most, static_cast<std::ptrdiff_t>(ids.size())));
      const NumericCheck c =
          check_site(move, cut, record(now, cut.boundary, model_.weights, some), model_.weights);
      if (!c.done) {
        sum.detail = c.detail;
        continue;
      }
      sum.done = true;
      sum.error.merge(c.error);
      sum.allowed = c.allowed;
      sum.what = cat(chosen.size(), " of ", group.sites.size(), " sites on recorded inputs");
      if (!c.passed) {
        sum.passed = false;
        sum.detail = c.detail;
        row->decision = Decision::rolled_back;
        row->why = cat("wrong at ", site->module.empty() ? std::string("the site") : site->module,
                       ": ", c.detail);
        return false;
      }
    }
    return true;
  }

  void judge(Phase phase, const Graph& before, const Graph& after, Runner& next, LedgerRow* row) {
    const Agreement a = check_runner(&next, reference_, true);
    row->model = to_check(a);
    row->decision = Decision::rolled_back;
    if (!a.passed) {
      row->why = cat("the model's logits are off by ", a.all.relative(), " of the largest (",
                     a.rule, ")", a.greedy_equal ? "" : cat("; ", a.first_difference));
      return;
    }
    const bool decode = phase == Phase::decode;
    Comparison& c = decode ? row->decode : row->prefill;
    c = compare(phase, {*current_, before}, {next, after}, 1.5);
    const std::string figure =
        cat(percent(c.ratio), npu_ ? cat(" (predicted; ratio ", short_of(c.ratio), ", band ",
                                         short_of(c.ratio_low), " to ", short_of(c.ratio_high), ")")
                                   : "");
    if (c.faster()) {
      row->decision = Decision::kept;
      row->why = cat(figure, " in ", c.metric);
    } else if (c.slower()) {
      row->why = cat("right, but slower: ", figure, " in ", c.metric);
    } else if (npu_) {
      judge_within_band(c, figure, row);
    } else if (row->nodes_after < row->nodes_before) {
      row->decision = Decision::kept;
      row->why = cat("no difference beyond noise (", figure, "), and ",
                     row->nodes_before - row->nodes_after, " nodes fewer");
    } else {
      row->why = cat("right, but no gain beyond noise: ", figure, " in ", c.metric);
    }
  }

  // VN-112: which is faster cannot be told. FU-52 takes a gain with fewer kernels all the same.
  static void judge_within_band(const Comparison& c, const std::string& figure, LedgerRow* row) {
    if (c.ratio <= 1 && c.launches_after < c.launches_before) {
      row->decision = Decision::kept;
      row->why = cat("no difference beyond the band: ", figure, "; ",
                     c.launches_before - c.launches_after, " kernels fewer");
      return;
    }
    row->decision = Decision::pending;
    row->why = cat("right, but below the band of the prediction: ", figure, " in ", c.metric,
                   "; to be measured on the device");
  }

  // A prediction takes no run, so what comes after is looked at too: sites overlap.
  void weigh_futures(const Move& move, Phase phase, const Graph& before, const Graph& after,
                     LedgerRow* row) {
    const Seconds seconds = [&](const Graph& g) { return predict(phase, g).step_ms() / 1e3; };
    const Future with = future_of(after, move, phase, o_, seconds);
    const Future without = future_of(before, move, phase, o_, seconds);
    const bool kept = row->decision == Decision::kept;
    const double gain = kept ? with.seconds / without.seconds : without.seconds / with.seconds;
    if (gain < 1 + least_gain) return;
    const std::string figure =
        percent(kept ? without.seconds / with.seconds : with.seconds / without.seconds);
    const std::string winners = kept ? only_in(without, with) : only_in(with, without);
    const std::string losers = kept ? only_in(with, without) : only_in(without, with);
    // What is pending by itself is not kept for its own gain.
    if (row->decision == Decision::pending && winners.empty()) return;
    // What was said of it alone is no verdict any more.
    const Comparison& own = phase == Phase::decode ? row->decode : row->prefill;
    if (!kept)
      row->why = cat("by itself ", percent(own.ratio), " in ", own.metric,
                     row->decision == Decision::pending ? ", within" : ", beyond",
                     " the band of the prediction");
    row->decision = kept ? Decision::rolled_back : Decision::kept;
    row->why += cat(kept ? "; but it loses to " : "; but it makes room for ",
                    winners.empty() ? "what comes after" : winners,
                    losers.empty() ? "" : cat(" instead of ", losers), ": ", figure,
                    " with all that follows (predicted)");
  }
  static constexpr double least_gain = 0.005;

  // After all that changes the graphs (GM-51), as what is captured is what will run.
  void capture() {
    CaptureCase c{o_, prefill_, decode_};
    c.npu = npu_ ? &*npu_ : nullptr;
    c.prefill_tokens = prefill_tokens_;
    c.decode_context = decode_context_;
    c.runner = [this](const auto& wish) { return runner(prefill_, decode_, wish); };
    c.check = [this](Runner* r) { return to_check(check_runner(r, reference_, true)); };
    c.time_decode = [this](Runner& a, Runner& b) { return time_decode(a, b, 1.0); };
    const std::int64_t most = model_.config.max_positions > 0 ? model_.config.max_positions : 4096;
    ledger().capture = {capture_factors(model_.graph, CaptureBackend::npugraph_ex),
                        capture_region(decode_)};
    for (Phase phase : phases) {
      if (phase == Phase::decode ? !o_.decode : !o_.prefill) continue;
      say(cat("capture of ", name_of_phase(phase)));
      LedgerRow row = phase == Phase::decode ? capture_decode(c)
                                             : capture_prefill(c, most, &ledger().prefill_buckets);
      say(cat("  ", name_of(row.decision), ": ", row.why));
      add(std::move(row));
    }
  }

  static std::string percent(double ratio) {
    char text[64];
    std::snprintf(text, sizeof text, "%.1f %% %s", std::abs(1 - ratio) * 100,
                  ratio <= 1 ? "less time" : "more time");
    return text;
  }

  static std::string short_of(double ratio) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3f", ratio);
    return text;
  }

  void finish() {
    say("checking and timing the result");
    const Agreement a = check_runner(current_.get(), reference_, true);
    must_agree("the optimised model", a);
    ledger().optimized = to_check(a);
    const Graph& cached = prepared_.cached.graph;
    ledger().total_decode = compare(Phase::decode, {*start_, cached}, {*current_, decode_}, 2);
    ledger().total_prefill = compare(Phase::prefill, {*start_, cached}, {*current_, prefill_}, 2);
    if (!npu_) ledger().captured_decode = captured_against(*current_);
    ledger().model.decode_nodes = static_cast<std::int64_t>(decode_.n_nodes());
    ledger().model.prefill_nodes = static_cast<std::int64_t>(prefill_.n_nodes());
    if (!npu_)
      record_step();
    else
      record_prediction(predict(Phase::decode, decode_), &ledger());
    Deployment& d = out_.deployment;
    prefill_.erase_unused_weights();
    decode_.erase_unused_weights();
    for (const Graph* g : {&prefill_, &decode_})
      for (const auto& w : g->weights()) d.engine.weights[w->name] = model_.weights.at(w->name);
    d.engine.prefill = std::move(prefill_);
    d.engine.decode = std::move(decode_);
    d.engine.block_size = o_.block_size;
    d.engine.max_positions = model_.config.max_positions;
    d.engine.prefill_buckets = ledger().prefill_buckets;
    d.cache = prepared_.cached.cache;
    d.config = model_.config;
    d.name = ledger().model.name;
    ledger().seconds = seconds_since(begin_);
  }

  void record_step() {
    DecodeLoop step(current_.get(), bench_ids(decode_context_));
    step();
    const Bound* bound = current_->last_bound();
    LaunchTimes times;
    times.start.resize(bound->list.launches.size());
    times.end.resize(bound->list.launches.size());
    current_->set_times(&times);
    step();
    current_->set_times(nullptr);
    const auto zero = times.start.empty() ? 0 : times.start.front();
    double bytes = 0;
    for (std::size_t i = 0; i < bound->list.launches.size(); ++i) {
      const Launch& l = bound->list.launches[i];
      LaunchSpan s;
      s.name = l.node != nullptr ? std::string(l.node->op->name) : "";
      s.kernel = l.kernel;
      s.module = l.node != nullptr && l.node->loc != nullptr ? l.node->loc->module : "";
      s.start_us = static_cast<double>(times.start[i] - zero) / 1e3;
      s.duration_us = static_cast<double>(times.end[i] - times.start[i]) / 1e3;
      s.bytes = l.bytes + (l.live_bytes != nullptr ? l.live_bytes(l.args) : 0);
      bytes += static_cast<double>(s.bytes);
      ledger().decode_step.push_back(std::move(s));
    }
    say("measuring the memory bandwidth");
    ledger().machine.bandwidth = kernels::measure_read_bandwidth(current_->n_threads());
    ledger().decode_bytes = bytes;
    const double seconds = ledger().total_decode.after.median_ms / 1e3;
    if (seconds > 0) ledger().decode_bandwidth_share = bytes / seconds / ledger().machine.bandwidth;
  }

  const CapturedModel& model_;
  const Golden* golden_;
  const OptimizeOptions& o_;
  // Empty: this machine, measured.
  const std::optional<NpuClock> npu_ =
      o_.target == Target::cpu ? std::nullopt : std::optional<NpuClock>(name_of(o_.target));
  const Clock::time_point begin_ = Clock::now();
  Optimized out_;
  Prepared prepared_;
  Reference reference_;
  std::shared_ptr<Team> team_;  // of everything that is run and timed here
  std::shared_ptr<WeightPacker> packer_;
  std::int64_t prefill_tokens_ = 0, decode_context_ = 0, max_len_ = 0;
  Graph prefill_, decode_;
  std::unique_ptr<Runner> start_, current_;  // unfused, and with all that was kept
};

}  // namespace

Optimized optimize(const CapturedModel& model, const Golden* golden,
                   const OptimizeOptions& options) {
  return Pipeline(model, golden, options).run();
}

}  // namespace tk

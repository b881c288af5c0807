// Capture as rows of the ledger: measured here, predicted for a device, rolled back when an item of
// its acceptance fails (GM-02, GM-50, GM-51, GM-61, GM-63).
#include "trial/capture_trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "trial/engine_model.h"

namespace tk {
namespace {

CapturedModel stories() { return load_model(TK_SOURCE_DIR "/examples/stories260k"); }

OptimizeOptions quick(Target target) {
  OptimizeOptions o;
  o.target = target;
  o.threads = 1;
  o.budget_s = 4;
  o.prefill_tokens = 16;
  o.decode_context = 16;
  o.moves = {"move_logit_rows", "capture"};
  return o;
}

std::vector<LedgerRow> capture_rows(const Ledger& l) {
  std::vector<LedgerRow> rows;
  for (const LedgerRow& r : l.rows)
    if (r.stage == "capture") rows.push_back(r);
  return rows;
}

void expect_accepted(const LedgerRow& row) {
  ASSERT_EQ(row.acceptance.size(), 4U);
  for (const AcceptanceItem& item : row.acceptance)
    EXPECT_TRUE(item.passed) << item.what << ": " << item.found;
  EXPECT_TRUE(row.local.passed);
  EXPECT_EQ(row.local.error.max_abs, 0);
  EXPECT_GT(row.local.error.compared, 0);
}

TEST(CaptureTrial, GM02GM50GM51OneRowForDecodeAndARefusalForPrefill) {
  const Ledger l = optimize(stories(), nullptr, quick(Target::cpu)).ledger;
  const auto rows = capture_rows(l);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(l.rows.back().stage, "capture");  // GM-51: behind everything that changes the graphs
  EXPECT_EQ(l.rows[l.rows.size() - 2].stage, "capture");
  const LedgerRow& decode = rows[0];
  EXPECT_EQ(decode.phase, "decode");
  expect_accepted(decode);
  EXPECT_TRUE(decode.decode.measured);
  EXPECT_EQ(decode.decode.kind, "measured");
  EXPECT_EQ(decode.decision, decode.decode.slower() ? Decision::rolled_back : Decision::kept)
      << decode.why;
  ASSERT_EQ(decode.alternatives.size(), 2U);
  const LedgerRow& prefill = rows[1];
  EXPECT_EQ(prefill.phase, "prefill");
  EXPECT_EQ(prefill.decision, Decision::not_tried);
  EXPECT_EQ(prefill.verdict.kind, VerdictKind::not_adaptable);
  EXPECT_NE(prefill.why.find("length changes per request, first-token path differs"),
            std::string::npos);
  // GM-04: the plan, with places and rewrites.
  ASSERT_FALSE(l.capture.factors.empty());
  EXPECT_FALSE(l.capture.factors.front().rewrite.empty());
  EXPECT_TRUE(l.capture.region.missing.empty());
}

TEST(CaptureTrial, GM50GM63PredictedForADevice) {
  OptimizeOptions o = quick(Target::a3);
  o.warm_up_s = 3;
  const auto rows = capture_rows(optimize(stories(), nullptr, o).ledger);
  ASSERT_EQ(rows.size(), 2U);
  const LedgerRow& decode = rows[0];
  expect_accepted(decode);
  EXPECT_EQ(decode.decode.kind, "predicted");
  ASSERT_EQ(decode.alternatives.size(), 3U);
  EXPECT_EQ(decode.alternatives[0].name, "eager");
  EXPECT_EQ(decode.alternatives[1].name, "npugraph_ex");
  EXPECT_EQ(decode.alternatives[2].name, "ge_graph");
  // GM-52: so many small kernels are bound by the host.
  EXPECT_EQ(decode.alternatives[1].verdict, "capture");
  EXPECT_EQ(decode.decision, Decision::kept) << decode.why;
  EXPECT_TRUE(decode.decode.faster());
  const double saved_s = (decode.alternatives[0].ms - decode.alternatives[1].ms) / 1e3;
  const auto steps = static_cast<double>(decode.alternatives[1].break_even_steps);
  EXPECT_GE(steps * saved_s, 3 * (1 - 1e-9));
  EXPECT_LT((steps - 1) * saved_s, 3);
  EXPECT_EQ(rows[1].decision, Decision::not_tried);
}

Request prompt_of(std::int64_t tokens) { return {0, tokens, 2}; }

TEST(CaptureTrial, GM61PrefillBucketsOnADevicePayWithEnoughPrompts) {
  OptimizeOptions o = quick(Target::a3);
  o.decode = false;
  for (int i = 0; i < 40; ++i) o.requests.push_back(prompt_of(5 + i % 11));
  const auto row = [&] { return capture_rows(optimize(stories(), nullptr, o).ledger).at(0); };
  const LedgerRow unknown = row();
  EXPECT_EQ(unknown.decision, Decision::pending);  // what a capture takes is not known
  EXPECT_NE(unknown.why.find("--warm-up"), std::string::npos);
  o.warm_up_s = 1000;
  const LedgerRow dear = row();
  EXPECT_EQ(dear.decision, Decision::rolled_back) << dear.why;
  o.warm_up_s = 1e-6;
  const Optimized cheap = optimize(stories(), nullptr, o);
  const LedgerRow kept = capture_rows(cheap.ledger).at(0);
  EXPECT_EQ(kept.decision, Decision::kept) << kept.why;
  EXPECT_TRUE(kept.model.passed) << kept.why;  // padded prompts give the reference's logits
  ASSERT_FALSE(cheap.ledger.prefill_buckets.empty());
  EXPECT_EQ(cheap.ledger.prefill_buckets.back(), 15);
  EXPECT_EQ(cheap.deployment.engine.prefill_buckets, cheap.ledger.prefill_buckets);
}

TEST(CaptureTrial, GM61PrefillBucketsOnTheCPUAreMeasured) {
  OptimizeOptions o = quick(Target::cpu);
  o.decode = false;
  for (int i = 0; i < 30; ++i) o.requests.push_back(prompt_of(3 + i));
  const Optimized out = optimize(stories(), nullptr, o);
  const LedgerRow row = capture_rows(out.ledger).at(0);
  ASSERT_TRUE(row.prefill.measured);
  const bool pays = row.prefill.ratio <= 0.95;
  EXPECT_EQ(row.decision, pays ? Decision::kept : Decision::rolled_back) << row.why;
  EXPECT_EQ(out.ledger.prefill_buckets.empty(), !pays);
  if (pays) {
    EXPECT_EQ(out.ledger.prefill_buckets.back(), 32);
  }
  o.requests.push_back(prompt_of(100000));
  try {
    optimize(stories(), nullptr, o);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK1510");
  }
}

std::unique_ptr<Runner> runner(const CapturedModel& model, bool op_by_op, bool scaled = false) {
  Prepared p = prepare(model, 16);
  Graph decode = p.cached.graph.clone();
  if (scaled)
    for (Node* n : nodes(decode))
      if (n->is("aten.linear")) {
        Builder b{decode, n->next, n->loc};
        Value* twice = b.op("aten.mul", {n->out()}, {{"other", 1.5}});
        for (const Use use : std::vector<Use>(n->out()->uses))
          if (use.node != nullptr && use.node != twice->node)
            decode.set_input(use.node, use.index, twice);
        break;
      }
  RunnerOptions o;
  o.threads = 1;
  o.max_batch = 4;
  o.max_len = 40;
  o.engine.rebind = o.engine.one_by_one = op_by_op;
  return std::make_unique<Runner>(
      engine_model(model, std::move(p.cached.graph), std::move(decode), 16), o);
}

TEST(CaptureTrial, GM50ACheckThatPasses) {
  const CapturedModel model = stories();
  const CaptureCheck c = check_capture(runner(model, true).get(), runner(model, false).get());
  ASSERT_TRUE(c.done) << c.detail;
  EXPECT_TRUE(c.same_bits) << c.first_difference;
  EXPECT_GE(c.prefills, 1);
  EXPECT_GE(c.steps, 8);
  EXPECT_EQ(c.predicted, 2);  // batches of two and three; the table stays one block wide
  EXPECT_EQ(c.at_warm_up, c.predicted);
  EXPECT_EQ(c.while_serving, 0);
}

TEST(CaptureTrial, GM03GM50AnItemThatFailsRollsBack) {
  const CapturedModel model = stories();
  const auto decision = [&](Runner* replay, const Verdict& verdict) {
    LedgerRow row;
    row.acceptance = acceptance_of(verdict, check_capture(runner(model, true).get(), replay));
    row.decode.measured = true;
    row.decode.ratio = row.decode.ratio_low = row.decode.ratio_high = 0.5;
    judge_capture(&row);
    return row;
  };
  EXPECT_EQ(decision(runner(model, false).get(), {}).decision, Decision::kept);
  // Another result.
  const LedgerRow wrong = decision(runner(model, false, true).get(), {});
  EXPECT_EQ(wrong.decision, Decision::rolled_back);
  EXPECT_NE(wrong.why.find("first different in decode step 1, sequence 1: largest error"),
            std::string::npos)
      << wrong.why;
  // A graph is made for each step, also while serving.
  const LedgerRow anew = decision(runner(model, true).get(), {});
  EXPECT_EQ(anew.decision, Decision::rolled_back);
  EXPECT_NE(anew.why.find("graphs made while serving: 9 of 0 expected"), std::string::npos)
      << anew.why;
  // Something stands in the way (GM-10).
  const Verdict no{
      VerdictKind::not_adaptable, "a random operator: aten.rand at model.py:7", "GM-11", {}};
  const LedgerRow broken = decision(runner(model, false).get(), no);
  EXPECT_EQ(broken.decision, Decision::rolled_back);
  EXPECT_NE(broken.why.find("model.py:7"), std::string::npos);
}

TEST(CaptureTrial, GM02AGraphWithoutAPhaseIsPending) {
  const Prepared p = prepare(stories(), 16);
  const Verdict v = capture_verdict(p.cached.graph, std::nullopt, CaptureBackend::npugraph_ex);
  EXPECT_EQ(v.kind, VerdictKind::pending);
  EXPECT_NE(v.reason.find("specialise first"), std::string::npos);
  EXPECT_TRUE(capture_verdict(p.cached.graph, Phase::decode, CaptureBackend::npugraph_ex).ok());
}

TEST(CaptureTrial, AModelWithTooFewPositionsIsNotJudged) {
  const CapturedModel model = stories();
  Prepared p = prepare(model, 16);
  RunnerOptions o;
  o.threads = 1;
  o.max_len = 8;
  Runner small(engine_model(model, p.cached.graph.clone(), p.cached.graph.clone(), 16), o);
  const CaptureCheck c = check_capture(&small, &small);
  EXPECT_FALSE(c.done);
  EXPECT_NE(c.detail.find("14 tokens"), std::string::npos);
}

}  // namespace
}  // namespace tk

// Trials: a wrong rewrite is caught and rolled back, a right but slower one too (OP-74, OP-78,
// FU-52).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "graph/rewrite.h"
#include "import/safetensors.h"
#include "trial/optimize.h"
#include "trial/timing.h"

namespace tk {
namespace {

namespace fs = std::filesystem;

fs::path stories() { return fs::path(TK_SOURCE_DIR) / "examples" / "stories260k"; }

// A move that changes the first node of an operator in some way.
Move move_on(const std::string& name, std::string_view op,
             std::function<Value*(Builder&, Node*)> change) {
  Move m;
  m.name = name;
  m.doc = "for a test";
  m.phases = Phases::decode;
  m.find = [op](const Graph& g, Target) {
    std::vector<Site> sites;
    const std::vector<Node*> order = nodes_in_order(g);
    for (Node* n : order)
      if (n->op->name == op && n->attrs.find("alpha") == nullptr) {
        Node* nodes[] = {n};
        sites.push_back(site_at("test", *n, nodes, order));
        break;
      }
    return sites;
  };
  m.apply = [change](Graph& g, std::span<const Site> sites) {
    const std::vector<Node*> order = nodes_in_order(g);
    for (const Site& s : sites) {
      Node* n = order.at(static_cast<std::size_t>(s.nodes[0]));
      Builder b{g, n->next, n->loc};
      Value* mark = n->out();
      Value* changed = change(b, n);
      for (const Use use : std::vector<Use>(mark->uses)) {
        if (use.node == nullptr) {
          g.set_output(use.index, changed);
        } else if (use.node->order > changed->node->order) {
          g.set_input(use.node, use.index, changed);
        }
      }
    }
    return sites.size();
  };
  return m;
}

OptimizeOptions quick(std::span<const Move> moves) {
  OptimizeOptions o;
  o.threads = 1;
  o.budget_s = 20;
  o.prefill = false;
  o.candidates = moves;
  return o;
}

const LedgerRow& row_of(const Ledger& l, const std::string& move) {
  for (const LedgerRow& r : l.rows)
    if (r.move == move) return r;
  throw std::runtime_error("no row of " + move);
}

TEST(Trial, WrongRewriteIsRolledBack) {
  const CapturedModel model = load_model(stories());
  const Golden golden = read_golden(stories() / "golden.safetensors");
  const Move wrong[] = {move_on("wrong_scale", "aten.linear", [](Builder& b, Node* n) {
    return b.op("aten.mul", {n->out()}, {{"other", 1.001}});
  })};
  const Optimized out = optimize(model, &golden, quick(wrong));
  const LedgerRow& row = row_of(out.ledger, "wrong_scale");
  EXPECT_EQ(row.decision, Decision::rolled_back);
  EXPECT_FALSE(row.local.passed && row.model.passed);
  EXPECT_TRUE(out.ledger.optimized.passed);
  EXPECT_EQ(print(out.deployment.engine.decode).find("1.001"), std::string::npos);
}

TEST(Trial, RightButSlowerIsRolledBack) {
  const CapturedModel model = load_model(stories());
  const Move slow[] = {move_on("slow_detour", "aten.linear", [](Builder& b, Node* n) {
    Value* v = n->out();
    for (int i = 0; i < 400; ++i) v = b.op("aten.neg", {v});
    return v;
  })};
  const Optimized out = optimize(model, nullptr, quick(slow));
  const LedgerRow& row = row_of(out.ledger, "slow_detour");
  EXPECT_TRUE(row.model.passed) << row.why;
  EXPECT_EQ(row.decision, Decision::rolled_back) << row.why;
  EXPECT_NE(row.why.find("slower"), std::string::npos) << row.why;
}

TEST(Trial, KeptMovesAreInTheDeployment) {
  const CapturedModel model = load_model(stories());
  OptimizeOptions o = quick({});
  o.moves = {"fuse_rms_norm"};
  Optimized out = optimize(model, nullptr, o);
  const fs::path folder = fs::temp_directory_path() / ("tk-trial-" + std::to_string(::getpid()));
  save_deployment(folder, out.deployment, model);
  const std::string decode = print(out.deployment.engine.decode);
  const Deployment again = load_deployment(folder);
  EXPECT_EQ(print(again.engine.decode), decode);
  EXPECT_EQ(again.cache.layers.size(), out.deployment.cache.layers.size());
  // The ledger and the graph say the same.
  const bool kept = row_of(out.ledger, "fuse_rms_norm").decision == Decision::kept;
  EXPECT_EQ(kept, decode.find("npu.npu_rms_norm") != std::string::npos);
  fs::remove(folder / "tokamak.json");
  EXPECT_THROW(load_deployment(folder), UserError);
  fs::remove_all(folder);
}

TEST(Trial, WithoutWeights) {
  CapturedModel model = load_model(stories());
  model.has_weights = false;
  model.weights.clear();
  try {
    optimize(model, nullptr, {});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK0810");
  }
  const Ledger l = analyse(model, {});
  EXPECT_FALSE(l.rows.empty());
  for (const LedgerRow& r : l.rows) EXPECT_EQ(r.decision, Decision::not_tried);
}

TEST(Trial, GoldenOfAnotherModel) {
  const CapturedModel model = load_model(stories());
  Golden golden = read_golden(stories() / "golden.safetensors");
  golden.cases.resize(1);
  golden.cases[0].logits = contiguous(golden.cases[0].logits);
  golden.cases[0].logits.as<float>()[7] += 1;
  try {
    optimize(model, &golden, quick({}));
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK0811");
  }
}

TEST(Golden, Incomplete) {
  const fs::path path =
      fs::temp_directory_path() / ("tk-golden-" + std::to_string(::getpid()) + ".safetensors");
  const Tensor ids = Tensor::zeros(DType::i64, {1, 3});
  write_safetensors(path, {{"p0.input_ids", ids}});
  try {
    read_golden(path);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK0801");
  }
  fs::remove(path);
}

TEST(Timing, MedianInterval) {
  std::vector<double> values;
  for (int i = 1; i <= 101; ++i) values.push_back(i);
  const MedianInterval m = median_interval(values);
  EXPECT_EQ(m.median, 51);
  EXPECT_LT(m.low, 51);
  EXPECT_GT(m.high, 51);
  EXPECT_GE(m.low, 38);
  EXPECT_LE(m.high, 64);
  EXPECT_EQ(median_interval({3}).median, 3);
}

TEST(Timing, InTurn) {
  using namespace std::chrono_literals;
  const Comparison c = time_in_turn(
      "sleep", [] { std::this_thread::sleep_for(1ms); }, [] { std::this_thread::sleep_for(5ms); });
  EXPECT_TRUE(c.slower());
  EXPECT_FALSE(c.faster());
  EXPECT_GE(c.before.rounds, 9);
}

TEST(Numerics, NanAndWorst) {
  const Tensor a = Tensor::of({1, 2, 3, 4});
  const Tensor b = Tensor::of({1, 2.5, 3, NAN});
  const ErrorStats e = compare(b, a);
  EXPECT_EQ(e.not_finite, 1);
  EXPECT_EQ(e.worst, 1);
  EXPECT_NEAR(e.max_abs, 0.5, 1e-9);
  EXPECT_EQ(argmax(b), 2);
}

TEST(Ledger, JsonOfEverything) {
  Ledger l;
  l.rows.emplace_back();
  l.rows[0].move = "x\xff";  // not UTF-8: shown, not thrown
  EXPECT_NE(to_json(l).find("tokamak-ledger-1"), std::string::npos);
}

}  // namespace
}  // namespace tk

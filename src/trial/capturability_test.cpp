// Capturability: each cause of GM-10 to GM-17 at its place, and none in a derived decode step.
#include "trial/capturability.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "graph/rewrite.h"
#include "import/model.h"
#include "trial/optimize.h"

namespace tk {
namespace {

// An operator that is not known here, as a capture holds it.
Graph opaque(std::string_view target, DType second = DType::f32) {
  return parse_graph(cat("graph @main(%x: f32[4, 8], %y: ", name_of(second), R"([4, 8]) {
  %0 = tk.opaque(%x, %y) {target=")",
                         target, R"(", dtypes="f32", ranks=[2], dims=[4, 8]}  )",
                         R"(@"model.layers.3.mlp" MLP (modeling.py:71)
  return %0
})"));
}

TEST(Capturability, NamesOperatorPlaceAndRewriteGM10GM11) {
  const struct {
    std::string_view op, cause;
  } cases[] = {{"aten.rand_like.default", "random"},  {"aten.multinomial", "random"},
               {"aten.bernoulli_.float", "random"},   {"aten.item", "value"},
               {"aten._local_scalar_dense", "value"}, {"aten.nonzero.default", "shape"},
               {"aten.masked_select", "shape"},       {"aten.unique_consecutive", "shape"}};
  for (const auto& c : cases) {
    const Graph g = opaque(c.op);
    const auto factors = capture_factors(g, CaptureBackend::npugraph_ex);
    ASSERT_FALSE(factors.empty()) << c.op;
    const auto f = std::find_if(factors.begin(), factors.end(),
                                [](const CaptureFactor& x) { return x.rule == "GM-11"; });
    ASSERT_NE(f, factors.end()) << c.op;
    EXPECT_EQ(f->cause, c.cause);
    EXPECT_NE(f->found.find(c.op), std::string::npos);
    EXPECT_EQ(f->place, "modeling.py:71");
    EXPECT_EQ(f->module, "model.layers.*.mlp");
    EXPECT_TRUE(f->blocks);
    EXPECT_FALSE(f->rewrite.empty());
  }
}

TEST(Capturability, DropoutOnlyInTrainingGM11) {
  const Graph inference = parse_graph(
      "graph @main(%x: f32[4, 8]) {\n  %0 = aten.dropout(%x) {p=0.5, train=false}\n  return %0\n}");
  EXPECT_TRUE(capture_factors(inference, CaptureBackend::npugraph_ex).empty());
  const auto training =
      capture_factors(opaque("aten.dropout.default"), CaptureBackend::npugraph_ex);
  EXPECT_TRUE(std::any_of(training.begin(), training.end(),
                          [](const CaptureFactor& f) { return f.cause == "random"; }));
}

TEST(Capturability, OnlyBooleanIndicesBlockGM10) {
  const auto count = [](DType index) {
    const auto factors =
        capture_factors(opaque("aten.index.Tensor", index), CaptureBackend::ge_graph);
    return std::count_if(factors.begin(), factors.end(),
                         [](const CaptureFactor& f) { return f.rule == "GM-11"; });
  };
  EXPECT_EQ(count(DType::i64), 0);
  EXPECT_EQ(count(DType::boolean), 1);
}

TEST(Capturability, AModelAndItsDecodeStepGM12ToGM17) {
  const CapturedModel model = load_model(TK_SOURCE_DIR "/examples/stories260k");
  const auto before = capture_factors(model.graph, CaptureBackend::npugraph_ex);
  const auto has = [&before](std::string_view rule) {
    return std::any_of(before.begin(), before.end(),
                       [rule](const CaptureFactor& f) { return f.rule == rule; });
  };
  EXPECT_TRUE(has("GM-10"));  // sizes differ from call to call
  EXPECT_TRUE(has("GM-15"));  // no cache
  EXPECT_TRUE(before.front().blocks);

  Prepared prepared = prepare(model, 16);
  Graph prefill = prepared.cached.graph.clone(), decode = prepared.cached.graph.clone();
  apply_all_moves(&prefill, &decode, {});
  for (const CaptureFactor& f : capture_factors(decode, CaptureBackend::npugraph_ex))
    EXPECT_FALSE(f.blocks) << f.rule << " " << f.found;
  const CaptureRegion region = capture_region(decode);
  EXPECT_TRUE(region.missing.empty());   // GM-12
  EXPECT_TRUE(region.returned.empty());  // GM-13
  EXPECT_EQ(region.states.size(), prepared.cached.cache.layers.size() * 2);
  EXPECT_FALSE(region.fixed.empty());

  // GM-13, the other way round: a cache that is returned is said.
  for (Node* n : nodes(decode))
    if (n->is("tk.cache_write")) {
      decode.add_output(n->out());
      break;
    }
  EXPECT_EQ(capture_region(decode).returned.size(), 1U);
}

}  // namespace
}  // namespace tk

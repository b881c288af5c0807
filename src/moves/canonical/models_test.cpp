// The canonical form of the captured models gives the very same logits, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "import/golden_test_util.h"
#include "moves/canonical/canonical.h"

namespace tk {
namespace {

class Canonical : public testing::TestWithParam<std::string> {};

TEST_P(Canonical, SameBits) {
  const auto models = shared_models();
  if (models.empty()) GTEST_SKIP() << "../shared/models is not there";
  const CapturedModel model = load_model(models / GetParam());
  Graph canonical = model.graph.clone();
  canonicalize(canonical);
  verify(canonical, "canonical");
  EXPECT_LT(canonical.n_nodes(), model.graph.n_nodes());
  const std::string text = print(canonical);
  EXPECT_EQ(print(parse_graph(text)), text);
  const SafeTensors golden = SafeTensors::open(models / GetParam() / "golden.safetensors");
  for (const std::string prompt : {"p0", "p2"}) {
    const Tensor& ids = *golden.find(prompt + ".input_ids");
    const Tensor before = run_prompt(model.graph, model.weights, ids);
    const Tensor after = run_prompt(canonical, model.weights, ids);
    ASSERT_EQ(before.bytes(), after.bytes());
    EXPECT_EQ(std::memcmp(before.data, after.data, static_cast<std::size_t>(before.bytes())), 0)
        << prompt;
  }
}

INSTANTIATE_TEST_SUITE_P(Shared, Canonical, testing::ValuesIn(golden_models()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(LargeModel, CanonicalInTime) {
  const auto models = shared_models();
  if (models.empty()) GTEST_SKIP() << "../shared/models is not there";
  for (const std::string& name : large_models()) {
    CapturedModel model = load_model(models / "large" / (name + ".pt2"));
    const auto start = std::chrono::steady_clock::now();
    canonicalize(model.graph);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    verify(model.graph, "canonical");
    EXPECT_LT(seconds.count(), 5) << name;  // an optimised build takes some tenths
  }
}

}  // namespace
}  // namespace tk

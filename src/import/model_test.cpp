#include "import/model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "import/golden_test_util.h"

namespace tk {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
template <typename F>
std::string error_of(F f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

// ---- The ten models: the captured graph gives the golden logits.

class GoldenModel : public testing::TestWithParam<std::string> {};

double largest(const Tensor& t) {
  double m = 0;
  for (std::int64_t i = 0; i < t.numel(); ++i) m = std::max(m, std::fabs(element(t, i)));
  return m;
}
double largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape, b.shape);
  double m = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i)
    m = std::max(m, std::fabs(element(a, i) - element(b, i)));
  return m;
}

TEST_P(GoldenModel, CapturedGraphMatchesPromptLogits) {
  const fs::path models = shared_models();
  if (models.empty()) GTEST_SKIP() << "../shared/models is not there";
  const CapturedModel model = load_model(models / GetParam());
  ASSERT_TRUE(model.has_weights);
  verify(model.graph, "import");
  const std::string text = print(model.graph);
  EXPECT_EQ(print(parse_graph(text)), text);
  const SafeTensors golden = SafeTensors::open(models / GetParam() / "golden.safetensors");
  for (const std::string prompt : {"p0", "p1", "p2"}) {
    const Tensor logits =
        run_prompt(model.graph, model.weights, *golden.find(prompt + ".input_ids"));
    const Tensor& expected = *golden.find(prompt + ".logits");
    if (const Tensor* exact = golden.find(prompt + ".logits_fp32")) {
      // bf16: at most 1.5 times as far from the fp32 logits as torch's own bf16 logits are.
      EXPECT_LE(largest_difference(logits, *exact), 1.5 * largest_difference(expected, *exact))
          << prompt;
    } else {
      EXPECT_LE(largest_difference(logits, expected), 2e-4 * largest(expected)) << prompt;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shared, GoldenModel, testing::ValuesIn(golden_models()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(LargeModel, ImportsInTime) {
  const fs::path models = shared_models();
  if (models.empty()) GTEST_SKIP() << "../shared/models is not there";
  for (const std::string& name : large_models()) {
    const auto start = std::chrono::steady_clock::now();
    const CapturedModel model = load_model(models / "large" / (name + ".pt2"));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_FALSE(model.has_weights);
    EXPECT_GT(model.graph.n_nodes(), 4000U) << name;
    EXPECT_LT(seconds.count(), 5) << name;  // an optimised build takes some tenths
  }
}

TEST(Model, WeightsLieInTheFile) {
  const fs::path models = shared_models();
  if (models.empty()) GTEST_SKIP() << "../shared/models is not there";
  const CapturedModel model = load_model(models / "llama-gqa" / "model.pt2");
  const auto owner = model.weights.begin()->second.owner;
  for (const auto& [name, tensor] : model.weights) EXPECT_EQ(tensor.owner, owner) << name;
  EXPECT_EQ(model.config.model_type, "llama");
  EXPECT_EQ(model.config.vocab_size, 256);
}

// ---- Folders and weights

class ModelFolder : public testing::Test {
 protected:
  void SetUp() override {
    models_ = shared_models();
    if (models_.empty()) GTEST_SKIP() << "../shared/models is not there";
    folder_ = fs::temp_directory_path() /
              cat("tk_model_test_", ::getpid(), "_",
                  testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  // A capture without weights (one of the large graphs' kind) for safetensors of our making beside
  // it.
  void weightless_capture() {
    fs::copy_file(models_ / "large" / "llama3-70b.pt2", folder_ / "model.pt2");
  }

  fs::path models_, folder_;
};

TEST_F(ModelFolder, NotThere) {
  EXPECT_TRUE(has(error_of([&] { load_model(folder_ / "no"); }), "error[TK0230]"));
  EXPECT_TRUE(has(error_of([&] { load_model(folder_); }), "the folder has no .pt2 file"));
  write_file(folder_ / "config.json", "{}");
  EXPECT_TRUE(has(error_of([&] { load_model(folder_); }), "python -m tokamak.capture"));
  EXPECT_TRUE(has(error_of([&] { load_model(folder_ / "config.json"); }), "expected a .pt2 file"));
  write_file(folder_ / "a.pt2", "x");
  write_file(folder_ / "b.pt2", "x");
  EXPECT_TRUE(has(error_of([&] { load_model(folder_); }), "several .pt2 files: a.pt2, b.pt2"));
  fs::remove(folder_ / "b.pt2");
  EXPECT_TRUE(has(error_of([&] { load_model(folder_); }), "TK0130"));
}

TEST_F(ModelFolder, MissingWeights) {
  weightless_capture();
  EXPECT_FALSE(load_model(folder_).has_weights);
  Tensor t = Tensor::zeros(DType::bf16, {8192});
  write_safetensors(folder_ / "model.safetensors", {{"model.norm.weight", t}});
  const std::string e = error_of([&] { load_model(folder_); });
  EXPECT_TRUE(has(e, "error[TK0231]")) << e;
  EXPECT_TRUE(has(e, "weights are missing:")) << e;
  EXPECT_TRUE(has(e, " more")) << e;
}

TEST_F(ModelFolder, WeightOfAnotherShape) {
  weightless_capture();
  Tensor t = Tensor::zeros(DType::bf16, {8, 8});
  write_safetensors(folder_ / "model.safetensors", {{"model.embed_tokens.weight", t}});
  std::string e = error_of([&] { load_model(folder_); });
  EXPECT_TRUE(has(e, "error[TK0232]")) << e;
  EXPECT_TRUE(has(e, "is bf16[8, 8] in ")) << e;
  EXPECT_TRUE(has(e, "needs bf16[128256, 8192]")) << e;
}

TEST(Finite, NamesTheWeightAndTheIndex) {
  Weights weights;
  weights["a"] = Tensor::zeros(DType::f32, {3, 4});
  weights["b"] = Tensor::zeros(DType::bf16, {2, 3});
  weights["c"] = Tensor::zeros(DType::i64, {2});
  check_finite(weights);
  set_element(weights["b"], 4, INFINITY);
  std::string e = error_of([&] { check_finite(weights); });
  EXPECT_TRUE(has(e, "error[TK0233]: the weight 'b' is not finite: inf at [1, 1]")) << e;
  set_element(weights["a"], 11, NAN);
  e = error_of([&] { check_finite(weights); });
  EXPECT_TRUE(has(e, "the weight 'a' is not finite: nan at [2, 3]")) << e;
}

TEST(Config, FactsAndTheirFiles) {
  const fs::path folder = fs::temp_directory_path() / cat("tk_config_test_", ::getpid());
  fs::create_directories(folder);
  EXPECT_EQ(read_config(folder).max_positions, 0);
  write_file(folder / "config.json",
             R"({"model_type": "m", "eos_token_id": 2, "bos_token_id": 1, "vocab_size": 9,
                 "text_config": {"max_position_embeddings": 77, "vocab_size": 8}})");
  ModelConfig c = read_config(folder);
  EXPECT_EQ(c.model_type, "m");
  EXPECT_EQ(c.eos_ids, std::vector<std::int64_t>{2});
  EXPECT_EQ(c.bos_id, 1);
  EXPECT_EQ(c.max_positions, 77);
  EXPECT_EQ(c.vocab_size, 8);
  write_file(folder / "generation_config.json", R"({"eos_token_id": [5, 6]})");
  EXPECT_EQ(read_config(folder).eos_ids, (std::vector<std::int64_t>{5, 6}));
  write_file(folder / "generation_config.json", R"({"eos_token_id": "x"})");
  EXPECT_TRUE(has(error_of([&] { read_config(folder); }), "TK0111"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tk

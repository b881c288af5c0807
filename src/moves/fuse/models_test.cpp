// The moves on captured models (../shared): which ones fire, and that the token-flat graph computes
// the same logits after each. Skipped where the captures are not there.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "import/model.h"
#include "moves/canonical/canonical.h"
#include "moves/flatten/flatten.h"
#include "moves/fuse/move.h"
#include "ops/interpret.h"

namespace tk {
namespace {

namespace fs = std::filesystem;

fs::path models() {
  const char* shared = std::getenv("TOKAMAK_SHARED");
  return (shared != nullptr ? fs::path(shared) : fs::path(TK_SOURCE_DIR) / "../shared") / "models";
}

// A prompt of n tokens in block 1 of the cache, then one more token.
constexpr std::int64_t n_prompt = 6;

States make_states(const Graph& graph) {
  States states;
  for (const auto& v : graph.states()) {
    Dims shape = concrete(v->type.shape, {{"NB", 2}});
    states[v->name] = Tensor::zeros(v->type.dtype, shape);
  }
  return states;
}

Tensor filled(const Type& type, const SymEnv& env, const std::function<double(std::int64_t)>& f) {
  Tensor t = Tensor::empty(type.dtype, concrete(type.shape, env));
  for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, i, f(i));
  return t;
}

std::vector<Tensor> step(const Graph& graph, std::int64_t begin, std::int64_t end,
                         std::int64_t block_size) {
  const SymEnv env{{"T", end - begin}, {"B", 1}, {"MB", 1}, {"R", end - begin}};
  std::vector<Tensor> inputs;
  for (const auto& v : graph.inputs()) {
    std::function<double(std::int64_t)> f;
    auto number = [](std::int64_t x) { return static_cast<double>(x); };
    if (v->name == "input_ids")
      f = [=](std::int64_t i) { return number((begin + i) * 7 % 50 + 3); };
    if (v->name == "position_ids") f = [=](std::int64_t i) { return number(begin + i); };
    if (v->name == "slot_mapping")
      f = [=](std::int64_t i) { return number(block_size + begin + i); };
    if (v->name == "block_table") f = [](std::int64_t) { return 1.0; };
    if (v->name == "query_lens") f = [=](std::int64_t) { return number(end - begin); };
    if (v->name == "kv_lens") f = [=](std::int64_t) { return number(end); };
    if (v->name == "logit_rows") f = [=](std::int64_t i) { return number(i); };
    inputs.push_back(filled(v->type, env, f));
  }
  return inputs;
}

// Logits of the prompt and of one more token.
std::vector<Tensor> logits(const Graph& graph, const Weights& weights, std::int64_t block_size) {
  States states = make_states(graph);
  std::vector<Tensor> out;
  for (const auto& [begin, end] : {std::pair{std::int64_t{0}, n_prompt}, {n_prompt, n_prompt + 1}})
    out.push_back(
        contiguous(interpret(graph, step(graph, begin, end, block_size), weights, &states)[0]));
  return out;
}

double difference(const TensorView& a, const TensorView& b) {
  double worst = 0;
  double size = 1e-30;
  for (std::int64_t i = 0; i < b.numel(); ++i) {
    worst = std::max(worst, std::fabs(element(a, i) - element(b, i)));
    size = std::max(size, std::fabs(element(b, i)));
  }
  return worst / size;
}

struct Expected {
  const char* model;
  // How many sites each move finds on the graph that the moves before it have left; moves that are
  // not named find none.
  std::map<std::string, std::size_t> sites;
  double tolerance = 2e-5;
};

class Models : public testing::TestWithParam<Expected> {};

TEST_P(Models, MovesFindTheirSitesAndKeepTheLogits) {
  const fs::path folder = models() / GetParam().model;
  if (!fs::exists(folder / "model.pt2")) GTEST_SKIP() << "no " << folder;
  CapturedModel model = load_model(folder);
  canonicalize(model.graph);
  CachedModel cached = flatten(model.graph, &model.weights, {.block_size = 16});
  Graph& graph = cached.graph;
  canonicalize(graph);
  const std::vector<Tensor> original = logits(graph, model.weights, 16);
  std::map<std::string, std::size_t> found;
  for (const Move& move : all_moves()) {
    SCOPED_TRACE(move.name);
    const std::vector<Site> sites = move.find(graph, Target::cpu);
    const auto ok = static_cast<std::size_t>(
        std::count_if(sites.begin(), sites.end(), [](const Site& s) { return s.verdict.ok(); }));
    for (const Site& s : sites) EXPECT_TRUE(s.verdict.ok()) << s.module << ": " << s.verdict.reason;
    if (ok == 0) continue;
    found[move.name] = ok;
    apply_move(move, graph);
    graph.erase_dead();
    verify(graph, move.name);
    const std::vector<Tensor> now = logits(graph, model.weights, 16);
    for (std::size_t i = 0; i < now.size(); ++i)
      EXPECT_LE(difference(now[i], original[i]), GetParam().tolerance) << "step " << i;
  }
  EXPECT_EQ(found, GetParam().sites);
}

INSTANTIATE_TEST_SUITE_P(Captured, Models,
                         testing::Values(Expected{"llama-gqa",
                                                  {{"fuse_rms_norm", 5},
                                                   {"fuse_add_rms_norm", 4},
                                                   {"fuse_swiglu", 2},
                                                   {"fuse_rotary", 4},
                                                   {"merge_linear", 2},
                                                   {"fuse_linear_glu", 2},
                                                   {"move_logit_rows", 1}}},
                                         Expected{"llama-gqa-bf16",
                                                  {{"fuse_rms_norm", 5},
                                                   {"fuse_add_rms_norm", 4},
                                                   {"fuse_swiglu", 2},
                                                   {"fuse_rotary", 4},
                                                   {"merge_linear", 2},
                                                   {"fuse_linear_glu", 2},
                                                   {"move_logit_rows", 1}},
                                                  4e-2},
                                         Expected{"qwen3-moe",
                                                  {{"fuse_rms_norm", 9},
                                                   {"fuse_add_rms_norm", 4},
                                                   {"fuse_swiglu", 2},
                                                   {"fuse_rotary", 4},
                                                   {"merge_linear", 2},
                                                   {"fuse_moe_gate_softmax", 2},
                                                   {"fuse_moe", 2},
                                                   {"fuse_linear_glu", 2},
                                                   {"move_logit_rows", 1}}},
                                         Expected{"gpt-oss",
                                                  {{"fuse_rms_norm", 5},
                                                   {"fuse_add_rms_norm", 4},
                                                   {"fuse_clipped_swiglu", 2},
                                                   {"fuse_rotary", 4},
                                                   {"merge_linear", 2},
                                                   {"fuse_moe_gate_softmax", 2},
                                                   {"fuse_moe", 2},
                                                   {"fuse_linear_glu", 2},
                                                   {"move_logit_rows", 1}}},
                                         Expected{"deepseek-v3",
                                                  {{"fuse_rms_norm", 9},
                                                   {"fuse_add_rms_norm", 4},
                                                   {"fuse_swiglu", 3},
                                                   {"fuse_rotary", 4},
                                                   {"merge_linear", 2},
                                                   {"fuse_moe_gate", 1},
                                                   {"fuse_moe", 1},
                                                   {"fuse_moe_shared", 1},
                                                   {"absorb_mla", 2},
                                                   {"fuse_linear_glu", 3},
                                                   {"move_logit_rows", 1}}},
                                         Expected{"glm4-moe",
                                                  {{"fuse_rms_norm", 9},
                                                   {"fuse_add_rms_norm", 4},
                                                   {"fuse_swiglu", 3},
                                                   {"fuse_rotary", 4},
                                                   {"merge_linear", 2},
                                                   {"fuse_moe_gate", 1},
                                                   {"fuse_moe", 1},
                                                   {"fuse_moe_shared", 1},
                                                   {"fuse_linear_glu", 3},
                                                   {"move_logit_rows", 1}}},
                                         Expected{"gemma3-text",
                                                  {{"fuse_rms_norm", 19},
                                                   {"fuse_add_rms_norm", 6},
                                                   {"fuse_geglu", 3},
                                                   {"fuse_rotary", 6},
                                                   {"merge_linear", 3},
                                                   {"fuse_linear_glu", 3},
                                                   {"move_logit_rows", 1}}}),
                         [](const auto& info) {
                           std::string name = info.param.model;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tk

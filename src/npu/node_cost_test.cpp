#include "npu/node_cost.h"

#include <gtest/gtest.h>

namespace tk {
namespace {

TEST(NodeCost, BytesAndFlop) {
  const Graph graph = parse_graph(R"(
graph @g(%x: bf16[T, 4096]) {
  weight %w: bf16[4096, 4096] "w"
  %0 = aten.linear(%x, %w)
  return %0
})");
  const Node* linear = *nodes(graph).begin();
  const Cost one = cost_of(*linear, {{"T", 1}}, {});
  EXPECT_EQ(one.read, 4096.0 * 4096 * 2 + 4096 * 2);
  EXPECT_EQ(one.written, 4096.0 * 2);
  EXPECT_EQ(cost_of(*linear, {{"T", 8192}}, {}).cube, 2.0 * 8192 * 4096 * 4096);
  EXPECT_EQ(known_at_load(graph).size(), 1U);
}

TEST(NodeCost, ACacheIsReadAsFarAsItIsFilled) {
  const Graph graph = parse_graph(R"(
graph @g(%q: bf16[T, 8, 128], %k: bf16[T, 2, 128], %slots: i64[T], %table: i32[B, MB], %ql: i32[B], %kl: i32[B]) {
  state %c: bf16[NB, 128, 2, 128] "k"
  state %v: bf16[NB, 128, 2, 128] "v"
  %0 = tk.cache_write(%c, %k, %slots)
  %1 = tk.paged_attention(%q, %0, %v, %table, %ql, %kl) {scale=0.125}
  return %1
})");
  const SymEnv env{{"T", 4}, {"B", 4}, {"MB", 64}, {"NB", 1000}};
  std::vector<const Node*> all;
  for (const Node* n : nodes(graph)) all.push_back(n);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_LT(cost_of(*all[0], env, {4096}).written, 10e3);
  EXPECT_NEAR(cost_of(*all[1], env, {4096}).read, 4.0 * 4096 * 2 * 2 * 128 * 2, 20e3);
}

}  // namespace
}  // namespace tk

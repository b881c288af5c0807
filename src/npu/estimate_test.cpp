#include "npu/estimate.h"

#include <gtest/gtest.h>

namespace tk {
namespace {

TEST(Estimate, BytesFlopAndFloors) {
  const Graph graph = parse_graph(R"(
graph @g(%x: bf16[T, 4096]) {
  weight %w: bf16[4096, 4096] "w"
  %0 = aten.linear(%x, %w)
  %1 = aten.relu(%0)
  %2 = aten.reshape(%1) {shape=[T, 2, 2048]}
  return %2
})");
  const Device& d = *find_device("a2");
  const Estimate one = estimate(graph, d, {{"T", 1}}, {});
  ASSERT_EQ(one.kernels.size(), 2U);  // the view is free
  // One row: the weight's 32 MiB decide. T rows: 2 * T * 4096 * 4096 flop.
  EXPECT_NEAR(one.kernels[0].seconds, (4096.0 * 4096 * 2 + 4 * 4096) / d.memory_rate, 1e-9);
  EXPECT_EQ(one.kernels[1].seconds, d.vector_floor_s);
  const Estimate many = estimate(graph, d, {{"T", 8192}}, {});
  EXPECT_NEAR(many.kernels[0].seconds, 2.0 * 8192 * 4096 * 4096 / d.cube_flops, 1e-9);
  EXPECT_DOUBLE_EQ(many.seconds, many.kernels[0].seconds + many.kernels[1].seconds);
}

TEST(Estimate, ACacheIsReadAsFarAsItIsFilled) {
  const Graph graph = parse_graph(R"(
graph @g(%q: bf16[T, 8, 128], %k: bf16[T, 2, 128], %slots: i64[T], %table: i32[B, MB], %ql: i32[B], %kl: i32[B]) {
  state %c: bf16[NB, 128, 2, 128] "k"
  state %v: bf16[NB, 128, 2, 128] "v"
  %0 = tk.cache_write(%c, %k, %slots)
  %1 = tk.paged_attention(%q, %0, %v, %table, %ql, %kl) {scale=0.125}
  return %1
})");
  const SymEnv env{{"T", 4}, {"B", 4}, {"MB", 64}, {"NB", 1000}};
  const Estimate e = estimate(graph, *find_device("a3"), env, {4096});
  ASSERT_EQ(e.kernels.size(), 2U);
  EXPECT_LT(e.kernels[0].cost.written, 10e3);
  EXPECT_NEAR(e.kernels[1].cost.read, 4.0 * 4096 * 2 * 2 * 128 * 2, 20e3);
}

}  // namespace
}  // namespace tk

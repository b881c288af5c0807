#include "trial/requests.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tk {
namespace {

std::vector<OperatorRequest> requests(std::string_view text, std::int64_t tokens = 4096) {
  const Graph g = parse_graph(text);
  return operator_requests(g, "prefill", NpuClock("a2"), {tokens, 1, tokens, 128});
}

// FU-50: the chain, where it is, what one kernel saves.
TEST(Requests, AChainWithoutAnOperator) {
  const auto found = requests(R"(graph @caps(%x: bf16[T, 8192], %y: bf16[T, 8192]) {
  weight %w: bf16[8192, 8192] "model.layers.0.o.weight"
  %0 = aten.linear(%x, %w)  @"model.layers.0.attn.o" (m.py:3)
  %1 = aten.mul(%0) {other=0.02}  @"model.layers.0.attn" (m.py:4)
  %2 = aten.tanh(%1)  @"model.layers.0.attn" (m.py:5)
  %3 = aten.mul(%2) {other=50.0}  @"model.layers.0.attn" (m.py:6)
  %4 = aten.mul(%y) {other=0.02}  @"model.layers.1.attn" (m.py:4)
  %5 = aten.tanh(%4)  @"model.layers.1.attn" (m.py:5)
  %6 = aten.mul(%5) {other=50.0}  @"model.layers.1.attn" (m.py:6)
  return %3, %6
})");
  ASSERT_EQ(found.size(), 1U);
  const OperatorRequest& r = found[0];
  EXPECT_EQ(r.name, "mul_tanh_mul");
  EXPECT_EQ(r.module, "model.layers.*.attn");
  EXPECT_EQ(r.where, "m.py:4");
  EXPECT_EQ(r.places, 2);
  EXPECT_EQ(r.kernels, 3);
  EXPECT_EQ(r.bytes, 4.0 * 4096 * 8192 * 2);  // two values between, written and read
  EXPECT_GT(r.after_s, 0);
  EXPECT_LT(r.after_s, r.before_s);
  EXPECT_EQ(r.chain, R"(graph @chain(%x0: bf16[T, 8192]) {
  %0 = aten.mul(%x0) {other=0.02}
  %1 = aten.tanh(%0)
  %2 = aten.mul(%1) {other=50.0}
  return %2
}
)");
}

TEST(Requests, BranchesThatMeetAreOneChain) {
  const auto found =
      requests(R"(graph @rope(%x: bf16[T, 8192], %y: bf16[T, 8192], %c: bf16[T, 8192]) {
  %0 = aten.mul(%x, %c)
  %1 = aten.mul(%y, %c)
  %2 = aten.neg(%1)
  %3 = aten.cat(%0, %2) {dim=1}
  return %3
})");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kernels, 4);
}

TEST(Requests, WhatOneKernelCouldNotDo) {
  // A path from the first to the last leads through a product.
  const auto found = requests(R"(graph @around(%x: bf16[T, 8192]) {
  weight %w: bf16[8192, 8192] "w"
  %0 = aten.tanh(%x)
  %1 = aten.linear(%0, %w)
  %2 = aten.add(%0, %1)
  return %2
})");
  EXPECT_TRUE(found.empty());
}

TEST(Requests, FusedOperatorsAreNotAskedFor) {
  const auto found = requests(R"(graph @fused(%x: bf16[T, 8192]) {
  weight %g: bf16[8192] "g"
  %0, %1 = npu.npu_rms_norm(%x, %g)
  %2 = aten.tanh(%0)
  return %2
})");
  EXPECT_TRUE(found.empty());
}

TEST(Requests, SmallGainsAreNotWorthIt) {
  const std::string_view text = R"(graph @small(%x: bf16[T, 64], %y: bf16[T, 65536]) {
  weight %w: bf16[65536, 65536] "w"
  %0 = aten.mul(%x) {other=0.02}
  %1 = aten.tanh(%0)
  %2 = aten.linear(%y, %w)
  return %1, %2
})";
  EXPECT_TRUE(requests(text, 1).empty());
}

// An attention with a softcap: several kernels of aten, one of ours.
TEST(Requests, AnAttentionWithoutAnOperator) {
  const Graph g = parse_graph(
      "graph @attention(%q: bf16[T, 4, 128], %table: i32[B, MB], %ends: i32[B], %lens: i32[B]) {\n"
      R"(  state %k: bf16[NB, 128, 4, 128] "k"
  state %v: bf16[NB, 128, 4, 128] "v"
  %0 = tk.paged_attention(%q, %k, %v, %table, %ends, %lens) {scale=0.1, softcap=50.0}
  return %0
})");
  const auto found = operator_requests(g, "decode", NpuClock("a2"), {16, 16, 4096, 128});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, "paged_attention");
  EXPECT_GT(found[0].kernels, 1);
  EXPECT_GT(found[0].gain_s(), 0);
}

}  // namespace
}  // namespace tk

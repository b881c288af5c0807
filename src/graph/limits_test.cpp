#include "graph/limits.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/limit_expr.h"

namespace tk {
namespace {

struct Call {
  explicit Call(const std::string& body) : graph(parse_graph(body)), args(graph.first()->args()) {}
  LimitState state(std::string_view expr, std::map<std::string, Attr, std::less<>> facts = {},
                   std::span<const TensorView> values = {}) const {
    const Limit limit{"test.id", expr};
    return check_limit({args, "a2", values, std::move(facts)}, limit).state;
  }
  Graph graph;
  Args args;
};

const char* const gate = R"(
graph @g(%x: f32[T, 96], %b: f32[96]) {
  %0, %1, %2 = npu.npu_moe_gating_top_k(%x, %b) {k=8, k_group=4, group_count=48}
  return %0
})";

TEST(Limits, TheLanguage) {  // FU-41
  const Call c(gate);
  for (const char* holds : {"x.shape[-1] == 96",
                            "x.ndim == 2 and bias.ndim == 1",
                            "not (k > 8)",
                            "1 <= k <= 8 < 9",
                            "x.dtype in (bf16, fp32)",
                            "k not in (1, 2)",
                            "E // g * kg == 8",
                            "E % 5 == 1",
                            "bias is not None",
                            "x.shape[1:] == bias.shape",
                            "(k if g == 48 else 0) == 8",
                            "x.shape[:-1] + (96,) == x.shape",
                            "max(1, k, 3) == 8",
                            "ceil(k / 3) == 3",
                            "prod(bias.shape) == 96",
                            "sum((1, 2, 3)) == 6",
                            "len(x.shape) == 2",
                            "-k == 0 - 8",
                            "unique((1, 2)) and not unique((2, 2))",
                            "nondecreasing((1, 1, 2))",
                            "not increasing((1, 1))",
                            "diff((2, 5)) == (2, 3)",
                            "eps < 1e-10",
                            "norm_type == 0",
                            "not out_flag",
                            "x.itemsize == 4"})
    EXPECT_EQ(c.state(holds), LimitState::holds) << holds;
  for (const char* violated : {"k == 9", "x.dtype == bf16", "x.shape[5] == 1", "bias is None"})
    EXPECT_EQ(c.state(violated), LimitState::violated) << violated;
  for (const char* unknown : {"x.shape[0] <= 512", "graph", "max(bias) < 1"})
    EXPECT_EQ(c.state(unknown), LimitState::unknown) << unknown;
  EXPECT_EQ(c.state("world == 2 or k == 8"), LimitState::holds);
  EXPECT_EQ(c.state("world == 2 and k == 9"), LimitState::violated);
  EXPECT_THROW(c.state("soc2"), InternalError);  // an unknown symbol is named
  for (const char* malformed : {"", "(", "k ==", "k k", "\"open", "f(1", "x.shape[", "1 if 2"})
    EXPECT_THROW(parse_limit(malformed), InternalError) << malformed;
}

TEST(Limits, ContentsCountWhereTheyAreKnown) {
  const Call c(gate);
  const Tensor b = Tensor::of({0.5F, 2.0F});
  const std::array<TensorView, 2> values{TensorView(), b};
  EXPECT_EQ(c.state("max(bias) < 1", {}, values), LimitState::violated);
  EXPECT_EQ(c.state("bias[-1] == 2", {}, values), LimitState::holds);
}

TEST(Limits, WhatIsViolatedIsSaidWithItsValues) {  // FU-07
  const Call c(gate);
  std::string found;
  for (const LimitResult& r : check_limits({c.args, "a3", {}, {}}))
    if (r.state == LimitState::violated) found += cat(r.limit->id, ": ", r.values, ";");
  EXPECT_EQ(found, "moe_gating_top_k.g: E = 96, g = 48;");
}

TEST(Limits, TheSmallestLegalChange) {  // FU-64
  const Call c(gate);
  const LimitScope scope{c.args, "a3", {}, {}};
  for (const LimitResult& r : check_limits(scope)) {
    if (r.state != LimitState::violated) continue;
    const auto change = smallest_change(scope, *r.limit);
    ASSERT_TRUE(change);
    EXPECT_EQ(change->name, "g");
    EXPECT_EQ(change->from, "48");
    EXPECT_EQ(change->to, "32");
  }
}

}  // namespace
}  // namespace tk

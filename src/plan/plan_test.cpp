#include "plan/plan.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error_test_util.h"
#include "plan/bind.h"

namespace tk {
namespace {

Tensor filled(DType dtype, const Dims& shape, double value) {
  Tensor t = Tensor::empty(dtype, shape);
  for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, i, value + static_cast<double>(i));
  return t;
}

TEST(plan, what_depends_on_weights_only_is_computed_once) {
  Graph g = parse_graph(R"(
graph @f(%x: f32[T, 4]) {
  weight %w0: f32[4] "a"
  weight %w1: f32[4] "b"
  %0 = aten.mul(%w0, %w1)
  %1 = aten.add(%0) {other=1}
  %2 = aten.mul(%x, %1)
  return %2
})");
  const Weights weights{{"a", filled(DType::f32, {4}, 1)}, {"b", filled(DType::f32, {4}, 2)}};
  const Plan plan = make_plan(std::move(g), weights);
  EXPECT_EQ(plan.n_once, 2u);
  ASSERT_EQ(plan.steps.size(), 1u);
  const auto merged = static_cast<std::size_t>(plan.steps[0].inputs[1]);
  ASSERT_NE(plan.constants[merged].data, nullptr);
  EXPECT_EQ(element(plan.constants[merged], 2), 3 * 4 + 1);
  // Only what a step reads is kept.
  int kept = 0;
  for (const Tensor& t : plan.constants) kept += t.data != nullptr ? 1 : 0;
  EXPECT_EQ(kept, 1);
  EXPECT_EQ(plan.once_bytes, 16);
}

TEST(plan, two_plans_share_what_is_computed_once) {
  const char* text = R"(
graph @f(%x: f32[T, 4]) {
  weight %w0: f32[4] "a"
  %0 = aten.mul(%w0, %w0)
  %1 = aten.mul(%0) {other=2}
  %2 = aten.mul(%x, %1)
  return %2
})";
  const Weights weights{{"a", filled(DType::f32, {4}, 1)}};
  ConstantPool pool;
  const Plan a = make_plan(parse_graph(text), weights, &pool);
  const Plan b = make_plan(parse_graph(text), weights, &pool);
  const auto data = [](const Plan& p) {
    return p.constants[static_cast<std::size_t>(p.steps[0].inputs[1])].data;
  };
  EXPECT_EQ(data(a), data(b));
}

TEST(plan, an_attribute_with_a_symbol_is_not_constant) {
  Graph g = parse_graph(R"(
graph @f(%x: f32[T]) {
  weight %w0: f32[4] "a"
  %0 = aten.mul(%w0) {other=T}
  return %0
})");
  const Plan plan = make_plan(std::move(g), {{"a", filled(DType::f32, {4}, 1)}});
  EXPECT_EQ(plan.n_once, 0u);
}

TEST(plan, weights_that_are_missing_or_of_another_type_are_named) {
  const char* text = R"(
graph @f(%x: f32[4]) {
  weight %w0: f32[4] "a"
  %0 = aten.mul(%x, %w0)
  return %0
})";
  EXPECT_EQ(code_of([&] { make_plan(parse_graph(text), {}); }), "TK0503");
  EXPECT_EQ(code_of([&] { make_plan(parse_graph(text), {{"a", filled(DType::f32, {3}, 0)}}); }),
            "TK0504");
  EXPECT_EQ(code_of([&] { make_plan(parse_graph(text), {{"a", filled(DType::bf16, {4}, 0)}}); }),
            "TK0504");
}

TEST(bind, states_are_written_where_they_lie) {
  Graph g = parse_graph(R"(
graph @f(%x: f32[T, 2, 8], %slots: i64[T]) {
  state %s0: f32[NB, 4, 2, 8] "layers.0.key"
  %0 = aten.add(%x) {other=1}
  %1 = tk.cache_write(%s0, %0, %slots)
  return %1
})");
  const Plan plan = make_plan(std::move(g), {});
  const Tensor cache = Tensor::zeros(DType::f32, {3, 4, 2, 8});
  const std::vector<TensorView> states{cache};
  const BoundPlan b = bind_plan(plan, {{"T", 5}, {"NB", 3}}, states);
  EXPECT_EQ(b.launches.size(), 2u);
  EXPECT_EQ(b.launches[1].copies, 0U);
  EXPECT_EQ(b.output(0).data, cache.data);
  EXPECT_THROW(bind_plan(plan, {{"T", 5}, {"NB", 4}}, states), UserError);
}

TEST(bind, a_value_needed_later_is_copied_before_it_is_updated) {
  Graph g = parse_graph(R"(
graph @f(%x: f32[3, 4, 2, 8], %y: f32[T, 2, 8], %slots: i64[T]) {
  %0 = aten.add(%x) {other=1}
  %1 = tk.cache_write(%0, %y, %slots)
  %2 = tk.cache_write(%1, %y, %slots)
  %3 = aten.add(%0, %2)
  return %3
})");
  const Plan plan = make_plan(std::move(g), {});
  const BoundPlan b = bind_plan(plan, {{"T", 5}}, {});
  ASSERT_EQ(b.launches.size(), 4u);
  EXPECT_EQ(b.launches[1].copies, 1U);  // %0 is read by %3
  EXPECT_EQ(b.launches[2].copies, 0U);  // %1 is not
}

// No two storages that are alive together may overlap, and the arena must hold all of them.
TEST(arena, values_that_live_together_never_overlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int n = 1 + static_cast<int>(random() % 60);
    std::vector<Storage> s(static_cast<std::size_t>(n));
    std::int64_t sum = 0;
    for (int i = 0; i < n; ++i) {
      auto& one = s[static_cast<std::size_t>(i)];
      one.bytes = 64 * (1 + static_cast<std::int64_t>(random() % 40));
      one.first = static_cast<int>(random() % 50) - 1;
      one.last = one.first + static_cast<int>(random() % 12);
      sum += one.bytes;
    }
    const std::int64_t total = lay_out(s);
    EXPECT_LE(total, sum);
    std::int64_t most_alive = 0;
    for (int t = -1; t < 70; ++t) {
      std::int64_t alive = 0;
      for (const auto& one : s) alive += one.first <= t && t <= one.last ? one.bytes : 0;
      most_alive = std::max(most_alive, alive);
    }
    EXPECT_GE(total, most_alive);
    for (int i = 0; i < n; ++i) {
      const auto& a = s[static_cast<std::size_t>(i)];
      EXPECT_EQ(a.offset % arena_alignment, 0);
      EXPECT_LE(a.offset + a.bytes, total);
      for (int j = 0; j < i; ++j) {
        const auto& b = s[static_cast<std::size_t>(j)];
        const bool together = a.first <= b.last && b.first <= a.last;
        const bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
        EXPECT_TRUE(!together || apart) << "round " << round << ": " << j << " and " << i;
      }
    }
  }
}

TEST(arena, a_chain_needs_two_buffers) {
  std::vector<Storage> s;
  for (int i = 0; i < 100; ++i) s.push_back({1024, 0, i, i + 1});
  EXPECT_EQ(lay_out(s), 2048);
}

}  // namespace
}  // namespace tk

#include "cpu/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"

namespace tk {
namespace {

std::map<std::int64_t, double> frequencies(const Tensor& logits, const SamplingParams& params,
                                           int n = 20000) {
  Sampler s;
  std::map<std::int64_t, double> f;
  for (int i = 0; i < n; ++i) f[s.sample(logits, params, static_cast<std::uint64_t>(i))] += 1.0 / n;
  return f;
}

const Tensor log_probs =
    Tensor::of({std::log(0.1F), std::log(0.5F), std::log(0.1F), std::log(0.3F)});

TEST(sampling, greedy_takes_the_first_of_the_best) {
  Sampler s;
  EXPECT_EQ(s.sample(Tensor::of({0, 3, 3, 1}), {}, 0), 1);
  EXPECT_EQ(s.sample(Tensor::of({-INFINITY, -INFINITY}), {}, 0), 0);
  EXPECT_EQ(s.sample(to_dtype(Tensor::of({0, 1, 5, 1}), DType::bf16), {}, 0), 2);
}

TEST(sampling, frequencies_are_the_probabilities) {
  const auto f = frequencies(log_probs, {.temperature = 1, .seed = 3});
  EXPECT_NEAR(f.at(0), 0.1, 0.01);
  EXPECT_NEAR(f.at(1), 0.5, 0.015);
  EXPECT_NEAR(f.at(2), 0.1, 0.01);
  EXPECT_NEAR(f.at(3), 0.3, 0.015);
}

TEST(sampling, temperature_sharpens) {
  // p^2 normalised: 0.01, 0.25, 0.01, 0.09 of 0.36
  const auto f = frequencies(log_probs, {.temperature = 0.5});
  EXPECT_NEAR(f.at(1), 0.25 / 0.36, 0.015);
  EXPECT_NEAR(f.at(3), 0.09 / 0.36, 0.015);
}

TEST(sampling, top_k_keeps_the_k_best_lower_ids_first) {
  const auto two = frequencies(log_probs, {.temperature = 1, .top_k = 2});
  EXPECT_EQ(two.size(), 2u);
  EXPECT_NEAR(two.at(1), 0.5 / 0.8, 0.015);
  const auto three = frequencies(log_probs, {.temperature = 1, .top_k = 3});
  EXPECT_EQ(three.count(2), 0u);  // as likely as 0, which comes first
  EXPECT_EQ(frequencies(log_probs, {.temperature = 9, .top_k = 1}).size(), 1u);
}

TEST(sampling, top_p_keeps_what_reaches_p) {
  const auto f = frequencies(log_probs, {.temperature = 1, .top_p = 0.7});
  EXPECT_EQ(f.size(), 2u);  // 0.5 is not enough, 0.5 + 0.3 is
  EXPECT_NEAR(f.at(1), 0.5 / 0.8, 0.015);
  EXPECT_EQ(frequencies(log_probs, {.temperature = 1, .top_p = 0.3}).size(), 1u);
  EXPECT_EQ(frequencies(log_probs, {.temperature = 1, .top_p = 0.95}).size(), 4u);
}

TEST(sampling, a_seed_repeats_and_another_differs) {
  Tensor flat = Tensor::zeros(DType::f32, {1000});
  Sampler s;
  int same = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const SamplingParams p{.temperature = 1, .seed = 5};
    EXPECT_EQ(s.sample(flat, p, i), Sampler().sample(flat, p, i));
    same += s.sample(flat, p, i) == s.sample(flat, {.temperature = 1, .seed = 6}, i) ? 1 : 0;
  }
  EXPECT_LT(same, 5);
}

TEST(sampling, uniform_is_uniform_and_below_one) {
  double sum = 0;
  double squares = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double u = uniform(1, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
  EXPECT_NEAR(squares / 100000, 1.0 / 3, 0.005);
}

TEST(sampling, nan_and_infinity) {
  Sampler s;
  for (const double temperature : {0.0, 1.0}) {
    try {
      s.sample(Tensor::of({1, NAN, 2}), {.temperature = temperature}, 0);
      FAIL();
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), "TK0517");
    }
    EXPECT_THROW(s.sample(Tensor::of({NAN, 1}), {.temperature = temperature}, 0), UserError);
    EXPECT_EQ(s.sample(Tensor::of({1, INFINITY, 2}), {.temperature = temperature}, 0), 1);
    EXPECT_EQ(s.sample(Tensor::of({-INFINITY, 1, -INFINITY}), {.temperature = temperature}, 0), 1);
  }
}

TEST(sampling, parameters_out_of_range_are_named) {
  const auto message = [](const SamplingParams& p) {
    try {
      check(p);
    } catch (const UserError& e) {
      return e.code() + " " + e.message();
    }
    return std::string("none");
  };
  EXPECT_EQ(message({}), "none");
  EXPECT_EQ(message({.temperature = -1}), "TK0516 temperature must be 0 or more, got -1");
  EXPECT_NE(message({.temperature = NAN}), "none");
  EXPECT_NE(message({.temperature = INFINITY}), "none");
  EXPECT_EQ(message({.top_k = -1}), "TK0516 top_k must be 0 or more, got -1");
  EXPECT_EQ(message({.top_p = 0}), "TK0516 top_p must be in (0, 1], got 0");
  EXPECT_NE(message({.top_p = 1.5}), "none");
}

}  // namespace
}  // namespace tk

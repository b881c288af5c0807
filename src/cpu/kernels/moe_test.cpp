#include "cpu/kernels/moe.h"

#include <algorithm>
#include <numeric>

#include "cpu/kernels/linear.h"
#include "cpu/kernels/test_util.h"

namespace tk::kernels::test {
namespace {

struct Choice {
  std::vector<std::int32_t> ids;
  std::vector<double> weights;
};

// The definition in moe.h, by sorting.
Choice gate_ref(const MoeGateArgs& a, const Tensor& logits, std::int64_t t) {
  const std::int64_t n = a.n_experts, size = n / a.groups;
  std::vector<double> score, choice;
  double total = 0;
  for (std::int64_t e = 0; e < n; ++e) total += std::exp(element(logits, t * n + e));
  for (std::int64_t e = 0; e < n; ++e) {
    const double x = element(logits, t * n + e);
    score.push_back(a.score == GateScore::sigmoid   ? 1 / (1 + std::exp(-x))
                    : a.score == GateScore::softmax ? std::exp(x) / total
                                                    : x);
    choice.push_back(score.back() + (a.bias != nullptr ? a.bias[e] : 0));
  }
  std::vector<std::pair<double, std::int64_t>> groups;
  for (std::int64_t g = 0; g < a.groups; ++g) {
    std::vector<double> c(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(c.rbegin(), c.rend());
    groups.emplace_back(-(a.group_score == GroupScore::top2_sum && size > 1 ? c[0] + c[1] : c[0]),
                        g);
  }
  std::sort(groups.begin(), groups.end());
  std::vector<std::int32_t> order;
  for (std::int64_t g = 0; g < std::min(a.groups, a.top_groups); ++g)
    for (std::int64_t e = 0; e < size; ++e)
      order.push_back(
          static_cast<std::int32_t>(groups[static_cast<std::size_t>(g)].second * size + e));
  std::sort(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t p, std::int32_t q) {
    return choice[static_cast<std::size_t>(p)] > choice[static_cast<std::size_t>(q)];
  });
  Choice c;
  double chosen = 0;
  for (std::int64_t j = 0; j < a.top_k; ++j) {
    c.ids.push_back(order[static_cast<std::size_t>(j)]);
    double w = score[static_cast<std::size_t>(c.ids.back())];
    if (a.score == GateScore::softmax_of_top_k) w = std::exp(w);
    c.weights.push_back(w);
    chosen += w;
  }
  for (double& w : c.weights) {
    if (a.renormalize || a.score == GateScore::softmax_of_top_k) w /= chosen;
    w *= a.scale;
  }
  return c;
}

TEST(moe, gate) {
  for (GateScore score : {GateScore::softmax, GateScore::sigmoid, GateScore::softmax_of_top_k})
    for (DType t : float_types)
      for (std::int64_t groups : {1, 4})
        for (GroupScore group_score : {GroupScore::max, GroupScore::top2_sum})
          for (bool renormalize : {false, true}) {
            const std::int64_t tokens = 9, n = 16, k = 3;
            const Tensor logits = random_tensor(t, {tokens, n}, 4);
            const Tensor bias = random_tensor(DType::f32, {n}, 0.2);
            std::vector<float> weights(static_cast<std::size_t>(tokens * k));
            std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * k));
            MoeGateArgs a;
            a.logits = logits.data, a.dtype = t, a.tokens = tokens, a.n_experts = n;
            a.logits_stride = n, a.score = score, a.groups = groups, a.top_groups = 2;
            a.bias = score == GateScore::sigmoid ? bias.as<float>() : nullptr;
            a.group_score = group_score, a.top_k = k, a.renormalize = renormalize, a.scale = 2.5F;
            a.weights = weights.data(), a.ids = ids.data();
            std::vector<char> scratch(moe_gate_scratch_bytes(a, 2));
            a.scratch = scratch.data();
            run(moe_gate, a, 2);
            for (std::int64_t i = 0; i < tokens; ++i) {
              const Choice want = gate_ref(a, logits, i);
              for (std::int64_t j = 0; j < k; ++j) {
                const auto at = static_cast<std::size_t>(i * k + j),
                           jj = static_cast<std::size_t>(j);
                EXPECT_EQ(ids[at], want.ids[jj]);
                expect_close(weights[at], want.weights[jj], 1e-5, 1e-7, "weight");
              }
            }
          }
}

// Sort, both projections of each expert, finalize: against the sum over experts as it is written.
TEST(moe, experts_end_to_end) {
  on_each_target([](const std::string& target) {
    for (WeightLayout layout : {WeightLayout::n_k, WeightLayout::k_n})
      for (DType t : {DType::f32, DType::bf16})
        for (std::int64_t tokens : {1, 5, 90}) {
          const std::int64_t n_experts = 5, k = 2, d = 24, f = 20, pairs = tokens * k;
          const bool n_k = layout == WeightLayout::n_k;
          const Tensor x = random_tensor(t, {tokens, d});
          const Tensor up = random_tensor(t, {n_experts, 2 * f * d});
          const Tensor down = random_tensor(t, {n_experts, d * f});
          const Tensor bias = random_tensor(t, {n_experts, 2 * f});
          const Tensor residual = random_tensor(DType::f32, {tokens, d});
          std::vector<std::int32_t> ids, pair_at(static_cast<std::size_t>(pairs)), places = pair_at;
          std::vector<std::int32_t> offsets(static_cast<std::size_t>(n_experts + 1));
          std::vector<float> weights;
          for (std::int64_t i = 0; i < tokens; ++i) {
            ids.push_back(i == 3 ? -1 : static_cast<std::int32_t>(i * 7 % 3));  // expert 3: never
            ids.push_back(static_cast<std::int32_t>(i == 4 ? n_experts : 4));
            weights.push_back(0.25F + static_cast<float>(i % 4));
            weights.push_back(0.5F);
          }
          MoeSortArgs s{ids.data(),    tokens,        k, n_experts, pair_at.data(),
                        places.data(), offsets.data()};
          run(moe_sort, s, 2);
          EXPECT_EQ(offsets[3], offsets[4]);
          const std::int64_t used = offsets[static_cast<std::size_t>(n_experts)];
          const Tensor h = Tensor::zeros(t, {pairs, f}), z = Tensor::zeros(DType::f32, {pairs, d});
          GroupedLinearArgs g;
          g.linear.x = x.data, g.linear.x_dtype = t, g.linear.x_stride = d;
          g.linear.w = up.data, g.linear.w_dtype = t, g.linear.w_stride = n_k ? d : 2 * f;
          g.linear.bias = bias.data, g.linear.bias_dtype = t;
          g.linear.y = h.data, g.linear.y_dtype = t, g.linear.y_stride = f;
          g.linear.layout = layout, g.linear.m = used, g.linear.n = 2 * f, g.linear.k = d;
          g.linear.gated = true;
          g.n_experts = n_experts, g.w_expert_stride = 2 * f * d, g.bias_expert_stride = 2 * f;
          g.offsets = offsets.data(), g.x_rows = pair_at.data(), g.x_rows_divisor = k;
          const Tensor scratch = Tensor::empty(
              DType::u8, {static_cast<std::int64_t>(grouped_linear_scratch_bytes(g, 2)) + 64});
          g.linear.scratch = scratch.data;
          run(grouped_linear, g, 2);
          GroupedLinearArgs o = g;
          o.linear.x = h.data, o.linear.x_stride = f, o.linear.w = down.data;
          o.linear.w_stride = n_k ? f : d, o.linear.bias = nullptr, o.linear.gated = false;
          o.linear.y = z.data, o.linear.y_dtype = DType::f32, o.linear.y_stride = d;
          o.linear.n = d, o.linear.k = f;
          o.w_expert_stride = d * f, o.x_rows = nullptr, o.x_rows_divisor = 1;
          run(grouped_linear, o, 2);
          const Tensor y = Tensor::zeros(DType::f32, {tokens, d});
          MoeFinalizeArgs fin;
          fin.x = z.data, fin.weights = weights.data(), fin.place_of_pair = places.data();
          fin.residual = residual.data, fin.y = y.data, fin.tokens = tokens, fin.top_k = k,
          fin.d = d;
          fin.x_stride = fin.residual_stride = fin.y_stride = d;
          run(moe_finalize, fin, 2);

          const auto at = [&](const Tensor& w, std::int64_t e, std::int64_t row, std::int64_t col,
                              std::int64_t n_rows, std::int64_t n_cols) {
            return element(w,
                           e * n_rows * n_cols + (n_k ? row * n_cols + col : col * n_rows + row));
          };
          for (std::int64_t i = 0; i < tokens; ++i) {
            std::vector<double> want;
            for (std::int64_t c = 0; c < d; ++c) want.push_back(element(residual, i * d + c));
            for (std::int64_t j = 0; j < k; ++j) {
              const std::int32_t e = ids[static_cast<std::size_t>(i * k + j)];
              if (e < 0 || e >= n_experts) continue;
              for (std::int64_t q = 0; q < f; ++q) {
                double gate = element(bias, e * 2 * f + q), u = element(bias, e * 2 * f + f + q);
                for (std::int64_t c = 0; c < d; ++c) {
                  gate += at(up, e, q, c, 2 * f, d) * element(x, i * d + c);
                  u += at(up, e, f + q, c, 2 * f, d) * element(x, i * d + c);
                }
                const double v = gate / (1 + std::exp(-gate)) * u;
                for (std::int64_t c = 0; c < d; ++c)
                  want[static_cast<std::size_t>(c)] +=
                      static_cast<double>(weights[static_cast<std::size_t>(i * k + j)]) * v *
                      at(down, e, c, q, d, f);
              }
            }
            for (std::int64_t c = 0; c < d; ++c)
              expect_close(element(y, i * d + c), want[static_cast<std::size_t>(c)],
                           t == DType::f32 ? 1e-5 : 2e-2, t == DType::f32 ? 2e-5 : 0.3, target,
                           " tokens ", tokens, " at ", i, ",", c);
            if (::testing::Test::HasFailure()) return;
          }
        }
  });
}

}  // namespace
}  // namespace tk::kernels::test

// Gate and sort are scalar: a few hundred scores per token. The large part of routed experts is
// grouped_linear.
#include "cpu/kernels/moe.h"

#include <cmath>
#include <limits>

namespace tk::kernels {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

float read(DType dtype, const void* p, std::int64_t i) {
  if (dtype == DType::bf16) return to_float(static_cast<const bf16*>(p)[i]);
  if (dtype == DType::f16) return to_float(static_cast<const f16*>(p)[i]);
  return static_cast<const float*>(p)[i];
}

void score_experts(const MoeGateArgs& a, std::int64_t t, float* score) {
  float max = minus_infinity, total = 0.0F;
  for (std::int64_t e = 0; e < a.n_experts; ++e) {
    score[e] = read(a.dtype, a.logits, t * a.logits_stride + e);
    max = std::max(max, score[e]);
  }
  if (a.score == GateScore::softmax_of_top_k) return;  // later, over the chosen
  for (std::int64_t e = 0; e < a.n_experts; ++e) {
    score[e] = a.score == GateScore::sigmoid ? 1.0F / (1.0F + std::exp(-score[e]))
                                             : std::exp(score[e] - max);
    total += score[e];
  }
  if (a.score == GateScore::softmax)
    for (std::int64_t e = 0; e < a.n_experts; ++e) score[e] /= total;
}

// Leaves only the best groups in `choice`: the experts of the others get -inf.
void limit_groups(const MoeGateArgs& a, float* choice, float* group) {
  const std::int64_t size = a.n_experts / a.groups;
  for (std::int64_t g = 0; g < a.groups; ++g) {
    float first = minus_infinity, second = minus_infinity;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
      if (choice[e] > first) {
        second = first;
        first = choice[e];
      } else if (choice[e] > second) {
        second = choice[e];
      }
    }
    group[g] = a.group_score == GroupScore::top2_sum && size > 1 ? first + second : first;
  }
  for (std::int64_t g = 0; g < a.groups; ++g) {
    std::int64_t better = 0;
    for (std::int64_t o = 0; o < a.groups; ++o)
      better += group[o] > group[g] || (group[o] == group[g] && o < g);
    if (better < a.top_groups) continue;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) choice[e] = minus_infinity;
  }
}

void choose(const MoeGateArgs& a, float* choice, const float* score, float* weights,
            std::int32_t* ids) {
  float total = 0.0F, max = minus_infinity;
  for (std::int64_t j = 0; j < a.top_k; ++j) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < a.n_experts; ++e) {
      bool taken = false;
      for (std::int64_t i = 0; i < j; ++i) taken |= ids[i] == e;
      if (!taken && (best < 0 || choice[e] > choice[best])) best = e;
    }
    ids[j] = static_cast<std::int32_t>(best);
    weights[j] = score[best];
    max = std::max(max, score[best]);
  }
  if (a.score == GateScore::softmax_of_top_k)
    for (std::int64_t j = 0; j < a.top_k; ++j) weights[j] = std::exp(weights[j] - max);
  for (std::int64_t j = 0; j < a.top_k; ++j) total += weights[j];
  const bool divide = a.renormalize || a.score == GateScore::softmax_of_top_k;
  for (std::int64_t j = 0; j < a.top_k; ++j)
    weights[j] = (divide ? weights[j] / (total + 1e-20F) : weights[j]) * a.scale;
}

}  // namespace

std::size_t moe_gate_scratch_bytes(const MoeGateArgs& a, int n_threads) {
  return static_cast<std::size_t>((2 * a.n_experts + a.groups) * n_threads) * sizeof(float);
}

void moe_gate(const MoeGateArgs& a, int thread, int n_threads) {
  float* score = static_cast<float*>(a.scratch) + (2 * a.n_experts + a.groups) * thread;
  float* choice = score + a.n_experts;
  float* group = choice + a.n_experts;
  const Range part = share(a.tokens, 1, thread, n_threads);
  for (std::int64_t t = part.begin; t < part.end; ++t) {
    score_experts(a, t, score);
    for (std::int64_t e = 0; e < a.n_experts; ++e)
      choice[e] = score[e] + (a.bias == nullptr ? 0.0F : a.bias[e]);
    if (a.groups > 1) limit_groups(a, choice, group);
    choose(a, choice, score, a.weights + t * a.top_k, a.ids + t * a.top_k);
  }
}

void moe_sort(const MoeSortArgs& a, int thread, int /*n_threads*/) {
  if (thread != 0) return;
  const std::int64_t pairs = a.tokens * a.top_k;
  // A counting sort: offsets[e + 1] counts, then is the end of e, then the start of e + 1.
  for (std::int64_t e = 0; e <= a.n_experts; ++e) a.offsets[e] = 0;
  for (std::int64_t p = 0; p < pairs; ++p)
    if (a.ids[p] >= 0 && a.ids[p] < a.n_experts) ++a.offsets[a.ids[p] + 1];
  for (std::int64_t e = 0; e < a.n_experts; ++e) a.offsets[e + 1] += a.offsets[e];
  for (std::int64_t p = 0; p < pairs; ++p) {
    const std::int32_t e = a.ids[p];
    a.place_of_pair[p] = -1;
    if (e < 0 || e >= a.n_experts) continue;
    const std::int32_t place = a.offsets[e]++;  // the start moves on while its pairs are placed
    a.pair_at[place] = static_cast<std::int32_t>(p);
    a.place_of_pair[p] = place;
  }
  for (std::int64_t e = a.n_experts; e > 0; --e) a.offsets[e] = a.offsets[e - 1];
  a.offsets[0] = 0;
}

}  // namespace tk::kernels

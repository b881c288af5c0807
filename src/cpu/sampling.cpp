#include "cpu/sampling.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cpu/kernels/elementwise.h"
#include "cpu/rows.h"

namespace tk {
namespace {

// The output function of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes well.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// The first of the largest, NaN counting as largest.
std::int64_t best_of(const TensorView& row) {
  std::int64_t best = 0;
  kernels::ArgmaxArgs a;
  a.x = {row.data, row.dtype, row.shape[0]};
  a.index = &best;
  a.rows = 1;
  a.cols = row.shape[0];
  kernels::argmax(a, 0, 1);
  return best;
}

}  // namespace

void check(const SamplingParams& p) {
  if (!(p.temperature >= 0) || std::isinf(p.temperature))
    throw UserError("TK0516", cat("temperature must be 0 or more, got ", p.temperature));
  if (p.top_k < 0) throw UserError("TK0516", cat("top_k must be 0 or more, got ", p.top_k));
  if (!(p.top_p > 0 && p.top_p <= 1))
    throw UserError("TK0516", cat("top_p must be in (0, 1], got ", p.top_p));
}

double uniform(std::uint64_t seed, std::uint64_t counter) {
  return static_cast<double>(mix(mix(seed) ^ counter) >> 11) * 0x1p-53;
}

const float* Sampler::load(const TensorView& logits) {
  if (logits.dtype == DType::f32) return logits.as<float>();
  row_.resize(static_cast<std::size_t>(logits.shape[0]));
  kernels::UnaryArgs a;  // a cast
  a.x = {logits.data, logits.dtype, logits.shape[0]};
  a.y = {row_.data(), DType::f32, logits.shape[0]};
  a.rows = 1;
  a.cols = logits.shape[0];
  kernels::unary(a, 0, 1);
  return row_.data();
}

std::int64_t Sampler::sample(const TensorView& logits, const SamplingParams& params,
                             std::uint64_t counter) {
  TK_CHECK(logits.rank() == 1 && logits.shape[0] > 0 && logits.contiguous() &&
               kernel_float(logits.dtype),
           "one row of logits, got ", name_of(logits.dtype), logits.shape.str());
  const std::int64_t best = best_of(logits);
  const double top = element(logits, best);
  if (std::isnan(top))
    throw UserError("TK0517", "the model produced NaN logits")
        .help("weights that hold NaN or infinity do this; so does a cache that was damaged");
  // With an infinite best logit the softmax is undefined, and the choice is clear.
  if (params.temperature == 0 || params.top_k == 1 || std::isinf(top)) return best;
  const float* x = load(logits);
  const std::int64_t n = logits.shape[0];

  // Unnormalised probabilities; the best one weighs 1.
  const auto weight = [&](float logit) {
    return std::exp((static_cast<double>(logit) - static_cast<double>(x[best])) /
                    params.temperature);
  };
  candidates_.clear();
  for (std::int64_t i = 0; i < n; ++i)
    if (x[i] != -INFINITY) candidates_.push_back({x[i], i});
  const auto more_likely = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  };
  if (params.top_k > 0 && params.top_k < static_cast<std::int64_t>(candidates_.size())) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params.top_k, candidates_.end(),
                     more_likely);
    candidates_.resize(static_cast<std::size_t>(params.top_k));
  }
  double total = 0;
  for (const Candidate& c : candidates_) total += weight(c.logit);
  if (params.top_p < 1) {
    // All tokens below this weight have less than 1 - top_p together, so none of them is needed:
    // sorting a few hundred instead of the whole vocabulary.
    const double least = (1 - params.top_p) * total / static_cast<double>(candidates_.size());
    std::erase_if(candidates_, [&](const Candidate& c) { return weight(c.logit) < least; });
  }
  std::sort(candidates_.begin(), candidates_.end(), more_likely);
  weights_.clear();
  double sum = 0;
  for (const Candidate& c : candidates_) {
    weights_.push_back(weight(c.logit));
    sum += weights_.back();
    if (sum >= params.top_p * total) break;
  }
  double left = uniform(params.seed, counter) * sum;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    left -= weights_[i];
    if (left < 0) return candidates_[i].token;
  }
  return candidates_[weights_.size() - 1].token;
}

}  // namespace tk

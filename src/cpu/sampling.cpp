#include "cpu/sampling.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tk {
namespace {

// The output function of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes well.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
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
  const std::int64_t n = logits.numel();
  TK_CHECK(logits.rank() == 1 && n > 0, "one row of logits, got ", logits.shape.str());
  if (logits.dtype == DType::f32 && logits.contiguous()) return logits.as<float>();
  row_.resize(static_cast<std::size_t>(n));
  TensorView row = logits;
  row.data = row_.data();
  row.dtype = DType::f32;
  row.strides = contiguous_strides(row.shape);
  copy_into(row, logits);
  return row_.data();
}

std::int64_t Sampler::sample(const TensorView& logits, const SamplingParams& params,
                             std::uint64_t counter) {
  const float* x = load(logits);
  const std::int64_t n = logits.numel();
  std::int64_t best = 0;
  bool nan = false;
  for (std::int64_t i = 0; i < n; ++i) {
    nan |= std::isnan(x[i]);
    if (x[i] > x[best]) best = i;
  }
  if (nan || std::isnan(x[best]))
    throw UserError("TK0517", "the model produced NaN logits")
        .help("weights that hold NaN or infinity do this; so does a cache that was damaged");
  // With an infinite best logit the softmax is undefined, and the choice is clear.
  if (params.temperature == 0 || params.top_k == 1 || std::isinf(x[best])) return best;

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

// Choosing the next token from a row of logits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/tensor.h"

namespace tk {

struct SamplingParams {
  double temperature = 0;  // 0: greedy
  std::int64_t top_k = 0;  // only the k most likely; 0: all
  double top_p = 1;        // only the most likely that together have at least this probability
  std::uint64_t seed = 0;
};

// Throws TK0516, naming the parameter, when one is out of its range.
void check(const SamplingParams& params);

// A uniform number in [0, 1) that depends on seed and counter only: random access, so a request's
// draws are the same whatever else runs beside it.
double uniform(std::uint64_t seed, std::uint64_t counter);

// Remembers its buffers between calls; logits are [V], f32, bf16 or f16.
class Sampler {
 public:
  // `counter` numbers the draws of a request. Equal logits are ordered by token id, lower first.
  // Throws TK0517 when a logit is NaN.
  std::int64_t sample(const TensorView& logits, const SamplingParams& params,
                      std::uint64_t counter);

 private:
  struct Candidate {
    float logit;
    std::int64_t token;
  };
  const float* load(const TensorView& logits);
  std::vector<float> row_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace tk

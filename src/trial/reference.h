// What a model must compute: token sequences with the logits of every position, from the golden
// file or from the captured graph itself.
#pragma once

#include <optional>
#include <vector>

#include "cpu/runner.h"
#include "import/model.h"
#include "trial/golden.h"
#include "trial/numerics.h"

namespace tk {

// Logits after each token of `ids`; the first n_prompt tokens are a prompt, the rest is decoded
// one by one with these very tokens (teacher forced).
struct ReferenceSequence {
  std::string name;  // "p0[1]"
  std::vector<std::int64_t> ids;
  std::int64_t n_prompt = 0;
  Tensor logits;                     // [ids, V]
  std::optional<Tensor> logits_f32;  // the same in f32, of a 16-bit model; perhaps fewer rows
};

struct Reference {
  std::string source;  // "golden.safetensors", "the captured graph"
  DType dtype = DType::f32;
  std::vector<ReferenceSequence> sequences;
  // Of a 16-bit model: error of `logits` against `logits_f32`; what is allowed is a multiple of it.
  std::optional<ErrorStats> own_error;
};

// `model` gives a 16-bit model's logits in f32, for every position; without its weights only the
// dtype's own tolerance judges.
Reference reference_of_golden(const Golden& golden, const CapturedModel& model);

// A few short sequences of fixed ids, run through the captured graph by the interpreter; for a
// 16-bit model also in f32.
Reference reference_of_captured(const CapturedModel& model, std::int64_t max_len);

// The graph with every 16-bit float as f32, and its weights widened; for references only.
Graph in_f32(const Graph& graph);

struct Agreement {
  ErrorStats all, prefill, decode;  // against the reference's own dtype
  std::optional<ErrorStats> against_f32;
  bool greedy_equal = true;  // each position's best token
  std::string first_difference;
  bool passed = false;
  double allowed = 0;  // see describe
  std::string rule;    // "error <= 2e-4 of the largest logit"
};

// The captured graph, without a cache, by the interpreter.
Agreement check_captured(const Graph& captured, const Weights& weights, const Reference& reference);
// A cached model: each prompt in one prefill, then token by token; all sequences side by side when
// `batched`, which also mixes their lengths.
Agreement check_runner(Runner* runner, const Reference& reference, bool batched = false);

}  // namespace tk

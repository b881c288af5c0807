// From the sizes of a config.json to the work of one rank's step, for models that are not captured:
// published cases say what ran, not which graph. Fields decide, never the model's name.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "npu/work.h"

namespace tk {

// Embeddings of n-grams beside that of the token: each a lookup and a projection to hidden, and the
// small operators that make their indices.
struct NgramSizes {
  std::int64_t lookups = 0, width = 0, small_operators = 0;
  auto operator<=>(const NgramSizes&) const = default;
};

struct ConfigStep {
  bool prefill = false;
  std::int64_t sequences = 1;  // of one data-parallel group
  std::int64_t query_len = 1;  // tokens of each in this step
  std::int64_t kv_len = 0;     // before them
  std::int64_t attn_tp = 1, attn_dp = 1, ep = 1, moe_tp = 1, dense_tp = 0, o_proj_tp = 0,
               lm_head_tp = 0, embed_tp = 0;                              // 0: as attn_tp
  int linear_bits = 16, dense_bits = 16, expert_bits = 16, kv_bits = 16;  // of weights and cache
  int activation_bits = 16, expert_activation_bits = 16;
  std::int64_t drafts = 0;         // draft layers run after the model, each on all tokens
  std::int64_t micro_batches = 1;  // side by side on streams of their own
  bool streams = false;            // shared experts beside the routed ones
  bool shared_elsewhere = false;   // shared experts are on other ranks
  NgramSizes ngrams;
  bool fused = true;  // false: PyTorch's own operators for norms, rotations and activations
  double zipf = 0;
  bool even_experts = true;  // false: tokens pick at random, and the rank with most of them decides
  auto operator<=>(const ConfigStep&) const = default;
};

// `json` is the text of config.json; `file` names it in errors. Throws TK1413 for sizes, TK1414 for
// degrees that do not divide, TK1416 for a config that lacks what is needed or has something that
// is not modelled.
Step lower_config(const std::string& json, const std::string& file, const ConfigStep& step);

}  // namespace tk

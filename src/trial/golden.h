// Golden outputs of a model: prompts, their logits, and what greedy decoding gives.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace tk {

struct GoldenCase {
  std::string name;                   // "p0"
  Tensor input_ids;                   // i64 [B, S]
  Tensor logits;                      // [B, S, V], in the model's dtype
  Tensor decode_ids;                  // i64 [B, N]: greedy tokens; decode_ids[0] follows the prompt
  Tensor decode_logits;               // [B, N, V]: row i is what decode_ids[i] was chosen from
  std::optional<Tensor> logits_fp32;  // of a 16-bit model: [B, S, V] computed in f32
};

struct Golden {
  std::filesystem::path path;
  std::vector<GoldenCase> cases;
};

// A golden.safetensors with tensors <case>.input_ids, .logits, .decode_ids, .decode_logits and
// perhaps .logits_fp32. Throws TK0801 when one is missing or has another shape than the others say.
Golden read_golden(const std::filesystem::path& path);

}  // namespace tk

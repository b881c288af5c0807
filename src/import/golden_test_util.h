// The captured models of ../shared/models, for tests.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "import/model.h"
#include "import/safetensors.h"
#include "ops/interpret.h"

namespace tk {

// Empty when they are not there; then tests skip.
inline std::filesystem::path shared_models() {
  const char* env = std::getenv("TOKAMAK_SHARED");
  const std::filesystem::path root =
      env != nullptr ? std::filesystem::path(env)
                     : std::filesystem::path(TK_SOURCE_DIR).parent_path() / "shared";
  return std::filesystem::exists(root / "models") ? root / "models" : std::filesystem::path();
}

inline std::vector<std::string> golden_models() {
  return {"deepseek-v3", "deepseek-v3-bf16", "gemma3-text", "glm4-moe",  "gpt-oss",
          "llama-gqa",   "llama-gqa-bf16",   "qwen3",       "qwen3-moe", "stories260k"};
}
inline std::vector<std::string> large_models() {
  return {"deepseek-v3", "llama3-70b", "qwen3-235b-a22b"};
}

// 0, 1, ... for each row of ids [B, S].
inline Tensor positions_like(const Tensor& ids) {
  Tensor out = Tensor::empty(DType::i64, ids.shape);
  for (std::int64_t i = 0; i < out.numel(); ++i) out.as<std::int64_t>()[i] = i % ids.shape[1];
  return out;
}

// The logits of prompts p0, p1, p2 by the reference interpreter.
inline Tensor run_prompt(const Graph& graph, const Weights& weights, const Tensor& ids) {
  const std::vector<Tensor> inputs{ids, positions_like(ids)};
  return contiguous(interpret(graph, inputs, weights).at(0));
}

}  // namespace tk

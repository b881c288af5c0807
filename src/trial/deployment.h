// The folder that optimise leaves: graphs, weights, tokenizer and facts, ready to run here.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cpu/runner.h"
#include "import/model.h"
#include "moves/flatten/flatten.h"

namespace tk {

struct Deployment {
  EngineModel engine;
  CacheSpec cache;
  ModelConfig config;
  std::string name;
  std::filesystem::path folder;
  std::filesystem::path tokenizer_path;  // empty when there is none
};

// Writes prefill.tk, decode.tk, tokamak.json, model.safetensors, config.json, tokenizer.json into
// `folder` (made when missing); each file whole or not at all, tokamak.json last.
void save_deployment(const std::filesystem::path& folder, const Deployment& deployment,
                     const CapturedModel& source);

bool is_deployment(const std::filesystem::path& folder);
// Throws TK0820 (not such a folder, or of another version), TK0310 (graphs), TK0231 (weights).
Deployment load_deployment(const std::filesystem::path& folder);

}  // namespace tk

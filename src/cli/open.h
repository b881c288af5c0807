// Opens what `run` and `bench` take: a folder that optimize made, or a captured model, which then
// gets every adaptable move without trials.
#pragma once

#include <filesystem>
#include <string>

#include "cpu/runner.h"
#include "import/config.h"

namespace tk::cli {

struct Opened {
  EngineModel engine;
  ModelConfig config;
  std::filesystem::path folder, tokenizer_path;
};

// `fuse` false leaves a captured model as the cached graph, without moves.
Opened open_model(const std::string& path, bool fuse = true);

}  // namespace tk::cli

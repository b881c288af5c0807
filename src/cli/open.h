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

// `fuse` false leaves a captured model as the cached graph, without moves. `plan_cache` is a folder
// for a captured model's graphs, or empty; what is wrong with a plan there is said on stderr.
// Throws TK1505 for a folder that is not safe.
Opened open_model(const std::string& path, bool fuse = true, const std::string& plan_cache = "");

}  // namespace tk::cli

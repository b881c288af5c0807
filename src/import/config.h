// The few facts of config.json and generation_config.json that running a model needs. How the model
// computes is never read from there: that is the graph's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tk {

struct ModelConfig {
  std::string text;             // config.json as it stands; "" when there is none
  std::string checkpoint_text;  // checkpoint.json of the capture; "" when names are the model's
  std::string model_type;       // for display only
  std::vector<std::int64_t>
      eos_ids;                     // generation ends at any of them; generation_config.json first
  std::int64_t bos_id = -1;        // -1: unknown
  std::int64_t max_positions = 0;  // 0: unknown
  std::int64_t vocab_size = 0;     // 0: unknown
};

// `folder` may have neither file. Throws TK0110 and TK0111 for one that is there and wrong.
ModelConfig read_config(const std::filesystem::path& folder);

}  // namespace tk

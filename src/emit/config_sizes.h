// Sizes as expressions over config.json, where the checkpoint's names say what a size is.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tk::emit {

// The whole numbers of config.json.
using ConfigNumbers = std::map<std::string, std::int64_t, std::less<>>;
ConfigNumbers config_numbers(const std::string& config_text);

// "config.num_attention_heads * config.head_dim" for axis 0 of "model.layers.0.self_attn.q_proj
// .weight", when it has that value; else "". An expression that isn't the value is never given.
std::string config_size(const ConfigNumbers& numbers, std::string_view weight, int rank, int axis,
                        std::int64_t value);

}  // namespace tk::emit

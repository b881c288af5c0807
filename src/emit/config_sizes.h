// Sizes as expressions over config.json, where the checkpoint's names say what a size is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tk::emit {

// The whole numbers of config.json.
using ConfigNumbers = std::map<std::string, std::int64_t, std::less<>>;
ConfigNumbers config_numbers(const std::string& config_text);
// And the others.
using ConfigReals = std::map<std::string, double, std::less<>>;
ConfigReals config_reals(const std::string& config_text);

// "config.num_attention_heads * config.head_dim" for axis 0 of "model.layers.0.self_attn.q_proj
// .weight", when it has that value; else "". An expression that isn't the value is never given.
std::string config_size(const ConfigNumbers& numbers, std::string_view weight, int rank, int axis,
                        std::int64_t value);

// The field that an argument stands for, by the argument's name ("num_heads", "epsilon", "scale")
// and when it has that value: the attribute that holds it, and where it comes from.
struct ConfigValue {
  std::string attribute, expression;  // "num_heads" and "config.num_attention_heads"
};
std::optional<ConfigValue> config_value(const ConfigNumbers& numbers, const ConfigReals& reals,
                                        std::string_view argument, std::string_view value);

}  // namespace tk::emit

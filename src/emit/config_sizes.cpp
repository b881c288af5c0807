#include "emit/config_sizes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/error.h"

namespace tk::emit {
namespace {

// Words apart by spaces: fields of config, numbers, and * // + between them; no precedence is
// needed, as a sum stands in its own brackets: "heads * ( nope + rope )" is "heads * nope+rope".
using Words = std::string_view;

struct Role {
  std::string_view module;     // the end of the module's name
  std::vector<Words> out, in;  // of a linear: axis 0 and axis 1; of a vector: out
};

constexpr Words hidden = "hidden_size";
constexpr Words heads = "num_attention_heads * head_dim";
constexpr Words heads_split = "num_attention_heads * hidden_size//num_attention_heads";
constexpr Words heads_value = "num_attention_heads * v_head_dim";
constexpr Words kv_heads = "num_key_value_heads * head_dim";
constexpr Words kv_heads_split = "num_key_value_heads * hidden_size//num_attention_heads";
constexpr Words heads_rope = "num_attention_heads * qk_nope_head_dim+qk_rope_head_dim";

const std::vector<Words>& widths() {
  static const std::vector<Words> all = {
      "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size",
      "moe_intermediate_size * n_shared_experts", "moe_intermediate_size * moe_num_shared_experts"};
  return all;
}

const std::vector<Role>& roles() {
  static const std::vector<Role> all = {
      {"q_proj", {heads, heads_split, heads_rope}, {hidden}},
      {"k_proj", {kv_heads, kv_heads_split}, {hidden}},
      {"v_proj", {kv_heads, kv_heads_split}, {hidden}},
      {"o_proj", {hidden}, {heads, heads_value, heads_split}},
      {"q_a_proj", {"q_lora_rank"}, {hidden}},
      {"q_b_proj", {heads_rope}, {"q_lora_rank"}},
      {"kv_a_proj_with_mqa", {"kv_lora_rank + qk_rope_head_dim"}, {hidden}},
      {"kv_b_proj", {"num_attention_heads * qk_nope_head_dim+v_head_dim"}, {"kv_lora_rank"}},
      {"gate_proj", widths(), {hidden}},
      {"up_proj", widths(), {hidden}},
      {"down_proj", {hidden}, widths()},
      {"lm_head", {"vocab_size"}, {hidden}},
      {"embed_tokens", {"vocab_size"}, {hidden}},
      {"gate",
       {"num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"},
       {hidden}},
      {"router", {"num_experts", "num_local_experts"}, {hidden}},
      {"q_norm", {"head_dim"}, {}},
      {"k_norm", {"head_dim"}, {}},
      {"q_a_layernorm", {"q_lora_rank"}, {}},
      {"kv_a_layernorm", {"kv_lora_rank"}, {}},
      {"layernorm", {hidden}, {}},
      {"norm", {hidden}, {}},
  };
  return all;
}

// Stacked weights of experts, [experts, out, in] or, where the sizes say so, [experts, in, out].
const std::vector<Words>& expert_axis(std::string_view weight, int axis) {
  static const std::vector<Words> experts = {"num_experts", "n_routed_experts", "num_local_experts",
                                             "moe_num_experts"};
  static const std::vector<Words> wide_first = {"2 * moe_intermediate_size",
                                                "moe_intermediate_size", "2 * intermediate_size",
                                                "intermediate_size", hidden};
  static const std::vector<Words> hidden_first = {hidden, "2 * moe_intermediate_size",
                                                  "moe_intermediate_size", "2 * intermediate_size",
                                                  "intermediate_size"};
  if (axis == 0) return experts;
  return (axis == 1) == (weight.find("down") != std::string_view::npos) ? hidden_first : wide_first;
}

// The attributes that an argument can stand for, each with the fields that give its value.
using Choices = std::vector<std::pair<std::string_view, std::vector<Words>>>;

const std::map<std::string_view, Choices>& arguments() {
  static const Choices eps = {{"eps",
                               {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon",
                                "layernorm_epsilon", "norm_eps", "norm_epsilon"}}};
  static const Choices head_counts = {
      {"num_heads", {"num_attention_heads", "n_head", "n_heads"}},
      {"num_key_value_heads", {"num_key_value_heads"}},
  };
  static const Choices stored_heads = {
      {"num_key_value_heads", {"num_key_value_heads", "num_attention_heads", "n_head"}}};
  static const Choices scale = {{"scale",
                                 {"head_dim", "hidden_size//num_attention_heads",
                                  "qk_nope_head_dim + qk_rope_head_dim", "query_pre_attn_scalar"}}};
  static const Choices experts = {
      {"num_experts", {"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"}}};
  static const std::map<std::string_view, Choices> all = {
      {"epsilon", eps},
      {"eps", eps},
      {"num_heads", head_counts},
      {"num_query_heads", head_counts},
      {"num_key_value_heads", stored_heads},
      {"head_dim",
       {{"head_dim", {"head_dim", "hidden_size//num_attention_heads"}},
        {"qk_head_dim", {"qk_nope_head_dim + qk_rope_head_dim"}},
        {"v_head_dim", {"v_head_dim"}}}},
      {"kv_lora_rank", {{"kv_lora_rank", {"kv_lora_rank"}}}},
      {"qk_rope_head_dim", {{"qk_rope_head_dim", {"qk_rope_head_dim"}}}},
      {"split_size",
       {{"q_size", {heads, heads_split}},
        {"kv_size", {kv_heads, kv_heads_split}},
        {"q_lora_rank", {"q_lora_rank"}},
        {"latent_size", {"kv_lora_rank + qk_rope_head_dim"}},
        {"kv_lora_rank", {"kv_lora_rank"}},
        {"qk_nope_head_dim", {"qk_nope_head_dim"}},
        {"qk_rope_head_dim", {"qk_rope_head_dim"}}}},
      {"head_parts",
       {{"qk_nope_head_dim", {"qk_nope_head_dim"}},
        {"qk_rope_head_dim", {"qk_rope_head_dim"}},
        {"v_head_dim", {"v_head_dim"}}}},
      {"scale", scale},
      {"softmax_scale", scale},
      {"scale_value", scale},
      {"k", {{"top_k", {"num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_k"}}}},
      {"expert_num", experts},
      {"k_group", {{"topk_group", {"topk_group"}}}},
      {"group_count", {{"n_group", {"n_group"}}}},
      {"routed_scaling_factor", {{"routed_scaling_factor", {"routed_scaling_factor"}}}},
      {"window", {{"sliding_window", {"sliding_window", "attention_chunk_size"}}}},
      {"softcap", {{"softcap", {"attn_logit_softcapping"}}}},
  };
  return all;
}

struct Term {
  std::string text;
  std::int64_t value;
};

std::optional<Term> term(const ConfigNumbers& numbers, std::string_view word) {
  for (const std::string_view sign : {"//", "+"})
    if (const std::size_t at = word.find(sign); at != std::string_view::npos) {
      const auto a = term(numbers, word.substr(0, at));
      const auto b = term(numbers, word.substr(at + sign.size()));
      if (!a || !b || (sign == "//" && b->value == 0)) return std::nullopt;
      const std::int64_t value = sign == "+" ? a->value + b->value : a->value / b->value;
      return Term{"(" + a->text + " " + std::string(sign) + " " + b->text + ")", value};
    }
  if (word == "2") return Term{"2", 2};
  const auto it = numbers.find(word);
  if (it == numbers.end()) return std::nullopt;
  return Term{"config." + it->first, it->second};
}

std::optional<Term> read(const ConfigNumbers& numbers, Words words) {
  std::optional<Term> all;
  char sign = '*';
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    const std::string_view word = words.substr(0, end);
    words.remove_prefix(std::min(end + 1, words.size()));
    if (word == "*" || word == "+") {
      sign = word[0];
      continue;
    }
    const auto t = term(numbers, word);
    if (!t) return std::nullopt;
    if (!all)
      all = t;
    else
      all = Term{all->text + " " + sign + " " + t->text,
                 sign == '+' ? all->value + t->value : all->value * t->value};
  }
  return all;
}

std::string first_of(const ConfigNumbers& numbers, const std::vector<Words>& choices,
                     std::int64_t value) {
  for (const Words w : choices)
    if (const auto t = read(numbers, w); t && t->value == value) return t->text;
  return "";
}

}  // namespace

ConfigNumbers config_numbers(const std::string& config_text) {
  ConfigNumbers numbers;
  if (config_text.empty()) return numbers;
  const auto config = nlohmann::json::parse(config_text);
  for (const auto& [key, value] : config.items())
    if (value.is_number_integer()) numbers[key] = value.get<std::int64_t>();
  return numbers;
}

ConfigReals config_reals(const std::string& config_text) {
  ConfigReals reals;
  if (config_text.empty()) return reals;
  const auto config = nlohmann::json::parse(config_text);
  for (const auto& [key, value] : config.items())
    if (value.is_number_float()) reals[key] = value.get<double>();
  return reals;
}

std::optional<ConfigValue> config_value(const ConfigNumbers& numbers, const ConfigReals& reals,
                                        std::string_view argument, std::string_view value) {
  double wanted = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), wanted);
  if (error != std::errc() || end != value.data() + value.size()) return std::nullopt;
  const auto it = arguments().find(argument);
  if (it == arguments().end()) return std::nullopt;
  // A latent attention has no width of a head that hidden_size would give.
  const bool has_own_width = numbers.contains("head_dim") || numbers.contains("kv_lora_rank");
  const bool latent = numbers.contains("kv_lora_rank");
  for (const auto& [attribute, fields] : it->second) {
    if (latent && (attribute == "q_size" || attribute == "kv_size")) continue;
    for (const Words w : fields) {
      if (has_own_width && w == "hidden_size//num_attention_heads") continue;
      if (const auto real = reals.find(w); real != reals.end() && real->second == wanted)
        return ConfigValue{std::string(attribute), "config." + real->first};
      const auto t = read(numbers, w);
      if (!t) continue;
      const auto found = static_cast<double>(t->value);
      std::string text = t->text;
      const bool inside = text.starts_with('(') && text.find(')') + 1 == text.size();
      if (found == wanted)
        return ConfigValue{std::string(attribute), inside ? text.substr(1, text.size() - 2) : text};
      if (attribute != "scale" || std::pow(found, -0.5) != wanted) continue;
      if (!inside && text.find(' ') != std::string::npos) text = cat("(", text, ")");
      return ConfigValue{"scale", text + "**-0.5"};
    }
  }
  return std::nullopt;
}

std::string config_size(const ConfigNumbers& numbers, std::string_view weight, int rank, int axis,
                        std::int64_t value) {
  if (rank == 3 || (rank == 2 && weight.ends_with("_bias")))
    return first_of(numbers, expert_axis(weight, axis), value);
  if (weight.ends_with(".sinks")) return first_of(numbers, {"num_attention_heads"}, value);
  const std::size_t dot = weight.rfind('.');
  if (dot == std::string_view::npos || rank > 2) return "";
  std::string_view module = weight.substr(0, dot);
  module = module.substr(module.rfind('.') + 1);
  const bool norm = rank == 1;
  for (const Role& r : roles()) {
    const bool mine = norm && r.in.empty() ? module.ends_with(r.module) : module == r.module;
    if (!mine || (norm != r.in.empty() && weight.ends_with(".weight"))) continue;
    if (std::string text = first_of(numbers, axis == 0 ? r.out : r.in, value); !text.empty())
      return text;
  }
  return "";
}

}  // namespace tk::emit

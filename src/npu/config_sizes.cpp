#include "npu/config_sizes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tk {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t largest_size = 1 << 24;  // bytes of a product of three still fit

class Reader {
 public:
  Reader(const Json& j, const std::string& file) : j_(j), file_(file) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw UserError("TK1416", what)
        .at(file_)
        .help("capture the model and give its .pt2: the graph says what a config does not");
  }

  bool has(const char* name) const { return j_.contains(name) && !j_[name].is_null(); }

  // The first of the names that is there; a list with one value for every layer is that value.
  std::int64_t get(std::initializer_list<const char*> names, std::int64_t otherwise = -1) const {
    for (const char* name : names) {
      if (!has(name)) continue;
      const Json& v = j_[name].is_array() && !j_[name].empty() ? j_[name][0] : j_[name];
      const bool alike = !j_[name].is_array() || std::all_of(j_[name].begin(), j_[name].end(),
                                                             [&](const Json& o) { return o == v; });
      if (!alike || !v.is_number_integer() || v.get<std::int64_t>() < 0 ||
          v.get<std::int64_t>() > largest_size)
        fail(cat("'", name, "' is ", j_[name].dump().substr(0, 60), "; a whole number up to ",
                 largest_size, " is expected"));
      return v.get<std::int64_t>();
    }
    if (otherwise < 0) fail(cat("the config has no '", *names.begin(), "'"));
    return otherwise;
  }

  // Whether a list of layers has this one.
  bool listed(const char* name, std::int64_t layer) const {
    if (!has(name) || !j_[name].is_array()) return false;
    return std::any_of(j_[name].begin(), j_[name].end(),
                       [&](const Json& v) { return v.is_number_integer() && v == layer; });
  }

  bool off(const char* name) const { return j_.contains(name) && j_[name] == false; }

  // Parts of a model that none of the fields read here tells of: a time without them would be
  // wrong in silence.
  void check_unread(bool experts) const {
    for (const auto& [name, v] : j_.items()) {
      const bool counts = v.is_number_integer() && v.get<std::int64_t>() > 1;
      if (!experts && counts && name.find("expert") != std::string::npos)
        fail(cat("'", name, "' is ", v.dump(),
                 ", and no field read here has the number of experts"));
      for (const char* part : {"mamba", "ssm_", "linear_attn_config", "state_size", "rwkv"})
        if (name.find(part) != std::string::npos && !v.is_null() && v != false)
          fail(cat("'", name, "' tells of layers that are not modelled"));
    }
  }

  std::vector<std::string> texts(const char* name, std::int64_t n) const {
    std::vector<std::string> out;
    if (!has(name)) return out;
    if (!j_[name].is_array()) fail(cat("'", name, "' is no list"));
    for (const Json& t : j_[name]) {
      if (!t.is_string()) fail(cat("'", name, "' has ", t.dump(), "; a text is expected"));
      out.push_back(t.get<std::string>());
    }
    if (static_cast<std::int64_t>(out.size()) != n)
      fail(cat("'", name, "' has ", out.size(), " entries, and there are ", n, " layers"));
    return out;
  }

  std::int64_t rate(const std::string& kind) const {
    if (!has("compress_rates") || !j_["compress_rates"].is_object() ||
        !j_["compress_rates"].contains(kind) || !j_["compress_rates"][kind].is_number_integer())
      fail(cat("there is no rate for '", kind, "' in compress_rates"));
    return j_["compress_rates"][kind].get<std::int64_t>();
  }

 private:
  const Json& j_;
  const std::string& file_;
};

LayerSizes attention_of(const std::string& kind, const Reader& r, const ConfigSizes& c) {
  LayerSizes l;
  if (kind == "full_attention") {
    l.attention = c.kv_lora > 0 ? AttentionKind::latent : AttentionKind::full;
  } else if (kind == "sliding_attention") {
    l.attention = c.o_lora > 0 ? AttentionKind::compressed : AttentionKind::sliding;
  } else if (kind == "linear_attention") {
    if (c.linear_v_heads == 0) r.fail("linear attention without linear_num_value_heads");
    l.attention = AttentionKind::linear;
  } else if (kind.find("compressed") != std::string::npos && c.o_lora > 0) {
    l.attention = AttentionKind::compressed;
    l.compress = r.rate(kind);
    l.index = kind.find("sparse") != std::string::npos;
  } else {
    r.fail(cat("attention of the kind '", kind, "' is not modelled"));
  }
  return l;
}

}  // namespace

ConfigSizes config_sizes(const std::string& json, const std::string& file) {
  const Json whole = Json::parse(json, nullptr, false);
  if (whole.is_discarded() || !whole.is_object())
    throw UserError("TK1416", "the config is no JSON object").at(file);
  // Of a model that also sees or hears, the language model is timed.
  const bool nested = whole.contains("text_config") && whole["text_config"].is_object();
  const Json& j = nested ? whole["text_config"] : whole;
  const Reader r(j, file);
  ConfigSizes c;
  c.hidden = r.get({"hidden_size"});
  c.vocab = r.get({"vocab_size", "padded_vocab_size"});
  c.heads = r.get({"num_attention_heads"});
  c.kv_heads =
      r.get({"num_key_value_heads", "num_attention_groups", "multi_query_group_num"}, c.heads);
  c.q_lora = r.get({"q_lora_rank"}, 0);
  c.kv_lora = r.get({"kv_lora_rank"}, 0);
  c.nope = r.get({"qk_nope_head_dim"}, 0);
  c.rope = r.get({"qk_rope_head_dim"}, 0);
  c.v_dim = r.get({"v_head_dim"}, 0);
  if (c.heads == 0 || c.hidden == 0) r.fail("a model without heads or hidden size");
  c.head_dim = r.get({"head_dim", "attention_head_dim", "kv_channels"}, c.hidden / c.heads);
  c.full_kv_heads = r.get({"num_global_key_value_heads"}, c.kv_heads);
  c.full_head_dim = r.get({"global_head_dim"}, c.head_dim);
  c.inner = r.get({"ffn_hidden_size", "intermediate_size_mlp", "intermediate_size"}, 0);
  c.window = r.get({"sliding_window"}, 0);
  c.index_heads = r.get({"index_n_heads"}, 0);
  c.index_dim = r.get({"index_head_dim"}, 0);
  c.index_topk = r.get({"index_topk"}, 0);
  c.o_groups = r.get({"o_groups"}, 0);
  c.o_lora = r.get({"o_lora_rank"}, 0);
  c.copies = r.get({"hc_mult"}, 1);
  c.linear_k_heads = r.get({"linear_num_key_heads"}, 0);
  c.linear_v_heads = r.get({"linear_num_value_heads"}, 0);
  c.linear_k_dim = r.get({"linear_key_head_dim"}, 0);
  c.linear_v_dim = r.get({"linear_value_head_dim"}, 0);
  c.n_experts =
      r.get({"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"}, 0);
  c.zero_experts = r.get({"zero_expert_num"}, 0);
  r.check_unread(c.n_experts > 0);
  if (c.n_experts > 0) {
    c.topk = r.get({"num_experts_per_tok", "moe_topk", "top_k_experts", "num_experts_per_token",
                    "experts_per_token", "moe_k", "moe_top_k"});
    // Mixtral and its like have one size, which is the experts'.
    c.expert_inner =
        r.get({"moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"});
    const std::int64_t shared = r.get(
        {"n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"},
        r.has("intermediate_size_mlp") ? 1 : 0);
    c.shared_inner =
        r.get({"shared_expert_intermediate_size", "share_expert_dim"}, shared * c.expert_inner);
  }
  const std::int64_t n = r.get({"num_hidden_layers", "num_layers"});
  if (n == 0 || n > 4096) r.fail(cat("a model of ", n, " layers"));
  const std::int64_t pairs = r.get({"num_layers"}, n);
  const std::int64_t blocks = pairs > 0 && pairs < n && n % pairs == 0 ? n / pairs : 1;
  const std::int64_t dense_first = r.get({"first_k_dense_replace", "moe_layer_start_index"}, 0);
  // Experts in every so many layers, the last of each group.
  const std::int64_t sparse_every = std::max<std::int64_t>(
      1, r.get({"decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"}, 1));
  // Without a list of kinds a window is of all layers but each so-manieth, where it is in use.
  const std::int64_t full_every = r.get({"sliding_window_pattern"}, 0);
  const std::int64_t windows_from =
      r.has("use_sliding_window") ? r.get({"max_window_layers"}, 0) : 0;
  const bool windows = c.window > 0 && c.o_lora == 0 && !r.off("use_sliding_window");
  const std::vector<std::string> kinds = r.texts("layer_types", n);
  const std::vector<std::string> mlps = r.texts("mlp_layer_types", n);
  const std::int64_t every = r.get({"index_topk_freq"}, 1);
  const std::int64_t skipped = r.get({"index_skip_topk_offset"}, 0);
  const bool beside = r.has("enable_moe_block");  // experts beside a dense FFN
  for (std::int64_t i = 0; i < n / blocks; ++i) {
    const auto at = static_cast<std::size_t>(i);
    LayerSizes l;
    if (!kinds.empty()) {
      l = attention_of(kinds[at], r, c);
    } else {
      l.attention = c.kv_lora > 0 ? AttentionKind::latent : AttentionKind::full;
      if (windows && c.kv_lora == 0 && i >= windows_from &&
          (full_every == 0 || (i + 1) % full_every != 0))
        l.attention = AttentionKind::sliding;
    }
    // Layers between two indexers share the keys of the one before.
    if (l.attention == AttentionKind::latent && c.index_topk > 0)
      l.index = every <= 1 || i < skipped || (i - skipped) % every == 0;
    l.experts = c.n_experts > 0 && (mlps.empty() ? i >= dense_first : mlps[at] != "dense") &&
                (i + 1) % sparse_every == 0 && !r.listed("mlp_only_layers", i);
    l.blocks = blocks;
    l.dense = !l.experts || beside || blocks > 1;
    if (l.dense && c.inner == 0) r.fail("the config has no 'intermediate_size'");
    c.layers.push_back(l);
  }
  return c;
}

}  // namespace tk

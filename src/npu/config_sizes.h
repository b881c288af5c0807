// The sizes of a model as its config.json has them, under one name each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tk {

enum class AttentionKind : std::uint8_t { full, sliding, latent, linear, compressed };

struct LayerSizes {
  AttentionKind attention = AttentionKind::full;
  std::int64_t compress = 0;  // keys of the past a compressed key stands for; 0: window only
  bool index = false;         // picks its keys by an indexer of its own
  bool experts = false;
  bool dense = true;        // has a dense FFN (with experts: beside them)
  std::int64_t blocks = 1;  // attention and dense FFN this often around one set of experts
};

struct ConfigSizes {
  std::int64_t hidden = 0, vocab = 0, heads = 0, kv_heads = 0, head_dim = 0, inner = 0;
  std::int64_t window = 0, full_kv_heads = 0, full_head_dim = 0;
  std::int64_t q_lora = 0, kv_lora = 0, nope = 0, rope = 0, v_dim = 0;  // latent attention
  std::int64_t index_heads = 0, index_dim = 0, index_topk = 0;          // sparse attention
  std::int64_t o_groups = 0, o_lora = 0, copies = 1;  // compressed; hyper-connections
  std::int64_t linear_k_heads = 0, linear_v_heads = 0, linear_k_dim = 0, linear_v_dim = 0;
  std::int64_t n_experts = 0, zero_experts = 0, topk = 0, expert_inner = 0, shared_inner = 0;
  std::vector<LayerSizes> layers;
};

// Throws TK1416.
ConfigSizes config_sizes(const std::string& json, const std::string& file);

}  // namespace tk

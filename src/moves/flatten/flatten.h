// From one plain forward [B, S] to the token-flat graph with a paged KV cache that serves prefill
// and decode alike (DESIGN: "From one forward to prefill and decode").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/weights.h"
#include "moves/flatten/mask.h"

namespace tk {

// One tensor of the cache: state `name` of shape [NB, block_size, heads, dim].
struct CacheEntry {
  std::string name;  // "layers.3.key"
  std::int64_t heads = 0, dim = 0;
  DType dtype = DType::f32;
};

// One attention site and what it keeps.
struct CacheLayer {
  std::string module;  // module path of the attention
  std::string kind;    // MHA, GQA, MQA or MLA
  MaskFacts mask;
  std::int64_t query_heads = 0, kv_heads = 0, head_dim = 0, v_dim = 0;
  bool sinks = false;
  double softcap = 0;
  std::vector<int> entries;  // into CacheSpec::entries; shared when layers share keys and values
};

struct CacheSpec {
  std::int64_t block_size = 128;
  std::vector<CacheEntry> entries;
  std::vector<CacheLayer> layers;

  // Bytes of one token in all entries (KV-22).
  std::int64_t bytes_per_token() const;
};

struct CachedModel {
  Graph graph;
  CacheSpec cache;
};

struct FlattenOptions {
  std::int64_t block_size = 128;
};

// `captured` is canonical: inputs input_ids and position_ids i64 [B, S], output logits [B, S, V].
// `weights` may be null (only masks that depend on buffers need it). The result has the inputs
// input_ids, position_ids, slot_mapping i64 [T], block_table i32 [B, MB], query_lens, kv_lens i32
// [B], and logits [T, V]. Throws TK0401 (mixes tokens), TK0402, TK0403 (masks), TK0404 (attention
// that sees the future), TK0405 (a node that can't be flattened), TK0406 (other inputs).
CachedModel flatten(const Graph& captured, const Weights* weights,
                    const FlattenOptions& options = {});

}  // namespace tk

// Multi-head latent attention: keys and values that are computed from one small latent per token,
// plus a rotary part shared by all heads. The latent is what is cached.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/graph.h"

namespace tk {

struct MlaSite {
  Value* latent;       // input of kv_b_proj: [..tokens.., r]
  Value* rope;         // shared rotary key: [B, 1, S, dr]
  Value* kv_b_weight;  // [heads * (nope + v), r]
  std::int64_t heads, nope, v_dim, rope_dim, rank;
  bool rope_first;  // the key (and query) is [rope | nope] instead of [nope | rope]
};

std::optional<MlaSite> find_mla(const Node& attention);

// A contiguous part of one axis, whichever operator makes it.
struct Part {
  Value* source;
  int axis;
  std::int64_t start, size;
};
std::optional<Part> as_part(Value* v);

}  // namespace tk

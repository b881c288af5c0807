// What the rules and the reference of npu_mla_prolog_v2 and _v3 share.
#pragma once

#include <cstdint>
#include <string_view>

#include "graph/graph.h"

namespace tk::ops::mla {

// The inputs that both versions have, in places of their own.
struct Inputs {
  int x, w_dq, w_uq_qr, w_uk, w_dkv_kr, gamma_cq, gamma_ckv, sin, cos, kv_cache, kr_cache, index;
};
Inputs inputs_of(const OpDef& op);

// Of the attribute cache_mode.
struct Mode {
  bool packed, nz, blocks;  // packed: no index, tokens in order
};
Mode mode_of(std::string_view name);

// Latents that share a scale in rows of bytes (kv_cache_quant_mode 3).
constexpr std::int64_t tile = 128;

// The references: a step's query, and its keys into the caches.
void v3_eval(const EvalArgs& a);
void v2_eval(const EvalArgs& a);

}  // namespace tk::ops::mla

// Attention of token-flat queries over a paged cache.
#pragma once

#include "cpu/kernels/common.h"

namespace tk::kernels {

enum class MaskKind : std::uint8_t {
  full,     // every key of the request
  causal,   // key position <= query position
  window,   // causal, and key position > query position - window
  chunked,  // causal, and the same position / window
};

// A cache [n_blocks, block_size, heads, dim], given by its strides.
struct CacheView {
  const void* data = nullptr;
  std::int64_t block_stride = 0, slot_stride = 0, head_stride = 0;
};

// Request b owns the queries [cu_q[b-1], cu_q[b]) (cu_q[-1] = 0) and kv_lens[b] keys, which already
// include its own new ones. Query i of q_len stands at position kv_len - q_len + i (right-down
// aligned). Keys of request b at position p lie in block block_table[b, p / block_size], at
// p % block_size.
//   logit = scale * (q . k (+ q2 . k2));  soft_cap > 0: logit = soft_cap * tanh(logit / soft_cap)
//   out = sum_p softmax(logit)_p v_p, with exp(sinks[h]) added to the denominator when given.
// A query that sees no key (kv_len 0, or a padding query) yields zeros.
struct PagedAttentionArgs {
  const void* q = nullptr;   // [T, Hq, dk]
  const void* q2 = nullptr;  // optional second part of the query [T, Hq, dk2] (MLA: rope part)
  void* out = nullptr;       // [T, Hq, dv]
  DType dtype = DType::f32;  // q, q2, out: f32, bf16, f16
  DType cache_dtype = DType::f32;  // k, v, k2: f32, bf16, f16
  CacheView k, v, k2;  // v may be k's own memory (MLA latent), with dv <= dk; k2 with q2
  std::int64_t q_stride = 0, q_head_stride = 0;
  std::int64_t q2_stride = 0, q2_head_stride = 0;
  std::int64_t out_stride = 0, out_head_stride = 0;
  const std::int32_t* block_table = nullptr;  // [B, block_table_stride]
  const std::int32_t* cu_q = nullptr;         // [B] inclusive prefix sums; cu_q[B-1] <= T
  const std::int32_t* kv_lens = nullptr;      // [B]
  const float* sinks = nullptr;               // optional [Hq]
  std::int64_t batch = 0, tokens = 0, q_heads = 0, kv_heads = 0;  // kv_heads divides q_heads
  std::int64_t dk = 0, dk2 = 0, dv = 0, block_size = 0, block_table_stride = 0;
  MaskKind mask = MaskKind::causal;
  std::int64_t window = 0;  // W, or the chunk length
  float scale = 1.0F, soft_cap = 0.0F;
  void* scratch = nullptr;
  std::int64_t max_kv_len = 0;  // upper bound of kv_lens; sizes the scratch
};

// Two phases with a barrier between them: the first computes parts, the second adds them up in a
// fixed order. Work is cut by (request, kv head, queries, keys) independent of n_threads, so
// results are too. Units of eight and more rows (query, head) add up in another order than those of
// fewer; with bf16 queries and caches and AVX512-BF16 they also round the softmax weights to bf16
// before the values are summed (in f32).
void paged_attention(const PagedAttentionArgs& args, int thread, int n_threads);
void paged_attention_combine(const PagedAttentionArgs& args, int thread, int n_threads);
// For the largest tokens, batch and max_kv_len of these args that will be used.
std::size_t paged_attention_scratch_bytes(const PagedAttentionArgs& args, int n_threads);

}  // namespace tk::kernels

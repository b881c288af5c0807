// How attention is cut into units of work, and where their scratch lies. Plain C++, no SIMD.
#pragma once

#include "cpu/kernels/attention.h"

namespace tk::kernels {

constexpr std::int64_t tile_rows = 64;  // rows (query, head) of a unit at most
constexpr std::int64_t tile_keys = 64;  // keys worked on at a time
constexpr std::int64_t max_split_queries =
    8;  // requests with more new queries are not split by keys
// Fewer than that are not worth a second pass.
constexpr std::int64_t min_split_keys = 256;
constexpr std::int64_t max_splits = 16;

inline std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// One request as the kernel sees it.
struct Request {
  std::int64_t index, first_query, n_queries, kv_len;
  std::int64_t position(std::int64_t i) const { return kv_len - n_queries + i; }
};
inline Request request_at(const PagedAttentionArgs& a, std::int64_t b) {
  const std::int64_t first = b == 0 ? 0 : a.cu_q[b - 1];
  return {b, first, a.cu_q[b] - first, a.kv_lens[b]};
}

// The keys that query i of a request sees: [begin, end), begin and end grow with i.
inline Range visible_keys(const PagedAttentionArgs& a, const Request& r, std::int64_t i) {
  if (a.mask == MaskKind::full) return {0, r.kv_len};
  const std::int64_t position = r.position(i);
  if (position < 0) return {0, 0};
  std::int64_t begin = 0;
  if (a.mask == MaskKind::window) begin = std::max<std::int64_t>(0, position - a.window + 1);
  if (a.mask == MaskKind::chunked) begin = position / a.window * a.window;
  return {begin, position + 1};
}

// A unit: queries [q0, q1) and heads [h0, h1) of one kv head, over keys [k0, k1) of a request; or
// of `kv_heads` of them, with one query: then their rows lie one head after the other, and their
// keys are read in the order of memory.
struct Unit {
  Request request;
  std::int64_t kv_head, kv_heads, q0, q1, h0, h1;
  Range keys;
  std::int64_t split, n_splits;
  std::int64_t first_part;  // number of the partial result of split 0, row 0; see partial()
  std::int64_t rows() const { return (q1 - q0) * (h1 - h0); }
  std::int64_t rows_of_kv_head() const { return rows() / kv_heads; }
  std::int64_t cost() const { return rows() * (keys.end - keys.begin + 16); }
};

// How the keys of the queries [q0, q1) of a request are split, whatever the head.
struct KeySplit {
  Range keys;
  std::int64_t length, n;
};
inline KeySplit split_keys(const PagedAttentionArgs& a, const Request& r, std::int64_t q0,
                           std::int64_t q1) {
  KeySplit s;
  s.keys = {visible_keys(a, r, q0).begin, visible_keys(a, r, q1 - 1).end};
  s.keys.end = std::max(s.keys.begin, s.keys.end);
  const std::int64_t n = s.keys.end - s.keys.begin;
  s.length = std::max<std::int64_t>(n, 1);
  if (r.n_queries <= max_split_queries)
    s.length = std::max(min_split_keys, round_up((n + max_splits - 1) / max_splits, tile_keys));
  s.n = std::max<std::int64_t>(1, (n + s.length - 1) / s.length);
  return s;
}

// Calls f(unit) for all units, always in the same order. Heads come innermost: their keys lie side
// by side in memory, and what the prefetchers fetch too much for one head serves the next.
// Where each thread gets work even so, a unit takes all heads of one query; results are the same.
template <class F>
void for_each_unit(const PagedAttentionArgs& a, int n_threads, const F& f) {
  const std::int64_t group = a.q_heads / a.kv_heads;
  const std::int64_t heads_per_unit = std::min(group, tile_rows);
  std::int64_t n_parts = 0;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    Unit u;
    u.kv_heads = 1;
    u.request = request_at(a, b);
    const std::int64_t n_queries = u.request.n_queries;
    if (n_queries <= 0) continue;
    const std::int64_t queries_per_unit =
        std::min(n_queries, std::max<std::int64_t>(1, tile_rows / heads_per_unit));
    for (u.q0 = 0; u.q0 < n_queries; u.q0 += queries_per_unit) {
      u.q1 = std::min(u.q0 + queries_per_unit, n_queries);
      const KeySplit s = split_keys(a, u.request, u.q0, u.q1);
      const std::int64_t rows_of_head = (u.q1 - u.q0) * s.n;
      u.n_splits = s.n;
      for (u.split = 0; u.split < s.n; ++u.split) {
        u.keys.begin = s.keys.begin + u.split * s.length;
        u.keys.end = std::min(s.keys.end, u.keys.begin + s.length);
        if (n_queries == 1 && a.q_heads <= tile_rows &&
            s.n * a.batch >= std::int64_t{2} * n_threads) {
          u.kv_head = u.h0 = 0;
          u.h1 = a.q_heads;
          u.kv_heads = a.kv_heads;
          u.first_part = n_parts;
          f(u);
          continue;
        }
        for (u.kv_head = 0; u.kv_head < a.kv_heads; ++u.kv_head)
          for (std::int64_t h = 0; h < group; h += heads_per_unit) {
            u.h0 = u.kv_head * group + h;
            u.h1 = u.kv_head * group + std::min(h + heads_per_unit, group);
            u.first_part = n_parts + u.h0 * rows_of_head;
            f(u);
          }
      }
      if (s.n > 1) n_parts += a.q_heads * rows_of_head;
    }
  }
}

// Scratch: per thread its tiles, then the partial results of split units.
struct AttentionLayout {
  std::int64_t q, scores, out, k, v, state;  // bytes of each tile, multiples of 64
  std::int64_t part;                         // bytes of one partial row: out[dv], max, sum
  std::int64_t per_thread() const { return q + scores + out + k + v + state; }
};
inline AttentionLayout attention_layout(const PagedAttentionArgs& a) {
  const std::int64_t d = a.dk + a.dk2, vectors = round_up(a.dv, 32);
  return {round_up(tile_rows * d * 4, 64), tile_rows * tile_keys * 4,
          tile_rows * vectors * 4,         round_up(d, 2) * tile_keys * 4,
          tile_keys * vectors * 4,         round_up(tile_rows * 2 * 4, 64),
          round_up((a.dv + 2) * 4, 64)};
}

}  // namespace tk::kernels

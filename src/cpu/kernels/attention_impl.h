// How attention is cut into units of work, and where their scratch lies. Plain C++, no SIMD.
#pragma once

#include "cpu/kernels/attention.h"

namespace tk::kernels {

constexpr std::int64_t tile_rows = 64;  // rows (query, head) of a unit at most
constexpr std::int64_t tile_keys = 64;  // keys worked on at a time
constexpr std::int64_t max_split_queries =
    8;  // requests with more new queries are not split by keys
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

// A unit: queries [q0, q1) and heads [h0, h1) of one kv head, over keys [k0, k1) of a request.
struct Unit {
  Request request;
  std::int64_t kv_head, q0, q1, h0, h1;
  Range keys;
  std::int64_t split, n_splits;
  std::int64_t first_part;  // number of the partial result of split 0, row 0; see partial()
  std::int64_t rows() const { return (q1 - q0) * (h1 - h0); }
  std::int64_t cost() const { return rows() * (keys.end - keys.begin + 16); }
};

// Calls f(unit) for all units, always in the same order.
template <class F>
void for_each_unit(const PagedAttentionArgs& a, const F& f) {
  const std::int64_t group = a.q_heads / a.kv_heads;
  const std::int64_t heads_per_unit = std::min(group, tile_rows);
  std::int64_t n_parts = 0;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    const Request r = request_at(a, b);
    if (r.n_queries <= 0) continue;
    const std::int64_t queries_per_unit =
        std::min(r.n_queries, std::max<std::int64_t>(1, tile_rows / heads_per_unit));
    const bool may_split = r.n_queries <= max_split_queries;
    for (std::int64_t g = 0; g < a.kv_heads; ++g)
      for (std::int64_t q0 = 0; q0 < r.n_queries; q0 += queries_per_unit)
        for (std::int64_t h = 0; h < group; h += heads_per_unit) {
          Unit u;
          u.request = r;
          u.kv_head = g;
          u.q0 = q0;
          u.q1 = std::min(q0 + queries_per_unit, r.n_queries);
          u.h0 = g * group + h;
          u.h1 = g * group + std::min(h + heads_per_unit, group);
          const std::int64_t begin = visible_keys(a, r, u.q0).begin;
          const std::int64_t end = visible_keys(a, r, u.q1 - 1).end;
          const std::int64_t n = std::max<std::int64_t>(0, end - begin);
          std::int64_t length = std::max<std::int64_t>(n, 1);
          if (may_split)
            length =
                std::max(min_split_keys, round_up((n + max_splits - 1) / max_splits, tile_keys));
          u.n_splits = std::max<std::int64_t>(1, (n + length - 1) / length);
          u.first_part = n_parts;
          if (u.n_splits > 1) n_parts += u.n_splits * u.rows();
          for (u.split = 0; u.split < u.n_splits; ++u.split) {
            u.keys.begin = begin + u.split * length;
            u.keys.end = std::max(u.keys.begin, std::min(end, u.keys.begin + length));
            f(u);
          }
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

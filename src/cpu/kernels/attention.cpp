#include "cpu/kernels/attention.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "cpu/kernels/attention_bf16_dot.h"
#include "cpu/kernels/attention_impl.h"
#include "cpu/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/attention.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/kernels/attention_scores-inl.h"
#include "cpu/kernels/simd-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

// ---- online softmax of one row: scores become weights; returns what `out` is to be scaled by ----

float softmax_step(const PagedAttentionArgs& a, float* s, Range seen, float* max, float* total) {
  VF scale = set(a.scale);
  const VF cap = set(a.soft_cap);
  if (!(a.scale > 0.0F)) {  // by 0 or less -inf would not stay -inf: scaled before it is there
    for (std::int64_t j = 0; j < tile_keys; j += n_lanes) store(hn::Mul(load(s + j), scale), s + j);
    scale = set(1.0F);
  }
  for (std::int64_t j = 0; j < seen.begin; ++j) s[j] = minus_infinity;
  for (std::int64_t j = seen.end; j < tile_keys; ++j) s[j] = minus_infinity;
  VF top = set(*max);
  for (std::int64_t j = 0; j < tile_keys; j += n_lanes) {
    VF v = hn::Mul(load(s + j), scale);
    if (a.soft_cap > 0.0F) {
      const VF capped = hn::Mul(cap, tanh(hn::Div(v, cap)));
      v = hn::IfThenElse(hn::Eq(load(s + j), set(minus_infinity)), set(minus_infinity), capped);
    }
    store(v, s + j);
    top = hn::Max(top, v);
  }
  const float new_max = hn::GetLane(hn::MaxOfLanes(DF(), top));
  const float base = new_max == minus_infinity ? 0.0F : new_max;
  const VF b = set(base);
  VF added = hn::Zero(DF());
  for (std::int64_t j = 0; j < tile_keys; j += n_lanes) {
    const VF p = exp(hn::Sub(load(s + j), b));
    store(p, s + j);
    added = hn::Add(added, p);
  }
  const float alpha = std::exp(*max - base);
  *total = *total * alpha + sum(added);
  *max = new_max;
  return alpha;
}

// ---- values ----

// out[i] += sum_j p[i][j] v[j] over NV vectors of columns from c on, for MT rows. Meanwhile the
// same columns of the rows `next` (the next tile's keys) are fetched, if any.
template <int MT, int NV, class C>
HWY_INLINE void value_tile(const Tiles& t, std::int64_t r, std::int64_t c, const KeyTile<C>& tile,
                           const C* const* next) {
  float* out = t.out + r * t.ldv + c;
  const float* p = t.scores + r * tile_keys;
  constexpr bool pairs = in_pairs<C> && NV % 2 == 0;
  VF acc[MT][NV];
  for (int i = 0; i < MT; ++i)
    for (int l = 0; l < NV; ++l) {
      if constexpr (!pairs)
        acc[i][l] = load(out + i * t.ldv + l * n_lanes);
      else if (l % 2 == 0)
        hn::LoadInterleaved2(DF(), out + i * t.ldv + l * n_lanes, acc[i][l], acc[i][l + 1]);
    }
  for (std::int64_t j = 0; j < tile.n; ++j) {
    VF v[NV];
    for (int l = 0; l < NV; ++l) {
      if constexpr (!pairs)
        v[l] = load(tile.v[j] + c + l * n_lanes);
      else if (l % 2 == 0)
        widen_pairs(tile.v[j] + c + l * n_lanes, &v[l], &v[l + 1]);
    }
    if (next != nullptr)
      for (int l = 0; l < NV * n_lanes; l += 64 / static_cast<int>(sizeof(C)))
        hwy::Prefetch(next[j] + c + l);
    for (int i = 0; i < MT; ++i) {
      const VF w = set(p[i * tile_keys + j]);
      for (int l = 0; l < NV; ++l) acc[i][l] = hn::MulAdd(w, v[l], acc[i][l]);
    }
  }
  for (int i = 0; i < MT; ++i)
    for (int l = 0; l < NV; ++l) {
      if constexpr (!pairs)
        store(acc[i][l], out + i * t.ldv + l * n_lanes);
      else if (l % 2 == 0)
        hn::StoreInterleaved2(acc[i][l], acc[i][l + 1], DF(), out + i * t.ldv + l * n_lanes);
    }
}

template <int MT, class C>
HWY_INLINE void value_rows(const Tiles& t, std::int64_t r, std::int64_t dv, const KeyTile<C>& tile,
                           const C* const* next) {
  constexpr int nv = HWY_CAP_GE512 || MT < 4 ? 4 : 2;  // what the registers hold
  std::int64_t c = 0;
  for (; c + nv * n_lanes <= dv; c += nv * n_lanes) value_tile<MT, nv>(t, r, c, tile, next);
  for (; c + n_lanes <= dv; c += n_lanes) value_tile<MT, 1>(t, r, c, tile, next);
  for (; c < dv; ++c)
    for (int i = 0; i < MT; ++i) {
      float& out = t.out[(r + i) * t.ldv + c];
      for (std::int64_t j = 0; j < tile.n; ++j)
        out += t.scores[(r + i) * tile_keys + j] * as_float(tile.v[j][c]);
    }
}

template <class C>
void values_by_rows(const Tiles& t, std::int64_t rows, std::int64_t dv, const KeyTile<C>& tile,
                    const C* const* next) {
  std::int64_t r = 0;
  for (; r + dot_rows <= rows; r += dot_rows)
    value_rows<dot_rows>(t, r, dv, tile, r == 0 ? next : nullptr);
  if (r > 0) next = nullptr;
  if (rows - r == 3) value_rows<3>(t, r, dv, tile, next);
  if (rows - r == 2) value_rows<2>(t, r, dv, tile, next);
  if (rows - r == 1) value_rows<1>(t, r, dv, tile, next);
}

template <class C>
void values_by_gemm(const Tiles& t, std::int64_t rows, std::int64_t dv, const KeyTile<C>& tile) {
  for (std::int64_t j = 0; j < tile.n; ++j) widen(tile.v[j], dv, t.v + j * t.ldv);
  gemm(t.scores, tile_keys, t.v, t.ldv, rows, t.ldv, tile.n, true, t.out, t.ldv);
}

// ---- units ----

float* partial(const PagedAttentionArgs& a, int n_threads, std::int64_t number) {
  const AttentionLayout l = attention_layout(a);
  return reinterpret_cast<float*>(static_cast<char*>(a.scratch) + l.per_thread() * n_threads +
                                  l.part * number);
}

// out = values / (total + the sink), for one row.
void write_row(const PagedAttentionArgs& a, const Unit& u, std::int64_t r, const float* values,
               float max, float total) {
  const std::int64_t heads = u.h1 - u.h0;
  const std::int64_t token = u.request.first_query + u.q0 + r / heads, head = u.h0 + r % heads;
  float factor = 1.0F;
  if (a.sinks != nullptr) {
    const float top = std::max(max, a.sinks[head]);
    factor = max == minus_infinity ? 0.0F : std::exp(max - top);
    total = total * factor + std::exp(a.sinks[head] - top);
  }
  // Nothing seen: the sum is 0, and so shall the answer be.
  const VF scale = set(total == 0.0F ? 0.0F : factor / total);
  const std::int64_t at = token * a.out_stride + head * a.out_head_stride;
  std::int64_t i = 0;
  for (; i + n_lanes <= a.dv; i += n_lanes)
    store_any(hn::Mul(load(values + i), scale), a.dtype, a.out, at + i);
  if (i < a.dv)
    store_any_tail(hn::Mul(load_tail(values + i, a.dv - i), scale), a.dtype, a.out, at + i,
                   a.dv - i);
}

// Where the queries of a unit lie, for the products that take them as they are.
struct QueryRows {
  const bf16* q[tile_rows];
  const bf16* q2[tile_rows];
};

QueryRows find_queries(const PagedAttentionArgs& a, const Unit& u) {
  QueryRows rows;
  const std::int64_t heads = u.h1 - u.h0;
  for (std::int64_t r = 0; r < u.rows(); ++r) {
    const std::int64_t token = u.request.first_query + u.q0 + r / heads, head = u.h0 + r % heads;
    rows.q[r] = static_cast<const bf16*>(a.q) + token * a.q_stride + head * a.q_head_stride;
    rows.q2[r] =
        a.dk2 == 0 ? nullptr
                   : static_cast<const bf16*>(a.q2) + token * a.q2_stride + head * a.q2_head_stride;
  }
  return rows;
}

// Scores of a tile through vdpbf16ps, for the rows from r0 of the queries.
void score_by_bf16_dot(const PagedAttentionArgs& a, const Tiles& t, std::int64_t r0,
                       std::int64_t rows, const QueryRows& q, const KeyTile<bf16>& tile) {
  bf16* panel = reinterpret_cast<bf16*>(t.k);
  scores_bf16_dot(q.q + r0, rows, tile.k, tile.n, a.dk, false, panel, t.scores, tile_keys, tile.v,
                  a.dv);
  if (a.dk2 > 0)
    scores_bf16_dot(q.q2 + r0, rows, tile.k2, tile.n, a.dk2, true, panel, t.scores, tile_keys,
                    tile.v, 0);
}

HWY_INLINE void scale_row(float* row, std::int64_t n, float by) {
  for (std::int64_t i = 0; i < n; i += n_lanes) store(hn::Mul(load(row + i), set(by)), row + i);
}

// Scores become weights, and what was summed up so far is scaled. `powers_of_two`: max counts
// these.
template <class C>
void softmax_rows(const PagedAttentionArgs& a, const Unit& u, const Tiles& t, std::int64_t rows,
                  std::int64_t key, const KeyTile<C>& tile, bool powers_of_two) {
  const std::int64_t heads = u.h1 - u.h0;
  for (std::int64_t r = 0; r < rows; ++r) {
    Range seen = visible_keys(a, u.request, u.q0 + r / heads);
    seen.begin = std::clamp<std::int64_t>(seen.begin - key, 0, tile.n);
    seen.end = std::clamp<std::int64_t>(seen.end - key, seen.begin, tile.n);
    float* s = t.scores + r * tile_keys;
    const float by = powers_of_two ? softmax_step_bf16_dot(a.scale, s, round_up(tile.n, 16), seen,
                                                           &t.max[r], &t.sum[r])
                                   : softmax_step(a, s, seen, &t.max[r], &t.sum[r]);
    if (by != 1.0F) scale_row(t.out + r * t.ldv, t.ldv, by);
  }
}

// The rows of one kv head of a unit, from r0.
Tiles part_of(const Tiles& t, std::int64_t r0) {
  Tiles part = t;
  part.q += r0 * t.d;
  part.scores += r0 * tile_keys;
  part.out += r0 * t.ldv;
  part.max += r0;
  part.sum += r0;
  return part;
}

// `after`: the unit that the thread works on next, if any.
template <class C>
void run_unit(const PagedAttentionArgs& a, const Unit& u, const Unit* after, const Tiles& t,
              int n_threads) {
  const std::int64_t rows = u.rows(), rows_of_head = u.rows_of_kv_head();
  bool native = false;
  if constexpr (HWY_TARGET == HWY_AVX3 && std::is_same_v<C, bf16>)
    native = a.dtype == DType::bf16 && use_bf16_dot();
  const bool packed = rows_of_head >= (native ? min_packed_rows : min_gemm_rows);
  const bool powers_of_two = native && a.soft_cap == 0.0F;
  QueryRows q;
  if (native)
    q = find_queries(a, u);
  else
    load_queries(a, u, t, in_pairs<C> && !packed);
  for (std::int64_t r = 0; r < rows; ++r) {
    t.max[r] = minus_infinity;
    t.sum[r] = 0.0F;
    for (std::int64_t i = 0; i < t.ldv; i += n_lanes) store(hn::Zero(DF()), t.out + r * t.ldv + i);
  }
  KeyTile<C> tile;
  Fetch<C> fetch;
  for (std::int64_t key = u.keys.begin; key < u.keys.end; key += tile_keys)
    for (std::int64_t g = 0; g < u.kv_heads; ++g) {
      const std::int64_t r0 = g * rows_of_head;
      const Tiles part = part_of(t, r0);
      find_keys(a, u.request, u.kv_head + g, key, std::min(tile_keys, u.keys.end - key), &tile);
      if (key + tile_keys < u.keys.end)
        find_fetch(a, u, key + tile_keys, g, &fetch);
      else if (after != nullptr && g < after->kv_heads)
        find_fetch(a, *after, after->keys.begin, g, &fetch);
      else
        fetch.any = false;
      const C* const* next_k = fetch.any ? fetch.k : nullptr;
      if constexpr (std::is_same_v<C, bf16>) {
        if (native) {
          score_by_bf16_dot(a, part, r0, rows_of_head, q, tile);
          softmax_rows(a, u, part, rows_of_head, key, tile, powers_of_two);
          if (packed)
            values_bf16_dot(part.scores, tile_keys, rows_of_head, tile.v, tile.n, a.dv,
                            reinterpret_cast<bf16*>(t.v), part.out, t.ldv);
          else
            values_by_rows(part, rows_of_head, a.dv, tile, next_k);
          continue;
        }
      }
      if (packed)
        score_by_gemm(a, part, rows_of_head, tile);
      else
        score_by_dots(a, part, rows_of_head, tile, next_k);
      softmax_rows(a, u, part, rows_of_head, key, tile, false);
      if (packed)
        values_by_gemm(part, rows_of_head, a.dv, tile);
      else
        values_by_rows(part, rows_of_head, a.dv, tile, fetch.any ? fetch.v : nullptr);
    }
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* out = t.out + r * t.ldv;
    if (powers_of_two) t.max[r] *= 0.693147181F;
    if (u.n_splits == 1) {
      write_row(a, u, r, out, t.max[r], t.sum[r]);
      continue;
    }
    float* part = partial(a, n_threads, u.first_part + u.split * rows + r);
    std::memcpy(part, out, static_cast<std::size_t>(a.dv) * sizeof(float));
    part[a.dv] = t.max[r];
    part[a.dv + 1] = t.sum[r];
  }
}

void zero_padding(const PagedAttentionArgs& a, int thread, int n_threads) {
  const std::int64_t used = a.batch == 0 ? 0 : a.cu_q[a.batch - 1];
  const Range part = share((a.tokens - used) * a.q_heads, 1, thread, n_threads);
  const auto size = static_cast<std::int64_t>(size_of(a.dtype));
  for (std::int64_t u = part.begin; u < part.end; ++u) {
    const std::int64_t at =
        (used + u / a.q_heads) * a.out_stride + u % a.q_heads * a.out_head_stride;
    std::memset(static_cast<char*>(a.out) + at * size, 0, static_cast<std::size_t>(a.dv * size));
  }
}

void paged_attention(const PagedAttentionArgs& a, int thread, int n_threads) {
  std::int64_t total = 0, before = 0;
  for_each_unit(a, n_threads, [&](const Unit& u) { total += u.cost(); });
  const Tiles tiles = tiles_of(a, thread);
  Unit mine{};  // waits until the one after it is known
  bool waits = false;
  const auto run = [&](const Unit* after) HWY_ATTR {
    if (!waits) return;
    with_float(a.cache_dtype,
               [&](auto c) HWY_ATTR { run_unit<decltype(c)>(a, mine, after, tiles, n_threads); });
  };
  for_each_unit(a, n_threads, [&](const Unit& u) HWY_ATTR {
    const std::int64_t middle = before + u.cost() / 2;
    before += u.cost();
    if (middle * n_threads / total != thread) return;
    run(&u);
    mine = u;
    waits = true;
  });
  run(nullptr);
  zero_padding(a, thread, n_threads);
}

void combine_row(const PagedAttentionArgs& a, const Unit& u, std::int64_t r, float* values,
                 int n_threads) {
  float max = minus_infinity, total = 0.0F;
  const std::int64_t rows = u.rows();
  for (std::int64_t s = 0; s < u.n_splits; ++s) {
    const float m = partial(a, n_threads, u.first_part + s * rows + r)[a.dv];
    max = m > max || m != m ? m : max;  // a NaN stays
  }
  std::memset(values, 0, static_cast<std::size_t>(a.dv) * sizeof(float));
  for (std::int64_t s = 0; s < u.n_splits; ++s) {
    const float* part = partial(a, n_threads, u.first_part + s * rows + r);
    if (part[a.dv] == minus_infinity && part[a.dv + 1] == 0.0F) continue;
    const float factor = std::exp(part[a.dv] - max);
    total += part[a.dv + 1] * factor;
    std::int64_t i = 0;
    for (; i + n_lanes <= a.dv; i += n_lanes)
      store(hn::MulAdd(load(part + i), set(factor), load(values + i)), values + i);
    for (; i < a.dv; ++i) values[i] += part[i] * factor;
  }
  write_row(a, u, r, values, max, total);
}

void paged_attention_combine(const PagedAttentionArgs& a, int thread, int n_threads) {
  float* values = tiles_of(a, thread).out;
  std::int64_t row = 0;
  for_each_unit(a, n_threads, [&](const Unit& u) HWY_ATTR {
    if (u.n_splits == 1 || u.split > 0) return;
    for (std::int64_t r = 0; r < u.rows(); ++r)
      if (row++ % n_threads == thread) combine_row(a, u, r, values, n_threads);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tk::kernels {

HWY_EXPORT(paged_attention);
HWY_EXPORT(paged_attention_combine);

void paged_attention(const PagedAttentionArgs& a, int thread, int n_threads) {
  HWY_DYNAMIC_DISPATCH(paged_attention)(a, thread, n_threads);
}
void paged_attention_combine(const PagedAttentionArgs& a, int thread, int n_threads) {
  HWY_DYNAMIC_DISPATCH(paged_attention_combine)(a, thread, n_threads);
}

std::size_t paged_attention_scratch_bytes(const PagedAttentionArgs& a, int n_threads) {
  const AttentionLayout l = attention_layout(a);
  const std::int64_t queries = std::min(a.tokens, max_split_queries * a.batch);
  const std::int64_t splits =
      std::clamp<std::int64_t>((a.max_kv_len + min_split_keys - 1) / min_split_keys, 1, max_splits);
  return static_cast<std::size_t>(l.per_thread() * n_threads +
                                  queries * a.q_heads * splits * l.part);
}

}  // namespace tk::kernels
#endif

// Scores of a tile of keys: the queries of a unit, the keys where they lie in the cache, the
// products by dots (few rows) or as a small matrix product (many).
#include <limits>
#include <type_traits>

#include "cpu/kernels/attention_impl.h"
#include "cpu/kernels/simd-inl.h"
#include "hwy/cache_control.h"

#if defined(TK_KERNELS_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TK_KERNELS_ATTENTION_SCORES_INL_H_
#undef TK_KERNELS_ATTENTION_SCORES_INL_H_
#else
#define TK_KERNELS_ATTENTION_SCORES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

// Fewer rows of a unit take the keys as they lie; for more, a transposed copy pays.
constexpr std::int64_t min_gemm_rows = 17;

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// The tiles of one thread, f32. Row r of a unit is query q0 + r / n_heads, head h0 + r % n_heads.
struct Tiles {
  float* q;       // [rows, d], d = dk + dk2
  float* scores;  // [rows, tile_keys]
  float* out;     // [rows, ldv], not yet divided by the sum
  float* k;       // [d, tile_keys], transposed
  float* v;       // [tile_keys, ldv]
  float* max;     // [rows]
  float* sum;     // [rows]
  std::int64_t d, ldv;
};

Tiles tiles_of(const PagedAttentionArgs& a, int thread) {
  const AttentionLayout l = attention_layout(a);
  char* p = static_cast<char*>(a.scratch) + l.per_thread() * thread;
  const auto take = [&p](std::int64_t bytes) {
    float* at = reinterpret_cast<float*>(p);
    p += bytes;
    return at;
  };
  Tiles t;
  t.q = take(l.q);
  t.scores = take(l.scores);
  t.out = take(l.out);
  t.k = take(l.k);
  t.v = take(l.v);
  t.max = take(l.state);
  t.sum = t.max + tile_rows;
  t.d = a.dk + a.dk2;
  t.ldv = round_up(a.dv, 32);
  return t;
}

template <class T>
HWY_INLINE void widen(const T* x, std::int64_t n, float* out) {
  std::int64_t i = 0;
  for (; i + n_lanes <= n; i += n_lanes) store(load(x + i), out + i);
  for (; i < n; ++i) out[i] = as_float(x[i]);
}

// Two vectors of bf16 are widened with three instructions when even and odd places go apart: the
// queries lie so then, in each run of 2 * n_lanes the even places before the odd ones.
template <class C>
constexpr bool in_pairs = std::is_same_v<C, bf16> && HWY_TARGET != HWY_SCALAR;

HWY_INLINE void widen_pairs(const bf16* x, VF* even, VF* odd) {
  const hn::RebindToUnsigned<DF> du;
  const auto both = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(x));
  *even = hn::BitCast(DF(), hn::ShiftLeft<16>(both));
  *odd = hn::BitCast(DF(), hn::And(both, hn::Set(du, 0xffff0000U)));
}

void part_pairs(float* x, std::int64_t n) {
  HWY_ALIGN float copy[2 * HWY_LANES(float)];
  for (; n >= 2 * n_lanes; n -= 2 * n_lanes, x += 2 * n_lanes) {
    std::memcpy(copy, x, sizeof copy);
    for (std::int64_t l = 0; l < n_lanes; ++l) {
      x[l] = copy[2 * l];
      x[n_lanes + l] = copy[2 * l + 1];
    }
  }
}

void load_queries(const PagedAttentionArgs& a, const Unit& u, const Tiles& t, bool pairs) {
  const std::int64_t heads = u.h1 - u.h0;
  with_float(a.dtype, [&](auto tag) HWY_ATTR {
    using Q = decltype(tag);
    for (std::int64_t r = 0; r < u.rows(); ++r) {
      const std::int64_t token = u.request.first_query + u.q0 + r / heads, head = u.h0 + r % heads;
      widen(static_cast<const Q*>(a.q) + token * a.q_stride + head * a.q_head_stride, a.dk,
            t.q + r * t.d);
      if (a.dk2 > 0)
        widen(static_cast<const Q*>(a.q2) + token * a.q2_stride + head * a.q2_head_stride, a.dk2,
              t.q + r * t.d + a.dk);
      if (!pairs) continue;
      part_pairs(t.q + r * t.d, a.dk);
      part_pairs(t.q + r * t.d + a.dk, a.dk2);
    }
  });
}

// Where the rows of a tile of keys lie.
template <class C>
struct KeyTile {
  const C* k[tile_keys];
  const C* k2[tile_keys];
  const C* v[tile_keys];
  std::int64_t n;
};

template <class C>
HWY_INLINE const C* cache_row(const CacheView& c, std::int64_t block, std::int64_t slot,
                              std::int64_t head) {
  return static_cast<const C*>(c.data) + block * c.block_stride + slot * c.slot_stride +
         head * c.head_stride;
}

template <class C>
void find_keys(const PagedAttentionArgs& a, const Request& request, std::int64_t kv_head,
               std::int64_t key, std::int64_t n, KeyTile<C>* tile) {
  tile->n = n;
  const std::int32_t* table = a.block_table + request.index * a.block_table_stride;
  for (std::int64_t j = 0; j < n;) {
    const std::int64_t block = table[(key + j) / a.block_size];
    for (std::int64_t slot = (key + j) % a.block_size; slot < a.block_size && j < n; ++slot, ++j) {
      tile->k[j] = cache_row<C>(a.k, block, slot, kv_head);
      tile->v[j] = cache_row<C>(a.v, block, slot, kv_head);
      tile->k2[j] = a.dk2 > 0 ? cache_row<C>(a.k2, block, slot, kv_head) : nullptr;
    }
  }
}

// Rows that are fetched while a tile is worked on: part `part` of `u.kv_heads` of the tile of all
// heads of `u` at `key`, in the order of memory. None when no whole tile is there.
template <class C>
struct Fetch {
  const C* k[tile_keys];
  const C* v[tile_keys];
  bool any = false;
};
template <class C>
void find_fetch(const PagedAttentionArgs& a, const Unit& u, std::int64_t key, std::int64_t part,
                Fetch<C>* fetch) {
  fetch->any = key + tile_keys <= u.keys.end;
  if (!fetch->any) return;
  const std::int32_t* table = a.block_table + u.request.index * a.block_table_stride;
  std::int64_t head = part * tile_keys % u.kv_heads;
  key += part * tile_keys / u.kv_heads;
  for (std::int64_t j = 0; j < tile_keys; ++key) {
    const std::int64_t block = table[key / a.block_size], slot = key % a.block_size;
    for (; head < u.kv_heads && j < tile_keys; ++head, ++j) {
      fetch->k[j] = cache_row<C>(a.k, block, slot, u.kv_head + head);
      fetch->v[j] = cache_row<C>(a.v, block, slot, u.kv_head + head);
    }
    head = 0;
  }
}

// ---- scores ----

// Rows (query, head) whose dots with four keys are summed up side by side: with three, the twelve
// sums, the rows and a key fit the 16 registers of AVX2.
constexpr int dot_rows = HWY_CAP_GE512 ? 4 : 3;

// acc[i][j] += x[i] . k[j] over n elements, for MT rows (stride d) and 4 keys.
template <int MT, class C>
HWY_INLINE void add_dots(const float* x, std::int64_t d, const C* const* k, std::int64_t n,
                         VF (&acc)[MT][4]) {
  std::int64_t p = 0;
  if constexpr (in_pairs<C>) {
    for (; p + 2 * n_lanes <= n; p += 2 * n_lanes)
      for (int j = 0; j < 4; ++j) {
        VF even, odd;
        widen_pairs(k[j] + p, &even, &odd);
        for (int i = 0; i < MT; ++i) acc[i][j] = hn::MulAdd(load(x + i * d + p), even, acc[i][j]);
        for (int i = 0; i < MT; ++i)
          acc[i][j] = hn::MulAdd(load(x + i * d + p + n_lanes), odd, acc[i][j]);
      }
  }
  for (; p + n_lanes <= n; p += n_lanes) {
    VF xv[MT];
    for (int i = 0; i < MT; ++i) xv[i] = load(x + i * d + p);
    for (int j = 0; j < 4; ++j) {
      const VF kv = load(k[j] + p);
      for (int i = 0; i < MT; ++i) acc[i][j] = hn::MulAdd(xv[i], kv, acc[i][j]);
    }
  }
  if (p == n) return;
  for (int j = 0; j < 4; ++j) {
    const VF kv = load_tail(k[j] + p, n - p);
    for (int i = 0; i < MT; ++i)
      acc[i][j] = hn::MulAdd(load_tail(x + i * d + p, n - p), kv, acc[i][j]);
  }
}

// out[0..3] = the sums of the lanes of four vectors.
HWY_INLINE void store_sums(const VF (&v)[4], float* out) {
#if HWY_TARGET == HWY_SCALAR
  for (int l = 0; l < 4; ++l) out[l] = sum(v[l]);
#else
  const hn::Repartition<double, DF> pairs;
  const DF d;
  const auto ab = hn::BitCast(
      pairs, hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1])));
  const auto cd = hn::BitCast(
      pairs, hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3])));
  // In each block of 128 bits, the four sums of its lanes.
  const VF all = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, ab, cd)),
                         hn::BitCast(d, hn::InterleaveUpper(pairs, ab, cd)));
#if HWY_CAP_GE512
  const hn::Half<DF> d8;
  const auto half = hn::Add(hn::LowerHalf(d8, all), hn::UpperHalf(d8, all));
#else
  const DF d8;
  const VF half = all;
#endif
  const hn::Half<decltype(d8)> d4;
  hn::StoreU(hn::Add(hn::LowerHalf(d4, half), hn::UpperHalf(d4, half)), d4, out);
#endif
}

// Meanwhile the rows `next`, if any, are fetched.
template <int MT, class C>
HWY_INLINE void score_rows(const PagedAttentionArgs& a, const Tiles& t, std::int64_t r,
                           const KeyTile<C>& tile, const C* const* next) {
  for (std::int64_t j = 0; j < tile.n; j += 4) {
    // Past the end the last key is repeated; its scores are not looked at.
    const C *k[4], *k2[4];
    for (int l = 0; l < 4; ++l) {
      const std::int64_t at = std::min<std::int64_t>(j + l, tile.n - 1);
      k[l] = tile.k[at];
      k2[l] = tile.k2[at];
      if (next != nullptr)
        for (std::int64_t c = 0; c < a.dk; c += 64 / static_cast<std::int64_t>(sizeof(C)))
          hwy::Prefetch(next[j + l] + c);
    }
    VF acc[MT][4];
    for (int i = 0; i < MT; ++i)
      for (int l = 0; l < 4; ++l) acc[i][l] = hn::Zero(DF());
    add_dots<MT>(t.q + r * t.d, t.d, k, a.dk, acc);
    if (a.dk2 > 0) add_dots<MT>(t.q + r * t.d + a.dk, t.d, k2, a.dk2, acc);
    for (int i = 0; i < MT; ++i) store_sums(acc[i], t.scores + (r + i) * tile_keys + j);
  }
}

// Few rows: keys as they lie.
template <class C>
void score_by_dots(const PagedAttentionArgs& a, const Tiles& t, std::int64_t rows,
                   const KeyTile<C>& tile, const C* const* next) {
  std::int64_t r = 0;
  for (; r + dot_rows <= rows; r += dot_rows)
    score_rows<dot_rows>(a, t, r, tile, r == 0 ? next : nullptr);
  if (r > 0) next = nullptr;
  if (rows - r == 3) score_rows<3>(a, t, r, tile, next);
  if (rows - r == 2) score_rows<2>(a, t, r, tile, next);
  if (rows - r == 1) score_rows<1>(a, t, r, tile, next);
}

// c[i * ldc + j] (+)= a[i] . b[:, j] for MT rows and NV vectors of columns.
template <int MT, int NV>
HWY_INLINE void gemm_tile(const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
                          std::int64_t k, bool add, float* c, std::int64_t ldc) {
  VF acc[MT][NV];
  for (int i = 0; i < MT; ++i)
    for (int v = 0; v < NV; ++v) acc[i][v] = add ? load(c + i * ldc + v * n_lanes) : hn::Zero(DF());
  for (std::int64_t p = 0; p < k; ++p) {
    VF bv[NV];
    for (int v = 0; v < NV; ++v) bv[v] = load(b + p * ldb + v * n_lanes);
    for (int i = 0; i < MT; ++i) {
      const VF av = set(a[i * lda + p]);
      for (int v = 0; v < NV; ++v) acc[i][v] = hn::MulAdd(av, bv[v], acc[i][v]);
    }
  }
  for (int i = 0; i < MT; ++i)
    for (int v = 0; v < NV; ++v) store(acc[i][v], c + i * ldc + v * n_lanes);
}

// n: a multiple of 2 * n_lanes.
HWY_NOINLINE void gemm(const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
                       std::int64_t m, std::int64_t n, std::int64_t k, bool add, float* c,
                       std::int64_t ldc) {
  constexpr int mt = HWY_CAP_GE512 ? 8 : 4;
  std::int64_t i = 0;
  for (; i + mt <= m; i += mt)
    for (std::int64_t j = 0; j < n; j += 2 * n_lanes)
      gemm_tile<mt, 2>(a + i * lda, lda, b + j, ldb, k, add, c + i * ldc + j, ldc);
  for (; i < m; ++i)
    for (std::int64_t j = 0; j < n; j += 2 * n_lanes)
      gemm_tile<1, 2>(a + i * lda, lda, b + j, ldb, k, add, c + i * ldc + j, ldc);
}

// out[p * tile_keys + j] = k[j][p]; four keys at a time, so that their columns are written
// together.
template <class C>
void transpose_keys(const C* const* k, std::int64_t n, std::int64_t d, float* out) {
  HWY_ALIGN float lanes[4 * HWY_LANES(float)];
  std::int64_t j = 0;
  for (; j + 4 <= n; j += 4) {
    std::int64_t p = 0;
    for (; p + n_lanes <= d; p += n_lanes) {
      hn::StoreInterleaved4(load(k[j] + p), load(k[j + 1] + p), load(k[j + 2] + p),
                            load(k[j + 3] + p), DF(), lanes);
      for (std::int64_t l = 0; l < n_lanes; ++l)
        std::memcpy(out + (p + l) * tile_keys + j, lanes + 4 * l, 4 * sizeof(float));
    }
    for (; p < d; ++p)
      for (std::int64_t i = 0; i < 4; ++i) out[p * tile_keys + j + i] = as_float(k[j + i][p]);
  }
  for (; j < n; ++j)
    for (std::int64_t p = 0; p < d; ++p) out[p * tile_keys + j] = as_float(k[j][p]);
}

// Many rows: the keys transposed, so that a vector holds the scores of n_lanes keys.
template <class C>
void score_by_gemm(const PagedAttentionArgs& a, const Tiles& t, std::int64_t rows,
                   const KeyTile<C>& tile) {
  transpose_keys(tile.k, tile.n, a.dk, t.k);
  if (a.dk2 > 0) transpose_keys(tile.k2, tile.n, a.dk2, t.k + a.dk * tile_keys);
  gemm(t.q, t.d, t.k, tile_keys, rows, tile_keys, t.d, false, t.scores, tile_keys);
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

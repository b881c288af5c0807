// Attention over keys that lie side by side, [B, heads, S, D], as a static cache has them; and
// writes into such a cache. Where each query of a run sees keys that lie side by side up to its own
// position, all or a window of them, as with causal masks, padding on the left and sliding windows,
// the kernel of paged attention runs, with the cache as one block per sequence.
#include <array>
#include <cmath>

#include "base/error.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/cache.h"
#include "cpu/prepare.h"
#include "cpu/rows.h"

namespace tk {
namespace {

// What a run's mask turns out to be. Of sequence b the queries from odd_rows[b] on see keys that
// lie side by side, up to their own position: from the same first key, or the last `window` of
// them.
struct MaskFacts {
  std::int32_t* kv_lens;  // [B]: keys from that first one to the last query's
  std::int32_t* table;    // [B]: where the first one lies, in rows from the first launched sequence
  std::int32_t* odd_rows;  // [B]: queries before these go through the plain loops
  std::int64_t* window;    // of all sequences; 0: none
};

struct MaskCheck {
  TensorView mask;  // [B or 1, heads or 1, S or 1, keys], strides 0 where it is broadcast
  MaskFacts facts;
  std::int64_t batch, queries, keys;
  std::int64_t
      rows_apart;  // from sequence to sequence, as table counts; 0: each from its own start
};

float mask_value(const TensorView& m, std::int64_t at) {
  switch (m.dtype) {
    case DType::boolean:
      return m.as<std::uint8_t>()[at] != 0 ? 0.0F : -INFINITY;
    case DType::bf16:
      return to_float(m.as<bf16>()[at]);
    case DType::f16:
      return to_float(m.as<f16>()[at]);
    default:
      return m.as<float>()[at];
  }
}

// Softmax gives such a key exactly nothing, as long as another one is visible.
bool hides(float mask) { return mask <= -1e30F; }

// The keys that a query sees, when they lie side by side.
struct Visible {
  std::int64_t first = 0, end = -1;
  bool fits() const { return end > first; }
};

Visible visible(const TensorView& m, std::int64_t row, std::int64_t keys) {
  const auto value = [&](std::int64_t j) { return mask_value(m, row + j * m.strides[3]); };
  Visible v;
  while (v.first < keys && hides(value(v.first))) ++v.first;
  v.end = v.first;
  while (v.end < keys && value(v.end) == 0) ++v.end;
  for (std::int64_t j = v.end; j < keys; ++j)
    if (!hides(value(j))) return {};
  return v;
}

struct SequenceFacts {
  std::int64_t first = 0, len = 0, window = 0, odd_rows = 0;
};

// From the last query up, as long as each sees one key less at the end; above those are the odd
// ones.
SequenceFacts facts_of(const MaskCheck& a, std::int64_t b) {
  const std::int64_t row = b * a.mask.strides[0];
  const auto at = [&](std::int64_t i) {
    return visible(a.mask, row + i * a.mask.strides[2], a.keys);
  };
  const Visible last = at(a.queries - 1);
  SequenceFacts f{last.first, 0, 0, a.queries};
  if (!last.fits()) return f;
  const std::int64_t most = last.end - last.first;
  f.odd_rows = a.queries - 1;
  bool slides = true;  // as long as each query further up starts one key earlier
  for (; f.odd_rows > 0; --f.odd_rows) {
    const Visible v = at(f.odd_rows - 1);
    if (!v.fits() || v.end != last.end - (a.queries - f.odd_rows)) break;
    if (v.first == f.first) {
      slides = false;
    } else if (slides && v.end - v.first == most) {  // a window, which the last query fills
      f.window = most;
      f.first = v.first;
    } else {
      break;
    }
  }
  f.len = last.end - f.first;
  return f;
}

void check_mask(const MaskCheck& a, int /*thread*/, int /*n_threads*/) {
  std::int64_t window = 0;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    const SequenceFacts f = facts_of(a, b);
    a.facts.kv_lens[b] = static_cast<std::int32_t>(f.len);
    a.facts.table[b] = static_cast<std::int32_t>(b * a.rows_apart + f.first);
    a.facts.odd_rows[b] = static_cast<std::int32_t>(f.odd_rows);
    // One window for all: sequences that are shorter do not notice it.
    if (f.window != 0 && window == 0) window = f.window;
  }
  *a.facts.window = window;
  for (std::int64_t b = 0; b < a.batch && window != 0; ++b) {
    const SequenceFacts f = facts_of(a, b);
    if (f.window == window || f.len <= window) continue;
    a.facts.kv_lens[b] = 0;
    a.facts.odd_rows[b] = static_cast<std::int32_t>(a.queries);
  }
}

// The paged kernel with the window that the run's mask has.
struct ByMask {
  kernels::PagedAttentionArgs args;
  const std::int64_t* window;
};

kernels::PagedAttentionArgs args_of(const ByMask& a) {
  kernels::PagedAttentionArgs args = a.args;
  if (a.window != nullptr && *a.window != 0) {
    args.mask = kernels::MaskKind::window;
    args.window = *a.window;
  }
  return args;
}

void attention(const ByMask& a, int thread, int n_threads) {
  kernels::paged_attention(args_of(a), thread, n_threads);
}

void attention_combine(const ByMask& a, int thread, int n_threads) {
  kernels::paged_attention_combine(args_of(a), thread, n_threads);
}

struct GeneralArgs {
  TensorView q, k, v, mask, out;  // mask as in MaskCheck, or without data
  const float* sinks;
  const std::int32_t* odd_rows;  // null: all are
  float scale, soft_cap;
  bool causal;
  float* rows;  // for each thread: the query, the scores, the sum
};

void load(const TensorView& t, std::int64_t at, std::int64_t n, float* to) {
  if (t.dtype == DType::bf16) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = to_float(t.as<bf16>()[at + i]);
  } else if (t.dtype == DType::f16) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = to_float(t.as<f16>()[at + i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = t.as<float>()[at + i];
  }
}

void store(const TensorView& t, std::int64_t at, std::int64_t n, const float* from) {
  if (t.dtype == DType::bf16) {
    for (std::int64_t i = 0; i < n; ++i) t.as<bf16>()[at + i] = to_bf16(from[i]);
  } else if (t.dtype == DType::f16) {
    for (std::int64_t i = 0; i < n; ++i) t.as<f16>()[at + i] = to_f16(from[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) t.as<float>()[at + i] = from[i];
  }
}

std::int64_t row_floats(const TensorView& q, const TensorView& k, const TensorView& v) {
  return 2 * q.shape[3] + k.shape[2] + 2 * v.shape[3] + 16;
}

void general_row(const GeneralArgs& a, std::int64_t b, std::int64_t h, std::int64_t i,
                 float* rows) {
  const std::int64_t dim = a.q.shape[3];
  const std::int64_t v_dim = a.v.shape[3];
  const std::int64_t keys = a.k.shape[2];
  const std::int64_t kv_head = h / (a.q.shape[1] / a.k.shape[1]);
  float* const query = rows;
  float* const row = query + dim;
  float* const scores = row + std::max(dim, v_dim);
  float* const sum = scores + keys;
  load(a.q, b * a.q.strides[0] + h * a.q.strides[1] + i * a.q.strides[2], dim, query);
  float top = a.sinks != nullptr ? a.sinks[h] : -INFINITY;
  for (std::int64_t j = 0; j < keys; ++j) {
    scores[j] = -INFINITY;
    float bias = a.causal && j > i ? -INFINITY : 0.0F;
    if (a.mask.data != nullptr)
      bias += mask_value(a.mask, b * a.mask.strides[0] + h * a.mask.strides[1] +
                                     i * a.mask.strides[2] + j * a.mask.strides[3]);
    if (bias == -INFINITY) continue;
    load(a.k, b * a.k.strides[0] + kv_head * a.k.strides[1] + j * a.k.strides[2], dim, row);
    float dot = 0;
    for (std::int64_t d = 0; d < dim; ++d) dot += query[d] * row[d];
    dot *= a.scale;
    if (a.soft_cap > 0) dot = a.soft_cap * std::tanh(dot / a.soft_cap);
    scores[j] = dot + bias;
    top = std::max(top, scores[j]);
  }
  std::fill(sum, sum + v_dim, 0.0F);
  float total = a.sinks != nullptr ? std::exp(a.sinks[h] - top) : 0.0F;
  for (std::int64_t j = 0; j < keys; ++j) {
    if (scores[j] == -INFINITY) continue;
    const float p = std::exp(scores[j] - top);
    total += p;
    load(a.v, b * a.v.strides[0] + kv_head * a.v.strides[1] + j * a.v.strides[2], v_dim, row);
    for (std::int64_t d = 0; d < v_dim; ++d) sum[d] += p * row[d];
  }
  if (total > 0)
    for (std::int64_t d = 0; d < v_dim; ++d) sum[d] /= total;
  store(a.out, b * a.out.strides[0] + h * a.out.strides[1] + i * a.out.strides[2], v_dim, sum);
}

void general_attention(const GeneralArgs& a, int thread, int n_threads) {
  const std::int64_t heads = a.q.shape[1];
  const std::int64_t queries = a.q.shape[2];
  const kernels::Range mine = kernels::share(a.q.shape[0] * heads * queries, 1, thread, n_threads);
  float* const rows = a.rows + thread * row_floats(a.q, a.k, a.v);
  for (std::int64_t r = mine.begin; r < mine.end; ++r) {
    const std::int64_t b = r / (heads * queries);
    if (a.odd_rows == nullptr || r % queries < a.odd_rows[b])
      general_row(a, b, r / queries % heads, r % queries, rows);
  }
}

// Its axes lined up with [B, heads, S, keys], those of size 1 with stride 0. False: not so.
bool broadcast_mask(const TensorView& m, const TensorView& q, const TensorView& k,
                    TensorView* out) {
  if (m.rank() > 4 || !(kernel_float(m.dtype) || m.dtype == DType::boolean)) return false;
  *out = m;
  while (out->rank() < 4) {
    out->shape.insert(0, 1);
    out->strides.insert(0, 0);
  }
  const std::int64_t full[] = {q.shape[0], q.shape[1], q.shape[2], k.shape[2]};
  for (int i = 0; i < 4; ++i) {
    if (out->shape[i] == 1) out->strides[i] = 0;
    if (out->shape[i] != 1 && out->shape[i] != full[i]) return false;
  }
  return true;
}

// Rows of keys from one sequence to the next; 0 where that is no whole number, or not that of the
// values.
std::int64_t rows_apart(const TensorView& k, const TensorView& v) {
  if (k.strides[2] == 0 || v.strides[2] == 0 || k.strides[0] % k.strides[2] != 0 ||
      v.strides[0] % v.strides[2] != 0)
    return 0;
  const std::int64_t rows = k.strides[0] / k.strides[2];
  return rows == v.strides[0] / v.strides[2] && rows > 0 ? rows : 0;
}

// The check of this mask by an earlier layer of the same run, or null.
const MaskFacts* checked_before(const Prepare& p, const MaskCheck& mine) {
  const Launch* l = p.find<check_mask>([&](const Launch& other) {
    const auto* c = static_cast<const MaskCheck*>(other.args);
    return other.node->in(3) == p.node.in(3) && c->batch == mine.batch &&
           c->queries == mine.queries && c->keys == mine.keys && c->rows_apart == mine.rows_apart;
  });
  return l == nullptr ? nullptr : &static_cast<const MaskCheck*>(l->args)->facts;
}

// Sequences [b, b + n) as one run of the paged kernel; `facts` of the mask, or lengths alone.
void launch_paged(Prepare& p, std::int64_t b, std::int64_t n, const MaskFacts& facts, bool full) {
  const TensorView& q = p.in(0);
  const TensorView& k = p.in(1);
  const TensorView& v = p.in(2);
  const TensorView& out = p.out();
  const std::int64_t queries = q.shape[2];
  const bool by_mask = facts.table != nullptr;
  auto* table = p.keep<std::int32_t>(static_cast<std::size_t>(n));
  auto* cu_q = p.keep<std::int32_t>(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    table[i] = static_cast<std::int32_t>(i);
    cu_q[i] = static_cast<std::int32_t>((i + 1) * queries);
  }
  const auto from = [b](const TensorView& t) {
    return static_cast<std::byte*>(t.data) +
           static_cast<std::size_t>(b * t.strides[0]) * size_of(t.dtype);
  };
  auto& launched = p.launch<attention>("attention", p.io_bytes());
  p.last().serial = false;
  launched.window = facts.window;
  auto& a = launched.args;
  a.q = from(q);
  a.out = from(out);
  a.dtype = q.dtype;
  a.cache_dtype = k.dtype;
  a.k = {from(k), k.strides[0], k.strides[2], k.strides[1]};
  a.v = {from(v), v.strides[0], v.strides[2], v.strides[1]};
  // Of one sequence the queries are the tokens; of several each has one.
  a.q_stride = n == 1 ? q.strides[2] : q.strides[0];
  a.q_head_stride = q.strides[1];
  a.out_stride = n == 1 ? out.strides[2] : out.strides[0];
  a.out_head_stride = out.strides[1];
  if (by_mask) a.k.block_stride = k.strides[2], a.v.block_stride = v.strides[2];
  a.block_table = by_mask ? facts.table + b : table;
  a.cu_q = cu_q;
  a.kv_lens = facts.kv_lens + b;
  a.sinks = p.has(4) ? p.in(4).as<float>() : nullptr;
  a.batch = n;
  a.tokens = n * queries;
  a.q_heads = q.shape[1];
  a.kv_heads = k.shape[1];
  a.dk = q.shape[3];
  a.dv = v.shape[3];
  a.block_size = k.shape[2];
  a.block_table_stride = 1;
  a.mask = full ? kernels::MaskKind::full : kernels::MaskKind::causal;
  a.scale = static_cast<float>(p.args.f64("scale"));
  a.soft_cap = static_cast<float>(p.args.f64("softcap"));
  a.max_kv_len = k.shape[2];
  p.scratch(&a.scratch, kernels::paged_attention_scratch_bytes(a, p.n_threads));
  auto& c = p.launch<attention_combine>("attention_combine", out.bytes());
  p.last().serial = false;
  c = launched;
  p.share_scratch(&c.args.scratch, &a.scratch);
}

// The kernel takes an index outside the cache for padding; here it is a mistake.
struct IndexCheck {
  const std::int64_t* index;
  std::int64_t n, places;
  bool operator==(const IndexCheck&) const = default;
};

void check_index(const IndexCheck& a, int /*thread*/, int /*n_threads*/) {
  for (std::int64_t i = 0; i < a.n; ++i)
    if (a.index[i] < 0 || a.index[i] >= a.places)
      throw UserError("TK0501",
                      cat("index ", a.index[i], " is outside the cache of ", a.places, " places"));
}

}  // namespace

const char* prepare_attention(Prepare& p) {
  const TensorView& q = p.in(0);
  const TensorView& k = p.in(1);
  const TensorView& v = p.in(2);
  if (!kernel_float(q.dtype) || !kernel_float(k.dtype) || k.dtype != v.dtype) return "dtypes";
  for (const TensorView* t : {&q, &k, &v})
    if (t->strides[3] != 1 && t->shape[3] != 1) return "strides";
  if (q.numel() == 0 || k.shape[1] == 0 || q.shape[1] % k.shape[1] != 0) return "head counts";
  if (k.shape[0] != q.shape[0] || v.shape[0] != q.shape[0]) return "batches";
  if (p.has(4) && (p.in(4).dtype != DType::f32 || !p.in(4).contiguous())) return "sinks not f32";
  const std::int64_t batch = q.shape[0];
  const std::int64_t queries = q.shape[2];
  const std::int64_t keys = k.shape[2];
  const bool causal = p.args.flag("causal");
  TensorView mask;
  if (p.has(3) && !broadcast_mask(p.in(3), q, k, &mask)) return "the mask's form";
  const bool together = queries == 1 || batch == 1;
  const std::int64_t apart = rows_apart(k, v);
  // Query i sees the keys up to i, so that with more keys than queries the rest is never seen.
  const bool by_length = !p.has(3) && (!causal || queries <= keys);
  const bool by_mask = p.has(3) && !causal && mask.shape[1] == 1 && keys > 0 && apart > 0 &&
                       batch * apart < INT32_MAX;
  MaskFacts facts{};
  if (by_length) {
    facts.kv_lens = p.keep<std::int32_t>(static_cast<std::size_t>(batch));
    std::fill(facts.kv_lens, facts.kv_lens + batch,
              static_cast<std::int32_t>(causal ? queries : keys));
  } else if (by_mask) {
    MaskCheck check{mask, {}, batch, queries, keys, together ? apart : 0};
    if (const MaskFacts* before = checked_before(p, check)) {
      facts = *before;
    } else {
      const auto n = static_cast<std::size_t>(batch);
      check.facts = facts = {p.keep<std::int32_t>(n), p.keep<std::int32_t>(n),
                             p.keep<std::int32_t>(n), p.keep<std::int64_t>(1)};
      p.launch<check_mask>("check_mask", mask.bytes()) = check;
      p.last().serial = true;
    }
  }
  if (by_length || by_mask) {
    if (together) {
      launch_paged(p, 0, batch, facts, !causal && by_length);
    } else {
      for (std::int64_t b = 0; b < batch; ++b) launch_paged(p, b, 1, facts, !causal && by_length);
    }
  }
  if (by_length) return nullptr;
  auto& g = p.launch<general_attention>("attention_any_mask", p.out().bytes());
  p.last().serial = false;
  g = {q,
       k,
       v,
       mask,
       p.out(),
       p.has(4) ? p.in(4).as<float>() : nullptr,
       facts.odd_rows,
       static_cast<float>(p.args.f64("scale")),
       static_cast<float>(p.args.f64("softcap")),
       causal,
       nullptr};
  p.scratch(&g.rows, sizeof(float) * static_cast<std::size_t>(row_floats(q, k, v) * p.n_threads));
  return nullptr;
}

const char* prepare_index_write(Prepare& p) {
  const TensorView& cache = p.out();
  const TensorView& index = p.in(1);
  const TensorView& x = p.in(2);
  if (!kernel_float(cache.dtype) || x.dtype != cache.dtype) return "dtypes";
  if (cache.data != p.in(0).data) return "not in place";
  std::int64_t dim = p.args.i64("dim");
  if (dim < 0) dim += cache.rank();
  if (cache.rank() != 4 || dim != 2 || cache.strides[3] != 1 || x.strides[3] != 1)
    return "not rows of [B, heads, S, D]";
  if (index.dtype != DType::i64 || !index.contiguous()) return "the index's layout";
  p.check<check_index>("check_index", index.bytes(), std::array{1},
                       {index.as<std::int64_t>(), index.shape[0], cache.shape[2]});
  for (std::int64_t b = 0; b < cache.shape[0]; ++b) {
    auto& a = p.launch<kernels::cache_write>("cache_write", 2 * x.bytes() / cache.shape[0]);
    a.x = static_cast<const std::byte*>(x.data) +
          static_cast<std::size_t>(b * x.strides[0]) * size_of(x.dtype);
    a.cache = static_cast<std::byte*>(cache.data) +
              static_cast<std::size_t>(b * cache.strides[0]) * size_of(cache.dtype);
    a.slots = index.data;
    a.slots_dtype = index.dtype;
    a.dtype = x.dtype;
    a.cache_dtype = cache.dtype;
    a.tokens = x.shape[2];
    a.heads = x.shape[1];
    a.d = x.shape[3];
    a.n_slots = cache.shape[2];
    a.x_stride = x.strides[2];
    a.x_head_stride = x.strides[1];
    a.slot_stride = cache.strides[2];
    a.cache_head_stride = cache.strides[1];
  }
  return nullptr;
}

const char* prepare_assign(Prepare& p) {
  if (p.out().data != p.in(0).data) return "not in place";
  prepare_copy(p, p.out(), p.in(1));
  return nullptr;
}

}  // namespace tk

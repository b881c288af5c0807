// Attention, without and with a paged KV cache, as the neutral operators that the cached graph is
// made of. Moves map them to torch_npu's operators; these are the reference.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "graph/op.h"
#include "ops/cost.h"
#include "ops/ops.h"

namespace tk::ops {
namespace {

// Which keys a query may see. `window` is W of a sliding window (keys p > q - W) or the chunk size.
enum class MaskKind : std::uint8_t { causal, window, chunk, full };

MaskKind mask_kind(const std::string& name) {
  if (name == "causal") return MaskKind::causal;
  if (name == "window") return MaskKind::window;
  if (name == "chunk") return MaskKind::chunk;
  if (name == "full") return MaskKind::full;
  throw UserError("TK0312", cat("'", name, "' is no mask: causal, window, chunk and full are"));
}

bool visible(MaskKind kind, std::int64_t window, std::int64_t q, std::int64_t k) {
  if (kind == MaskKind::full) return true;
  if (k > q) return false;
  if (kind == MaskKind::window) return k > q - window;
  if (kind == MaskKind::chunk) return k / window == q / window;
  return true;
}

// Loads one row of D elements as f32 from a view whose last axis may be strided.
void load_row(const TensorView& t, std::int64_t offset, std::int64_t n, float* out) {
  const std::int64_t step = t.rank() == 0 ? 1 : t.strides[t.rank() - 1];
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t at = offset + i * step;
    switch (t.dtype) {
      case DType::bf16:
        out[i] = to_float(t.as<bf16>()[at]);
        break;
      case DType::f16:
        out[i] = to_float(t.as<f16>()[at]);
        break;
      default:
        out[i] = t.as<float>()[at];
        break;
    }
  }
}

void store_row(const TensorView& t, std::int64_t offset, std::int64_t n, const float* in) {
  for (std::int64_t i = 0; i < n; ++i) {
    switch (t.dtype) {
      case DType::bf16:
        t.as<bf16>()[offset + i] = to_bf16(in[i]);
        break;
      case DType::f16:
        t.as<f16>()[offset + i] = to_f16(in[i]);
        break;
      default:
        t.as<float>()[offset + i] = in[i];
        break;
    }
  }
}

float dot(const float* a, const float* b, std::int64_t n) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Softmax over `scores` with an optional extra logit in the denominator; -inf entries are masked.
// A row without any visible key gives zeros.
void softmax(std::vector<float>* scores, const float* sink) {
  float top = sink != nullptr ? *sink : -INFINITY;
  for (float s : *scores) top = std::max(top, s);
  float sum = sink != nullptr ? std::exp(*sink - top) : 0;
  for (float& s : *scores) {
    s = s == -INFINITY ? 0 : std::exp(s - top);
    sum += s;
  }
  if (sum > 0)
    for (float& s : *scores) s /= sum;
}

float soft_capped(float score, float cap) { return cap > 0 ? cap * std::tanh(score / cap) : score; }

void require_float(const Args& a, int i, std::string_view what) {
  const DType d = a.in(i).dtype;
  if (d != DType::f32 && d != DType::bf16 && d != DType::f16)
    a.fail(cat("needs ", what, " in f32, bf16 or f16, got ", name_of(d)));
}

// ---- tk.attention -------------------------------------------------------------------------

std::vector<Type> attention_infer(const Args& a) {
  const Type& q = a.in(0);
  const Type& k = a.in(1);
  const Type& v = a.in(2);
  require_float(a, 0, "query");
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4)
    a.fail("needs query, key and value of rank 4 [B, heads, S, D]");
  if (!(q.dim(3) == k.dim(3))) a.fail("needs query and key of the same head dim");
  if (!(k.dim(1) == v.dim(1)) || !(k.dim(2) == v.dim(2)))
    a.fail("needs key and value of the same heads and length");
  if (q.dim(1).is_const() && k.dim(1).is_const() &&
      (k.dim(1).value() == 0 || q.dim(1).value() % k.dim(1).value() != 0))
    a.fail("needs the query heads to be a multiple of the key heads");
  return {{q.dtype, {q.dim(0), q.dim(1), q.dim(2), v.dim(3)}}};
}

void attention_eval(const EvalArgs& a) {
  const TensorView& q = a.in(0);
  const TensorView& k = a.in(1);
  const TensorView& v = a.in(2);
  const auto scale = static_cast<float>(a.f64("scale"));
  const auto cap = static_cast<float>(a.f64("softcap"));
  const bool causal = a.flag("causal");
  const std::int64_t heads = q.shape[1];
  const std::int64_t group = heads / k.shape[1];
  const std::int64_t n_keys = k.shape[2];
  const std::int64_t dim = q.shape[3];
  const std::int64_t v_dim = v.shape[3];
  std::vector<float> keys(static_cast<std::size_t>(n_keys * dim));
  std::vector<float> values(static_cast<std::size_t>(n_keys * v_dim));
  std::vector<float> row(static_cast<std::size_t>(dim));
  std::vector<float> scores(static_cast<std::size_t>(n_keys));
  std::vector<float> sum(static_cast<std::size_t>(v_dim));
  for (std::int64_t b = 0; b < q.shape[0]; ++b)
    for (std::int64_t h = 0; h < heads; ++h) {
      if (h % group == 0)
        for (std::int64_t j = 0; j < n_keys; ++j) {
          load_row(k, b * k.strides[0] + h / group * k.strides[1] + j * k.strides[2], dim,
                   &keys[static_cast<std::size_t>(j * dim)]);
          load_row(v, b * v.strides[0] + h / group * v.strides[1] + j * v.strides[2], v_dim,
                   &values[static_cast<std::size_t>(j * v_dim)]);
        }
      float sink = 0;
      if (a.has(4)) load_row(a.in(4), h * a.in(4).strides[0], 1, &sink);
      for (std::int64_t i = 0; i < q.shape[2]; ++i) {
        load_row(q, b * q.strides[0] + h * q.strides[1] + i * q.strides[2], dim, row.data());
        for (std::int64_t j = 0; j < n_keys; ++j) {
          auto& s = scores[static_cast<std::size_t>(j)];
          s = soft_capped(dot(row.data(), &keys[static_cast<std::size_t>(j * dim)], dim) * scale,
                          cap);
          if (causal && j > i) s = -INFINITY;
          if (a.has(3)) {
            const TensorView& m = a.in(3);
            std::int64_t at = 0;
            const std::int64_t index[4] = {b, h, i, j};
            for (int axis = 0; axis < m.rank(); ++axis)
              if (m.shape[axis] != 1) at += index[4 - m.rank() + axis] * m.strides[axis];
            if (m.dtype == DType::boolean) {
              if (m.as<std::uint8_t>()[at] == 0) s = -INFINITY;
            } else {
              float bias = 0;
              TensorView one = m;
              one.shape = {};
              one.strides = {};
              load_row(one, at, 1, &bias);
              s += bias;
            }
          }
        }
        softmax(&scores, a.has(4) ? &sink : nullptr);
        std::fill(sum.begin(), sum.end(), 0.0F);
        for (std::int64_t j = 0; j < n_keys; ++j) {
          const float p = scores[static_cast<std::size_t>(j)];
          if (p == 0) continue;
          for (std::int64_t d = 0; d < v_dim; ++d)
            sum[static_cast<std::size_t>(d)] += p * values[static_cast<std::size_t>(j * v_dim + d)];
        }
        store_row(a.out(), ((b * heads + h) * q.shape[2] + i) * v_dim, v_dim, sum.data());
      }
    }
}

// ---- tk.cache_write -----------------------------------------------------------------------

std::vector<Type> cache_write_infer(const Args& a) {
  const Type& cache = a.in(0);
  const Type& states = a.in(1);
  const Type& slots = a.in(2);
  if (cache.rank() != 4) a.fail("needs a cache of shape [blocks, block size, heads, D]");
  if (states.rank() != 3 || !(states.dim(1) == cache.dim(2)) || !(states.dim(2) == cache.dim(3)))
    a.fail("needs states of shape [T, heads, D] with the cache's heads and D");
  if (!(states.dtype == cache.dtype)) a.fail("needs cache and states of the same dtype");
  if (slots.rank() != 1 || !(slots.dim(0) == states.dim(0)) || slots.dtype != DType::i64)
    a.fail("needs slot_mapping i64 [T]");
  return {cache};
}

void cache_write_eval(const EvalArgs& a) {
  const TensorView& states = a.in(1);
  const TensorView& slots = a.in(2);
  const TensorView& cache = a.out();
  if (cache.data != a.in(0).data) copy_into(cache, a.in(0));
  const std::int64_t block = cache.shape[1];
  const std::int64_t n_slots = cache.shape[0] * block;
  for (std::int64_t t = 0; t < states.shape[0]; ++t) {
    const std::int64_t slot = slots.as<std::int64_t>()[t * slots.strides[0]];
    if (slot == -1) continue;  // padding
    if (slot < 0 || slot >= n_slots)
      throw UserError("TK0501", cat("slot ", slot, " is outside the cache of ", n_slots, " slots"));
    TensorView to = cache;
    TensorView from = states;
    to.data = static_cast<std::byte*>(cache.data) +
              static_cast<std::size_t>(slot / block * cache.strides[0] +
                                       slot % block * cache.strides[1]) *
                  size_of(cache.dtype);
    from.data = static_cast<std::byte*>(states.data) +
                static_cast<std::size_t>(t * states.strides[0]) * size_of(states.dtype);
    to.shape.erase(0), to.shape.erase(0), to.strides.erase(0), to.strides.erase(0);
    from.shape.erase(0), from.strides.erase(0);
    copy_into(to, from);
  }
}

// ---- paged attention ----------------------------------------------------------------------

// Calls f(token, request, query position, number of keys) for each live query token.
template <typename F>
void for_queries(const TensorView& block_table, const TensorView& query_lens,
                 const TensorView& kv_lens, std::int64_t n_tokens, F f) {
  std::int64_t begin = 0;
  for (std::int64_t b = 0; b < query_lens.shape[0]; ++b) {
    const std::int64_t end = query_lens.as<std::int32_t>()[b * query_lens.strides[0]];
    const std::int64_t keys = kv_lens.as<std::int32_t>()[b * kv_lens.strides[0]];
    if (end < begin || end > n_tokens)
      throw UserError("TK0505", cat("query_lens must be running totals up to ", n_tokens, ", got ",
                                    end, " after ", begin));
    if (begin == end) continue;
    if (keys < 0) throw UserError("TK0505", cat("kv_lens[", b, "] is ", keys));
    for (std::int64_t t = begin; t < end; ++t) f(t, b, keys - (end - begin) + (t - begin), keys);
    begin = end;
  }
  (void)block_table;
}

std::int64_t cache_row(const TensorView& cache, const TensorView& table, std::int64_t b,
                       std::int64_t position, std::int64_t head) {
  const std::int64_t block_size = cache.shape[1];
  const std::int64_t column = position / block_size;
  if (column >= table.shape[1])
    throw UserError("TK0506", cat("position ", position, " of request ", b,
                                  " is beyond its block table of ", table.shape[1], " blocks"));
  const std::int64_t block =
      table.as<std::int32_t>()[b * table.strides[0] + column * table.strides[1]];
  if (block < 0 || block >= cache.shape[0])
    throw UserError("TK0506", cat("block ", block, " of request ", b, " is outside the cache of ",
                                  cache.shape[0], " blocks"));
  return block * cache.strides[0] + position % block_size * cache.strides[1] +
         head * cache.strides[2];
}

void check_tables(const Args& a, int table) {
  if (a.in(table).dtype != DType::i32 || a.in(table).rank() != 2)
    a.fail("needs block_table i32 [B, blocks]");
  for (int i = table + 1; i <= table + 2; ++i)
    if (a.in(i).dtype != DType::i32 || a.in(i).rank() != 1)
      a.fail("needs query_lens and kv_lens i32 [B]");
}

std::vector<Type> paged_attention_infer(const Args& a) {
  const Type& q = a.in(0);
  const Type& k = a.in(1);
  const Type& v = a.in(2);
  require_float(a, 0, "query");
  if (q.rank() != 3) a.fail("needs query [T, heads, D]");
  if (k.rank() != 4 || v.rank() != 4) a.fail("needs caches [blocks, block size, heads, D]");
  if (!(q.dim(2) == k.dim(3))) a.fail("needs query and key cache of the same head dim");
  if (!(k.dim(2) == v.dim(2))) a.fail("needs key and value caches of the same heads");
  check_tables(a, 3);
  if (a.has(6) != a.has(7)) a.fail("needs query_rope and key_rope_cache together");
  if (a.has(6) && !(a.in(6).dim(2) == a.in(7).dim(3)))
    a.fail("needs query_rope and key_rope_cache of the same dim");
  const MaskKind kind = mask_kind(a.text("mask"));
  if ((kind == MaskKind::window || kind == MaskKind::chunk) && a.i64("window") <= 0)
    a.fail("needs window > 0 for this mask");
  return {{q.dtype, {q.dim(0), q.dim(1), v.dim(3)}}};
}

void paged_attention_eval(const EvalArgs& a) {
  const TensorView& q = a.in(0);
  const TensorView& k = a.in(1);
  const TensorView& v = a.in(2);
  const TensorView& table = a.in(3);
  const auto scale = static_cast<float>(a.f64("scale"));
  const auto cap = static_cast<float>(a.f64("softcap"));
  const MaskKind kind = mask_kind(a.text("mask"));
  const std::int64_t window = a.i64("window");
  const std::int64_t heads = q.shape[1];
  const std::int64_t group = heads / k.shape[2];
  const std::int64_t dim = q.shape[2];
  const std::int64_t rope_dim = a.has(6) ? a.in(6).shape[2] : 0;
  const std::int64_t v_dim = v.shape[3];
  std::vector<float> row(static_cast<std::size_t>(dim + rope_dim));
  std::vector<float> key(static_cast<std::size_t>(dim + rope_dim));
  std::vector<float> value(static_cast<std::size_t>(v_dim));
  std::vector<float> sum(static_cast<std::size_t>(v_dim));
  std::vector<float> scores;
  std::fill_n(static_cast<std::byte*>(a.out().data), a.out().bytes(), std::byte{0});
  for_queries(table, a.in(4), a.in(5), q.shape[0],
              [&](std::int64_t t, std::int64_t b, std::int64_t position, std::int64_t n_keys) {
                for (std::int64_t h = 0; h < heads; ++h) {
                  load_row(q, t * q.strides[0] + h * q.strides[1], dim, row.data());
                  if (rope_dim > 0)
                    load_row(a.in(6), t * a.in(6).strides[0] + h * a.in(6).strides[1], rope_dim,
                             row.data() + dim);
                  scores.assign(static_cast<std::size_t>(n_keys), -INFINITY);
                  for (std::int64_t j = 0; j < n_keys; ++j) {
                    if (!visible(kind, window, position, j)) continue;
                    load_row(k, cache_row(k, table, b, j, h / group), dim, key.data());
                    if (rope_dim > 0) {
                      const TensorView& r = a.in(7);
                      load_row(r, cache_row(r, table, b, j, h / (heads / r.shape[2])), rope_dim,
                               key.data() + dim);
                    }
                    scores[static_cast<std::size_t>(j)] =
                        soft_capped(dot(row.data(), key.data(), dim + rope_dim) * scale, cap);
                  }
                  float sink = 0;
                  if (a.has(8)) load_row(a.in(8), h * a.in(8).strides[0], 1, &sink);
                  softmax(&scores, a.has(8) ? &sink : nullptr);
                  std::fill(sum.begin(), sum.end(), 0.0F);
                  for (std::int64_t j = 0; j < n_keys; ++j) {
                    const float p = scores[static_cast<std::size_t>(j)];
                    if (p == 0) continue;
                    load_row(v, cache_row(v, table, b, j, h / group), v_dim, value.data());
                    for (std::int64_t d = 0; d < v_dim; ++d)
                      sum[static_cast<std::size_t>(d)] += p * value[static_cast<std::size_t>(d)];
                  }
                  store_row(a.out(), (t * heads + h) * v_dim, v_dim, sum.data());
                }
              });
}

// ---- MLA over the latent cache, expanded ---------------------------------------------------

std::vector<Type> mla_infer(const Args& a) {
  const Type& qn = a.in(0);
  const Type& qr = a.in(1);
  const Type& latent = a.in(2);
  const Type& rope = a.in(3);
  const Type& w = a.in(4);
  require_float(a, 0, "query_nope");
  if (qn.rank() != 3 || qr.rank() != 3) a.fail("needs queries [T, heads, D]");
  if (latent.rank() != 4 || rope.rank() != 4 || !latent.dim(2).is(1) || !rope.dim(2).is(1))
    a.fail("needs latent and rope caches [blocks, block size, 1, D]");
  if (!(qr.dim(2) == rope.dim(3))) a.fail("needs query_rope and rope_cache of the same dim");
  if (w.rank() != 2 || !(w.dim(1) == latent.dim(3)))
    a.fail("needs kv_b_weight [heads * (nope + v), latent dim]");
  const auto per_head = exact_div(w.dim(0), qn.dim(1));
  if (!per_head || !per_head->is_const() || !qn.dim(2).is_const() ||
      per_head->value() <= qn.dim(2).value())
    a.fail("needs kv_b_weight rows = heads * (nope dim + v dim)");
  check_tables(a, 5);
  return {{qn.dtype, {qn.dim(0), qn.dim(1), per_head->value() - qn.dim(2).value()}}};
}

void mla_eval(const EvalArgs& a) {
  const TensorView& qn = a.in(0);
  const TensorView& qr = a.in(1);
  const TensorView& latent = a.in(2);
  const TensorView& rope = a.in(3);
  const TensorView& w = a.in(4);
  const TensorView& table = a.in(5);
  const auto scale = static_cast<float>(a.f64("scale"));
  const auto cap = static_cast<float>(a.f64("softcap"));
  const MaskKind kind = mask_kind(a.text("mask"));
  const std::int64_t window = a.i64("window");
  const std::int64_t heads = qn.shape[1];
  const std::int64_t nope = qn.shape[2];
  const std::int64_t rope_dim = qr.shape[2];
  const std::int64_t rank = latent.shape[3];
  const std::int64_t v_dim = a.out().shape[2];
  const std::int64_t rows = nope + v_dim;
  std::vector<float> weight(static_cast<std::size_t>(w.shape[0] * rank));
  for (std::int64_t i = 0; i < w.shape[0]; ++i)
    load_row(w, i * w.strides[0], rank, &weight[static_cast<std::size_t>(i * rank)]);
  std::vector<float> q(static_cast<std::size_t>(nope + rope_dim));
  std::vector<float> c(static_cast<std::size_t>(rank));
  std::vector<float> r(static_cast<std::size_t>(rope_dim));
  std::vector<float> kv;  // [keys, heads, rows] of the current request, rounded as the model does
  std::vector<float> scores;
  std::vector<float> sum(static_cast<std::size_t>(v_dim));
  std::int64_t expanded = -1;
  std::fill_n(static_cast<std::byte*>(a.out().data), a.out().bytes(), std::byte{0});
  const bool rounds = qn.dtype == DType::bf16;
  for_queries(
      table, a.in(6), a.in(7), qn.shape[0],
      [&](std::int64_t t, std::int64_t b, std::int64_t position, std::int64_t n_keys) {
        if (b != expanded) {
          kv.resize(static_cast<std::size_t>(n_keys * heads * rows));
          for (std::int64_t j = 0; j < n_keys; ++j) {
            load_row(latent, cache_row(latent, table, b, j, 0), rank, c.data());
            for (std::int64_t i = 0; i < heads * rows; ++i) {
              const float x = dot(c.data(), &weight[static_cast<std::size_t>(i * rank)], rank);
              kv[static_cast<std::size_t>(j * heads * rows + i)] =
                  rounds ? to_float(to_bf16(x)) : x;
            }
          }
          expanded = b;
        }
        for (std::int64_t h = 0; h < heads; ++h) {
          load_row(qn, t * qn.strides[0] + h * qn.strides[1], nope, q.data());
          load_row(qr, t * qr.strides[0] + h * qr.strides[1], rope_dim, q.data() + nope);
          scores.assign(static_cast<std::size_t>(n_keys), -INFINITY);
          for (std::int64_t j = 0; j < n_keys; ++j) {
            if (!visible(kind, window, position, j)) continue;
            load_row(rope, cache_row(rope, table, b, j, 0), rope_dim, r.data());
            const float* k = &kv[static_cast<std::size_t>((j * heads + h) * rows)];
            const float s = dot(q.data(), k, nope) + dot(q.data() + nope, r.data(), rope_dim);
            scores[static_cast<std::size_t>(j)] = soft_capped(s * scale, cap);
          }
          softmax(&scores, nullptr);
          std::fill(sum.begin(), sum.end(), 0.0F);
          for (std::int64_t j = 0; j < n_keys; ++j) {
            const float p = scores[static_cast<std::size_t>(j)];
            const float* v = &kv[static_cast<std::size_t>((j * heads + h) * rows + nope)];
            for (std::int64_t d = 0; d < v_dim; ++d) sum[static_cast<std::size_t>(d)] += p * v[d];
          }
          store_row(a.out(), (t * heads + h) * v_dim, v_dim, sum.data());
        }
      });
}

double size(const Sym& s) { return static_cast<double>(s.value()); }

double window_of(const Args& args) { return static_cast<double>(args.i64("window")); }

Cost paged_attention_cost(const Args& args, const Load& load) {
  const Type& q = args.in(0);
  const Type& k = args.in(1);
  const double rope = args.has(6) ? size(args.in(6).dim(2)) : 0;
  return attention_cost({size(q.dim(0)), size(q.dim(1)), size(k.dim(2)), size(args.in(4).dim(0)),
                         size(q.dim(2)) + rope, size(args.in(2).dim(3)),
                         static_cast<double>(size_of(k.dtype)), load.kv_len,
                         args.value(1) == args.value(2), window_of(args)});
}

// The latent of every key is expanded to each head's key and value first.
Cost mla_cost(const Args& args, const Load& load) {
  const Type& q = args.in(0);
  const double tokens = size(q.dim(0));
  const double heads = size(q.dim(1));
  const double rank = size(args.in(2).dim(3));
  const double rope = size(args.in(1).dim(2));
  const double width = size(args.in(4).dim(0)) / heads;  // of a head's key and value
  const double nope = size(q.dim(2));
  const double sequences = size(args.in(6).dim(0));
  const double bytes = static_cast<double>(size_of(q.dtype));
  const double window = window_of(args), reach = window + tokens / std::max(1.0, sequences) - 1;
  const double keys = window > 0 ? std::min(reach, load.kv_len) : load.kv_len;
  Cost c = attention_cost({tokens, heads, heads, sequences, nope + rope, width - nope, bytes,
                           load.kv_len, false, window});
  c.cube += 2 * sequences * keys * rank * width * heads;
  c.read = sequences * keys * (rank + rope) * bytes + bytes_of(args.in(4)) + bytes_of(q);
  c.written += sequences * keys * heads * width * bytes;
  return c;
}

}  // namespace

const OpDef tk_attention{
    .name = "tk.attention",
    .schema =
        "(Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor? sinks, *, float scale, "
        "float softcap=0.0, bool causal=False) -> Tensor",
    .doc =
        "softmax(softcap(query @ key^T * scale) + mask) @ value per head, [B, heads, S, D]; key "
        "heads are shared by groups of query heads; sinks add a logit to the denominator.",
    .infer = attention_infer,
    .eval = attention_eval,
};

constexpr int first_input[] = {0};

const OpDef tk_cache_write{
    .name = "tk.cache_write",
    .schema = "(Tensor cache, Tensor states, Tensor slot_mapping) -> Tensor",
    .doc = "cache[slot // block, slot % block] = states[t] for each token; slot -1 is padding.",
    .infer = cache_write_infer,
    .eval = cache_write_eval,
    .updates = first_input,
};

const OpDef tk_paged_attention{
    .name = "tk.paged_attention",
    .schema =
        "(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor "
        "query_lens, Tensor kv_lens, Tensor? query_rope, Tensor? key_rope_cache, Tensor? sinks, *, "
        "float scale, float softcap=0.0, str mask=\"causal\", int window=0) -> Tensor",
    .doc =
        "Attention of packed tokens [T, heads, D] over a paged cache: query i of request b sits at "
        "position kv_lens[b] - n + i. mask: causal, window (W keys), chunk, full.",
    .infer = paged_attention_infer,
    .eval = paged_attention_eval,
    .cost = paged_attention_cost,
};

const OpDef tk_mla_paged_attention{
    .name = "tk.mla_paged_attention",
    .schema =
        "(Tensor query_nope, Tensor query_rope, Tensor latent_cache, Tensor rope_cache, Tensor "
        "kv_b_weight, Tensor block_table, Tensor query_lens, Tensor kv_lens, *, float scale, float "
        "softcap=0.0, str mask=\"causal\", int window=0) -> Tensor",
    .doc =
        "MLA over the cached latent, expanded: k_nope and v of each head are kv_b_weight @ latent, "
        "the rope part is shared by all heads.",
    .infer = mla_infer,
    .eval = mla_eval,
    .cost = mla_cost,
};

}  // namespace tk::ops

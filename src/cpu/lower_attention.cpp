// Paged attention and cache writes.
#include "cpu/lower_attention.h"

#include "base/error.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/cache.h"
#include "cpu/prepare.h"
#include "cpu/rows.h"

namespace tk {
namespace {

// The kernels check no index, so a cheap launch before them does: numbers that come from outside.
struct SlotCheck {
  const std::int64_t* slots;
  std::int64_t n, n_slots;
  bool operator==(const SlotCheck&) const = default;
};

void check_slots(const SlotCheck& a, int /*thread*/, int /*n_threads*/) {
  for (std::int64_t i = 0; i < a.n; ++i)
    if (a.slots[i] < -1 || a.slots[i] >= a.n_slots)
      throw UserError("TK0501",
                      cat("slot ", a.slots[i], " is outside the cache of ", a.n_slots, " slots"));
}

struct TableCheck {
  const std::int32_t *table, *query_lens, *kv_lens;
  std::int64_t batch, tokens, width, table_stride, block_size, n_blocks;
  bool operator==(const TableCheck&) const = default;
};

void check_tables(const TableCheck& a, int /*thread*/, int /*n_threads*/) {
  std::int32_t begin = 0;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    const std::int32_t end = a.query_lens[b];
    const std::int32_t keys = a.kv_lens[b];
    if (end < begin || end > a.tokens)
      throw UserError("TK0505", cat("query_lens must be running totals up to ", a.tokens, ", got ",
                                    end, " after ", begin));
    if (keys < 0) throw UserError("TK0505", cat("kv_lens[", b, "] is ", keys));
    begin = end;
    const std::int64_t blocks = (keys + a.block_size - 1) / a.block_size;
    if (blocks > a.width)
      throw UserError("TK0506", cat("position ", keys - 1, " of request ", b,
                                    " is beyond its block table of ", a.width, " blocks"));
    for (std::int64_t i = 0; i < blocks; ++i) {
      const std::int32_t block = a.table[b * a.table_stride + i];
      if (block < 0 || block >= a.n_blocks)
        throw UserError("TK0506", cat("block ", block, " of request ", b,
                                      " is outside the cache of ", a.n_blocks, " blocks"));
    }
  }
}

// Keys and values, read once per request.
std::int64_t cached_bytes(const void* p) {
  const auto& a = *static_cast<const kernels::PagedAttentionArgs*>(p);
  std::int64_t keys = 0;
  for (std::int64_t b = 0; b < a.batch; ++b) keys += a.kv_lens[b];
  const std::int64_t values = a.k.data == a.v.data ? 0 : a.dv;
  return keys * a.kv_heads * (a.dk + a.dk2 + values) *
         static_cast<std::int64_t>(size_of(a.cache_dtype));
}

}  // namespace

const char* prepare_cache_write(Prepare& p) {
  const TensorView& cache = p.out();
  const TensorView& x = p.in(1);
  const TensorView& slots = p.in(2);
  if (!kernel_float(cache.dtype) || !kernel_float(x.dtype)) return "dtypes";
  if (cache.data != p.in(0).data) return "not in place";
  if (cache.rank() != 4 || x.rank() != 3 || cache.strides[3] != 1 ||
      cache.strides[0] != cache.shape[1] * cache.strides[1])
    return "the cache's strides";
  if (slots.dtype != DType::i64 || !slots.contiguous()) return "the slots' layout";
  if (x.strides[2] != 1 && x.shape[2] != 1) return "the states' strides";
  const std::int64_t n_slots = cache.shape[0] * cache.shape[1];
  p.check<check_slots>("check_slots", slots.bytes(), std::array{2},
                       {slots.as<std::int64_t>(), slots.shape[0], n_slots});
  auto& a = p.launch<kernels::cache_write>("cache_write", 2 * x.bytes());
  a.x = x.data;
  a.cache = cache.data;
  a.slots = slots.data;
  a.slots_dtype = slots.dtype;
  a.dtype = x.dtype;
  a.cache_dtype = cache.dtype;
  a.tokens = x.shape[0];
  a.heads = x.shape[1];
  a.d = x.shape[2];
  a.n_slots = n_slots;
  a.x_stride = x.strides[0];
  a.x_head_stride = x.strides[1];
  a.slot_stride = cache.strides[1];
  a.cache_head_stride = cache.strides[2];
  return nullptr;
}

const char* attention_refuses(const AttentionOperands& o) {
  const auto last_contiguous = [](const TensorView& t) {
    return t.strides.back() == 1 || t.shape.back() == 1;
  };
  if (!kernel_float(o.q.dtype) || !kernel_float(o.k.dtype) || o.k.dtype != o.v.dtype)
    return "dtypes";
  if (!last_contiguous(o.q)) return "the query's strides";
  if (o.table.shape[1] > 1 && o.table.strides[1] != 1) return "the table's strides";
  if (!o.query_lens.contiguous() || !o.kv_lens.contiguous()) return "the lengths' strides";
  for (const TensorView* cache : {&o.k, &o.v, o.k2})
    if (cache != nullptr && (cache->rank() != 4 || !last_contiguous(*cache)))
      return "the cache's strides";
  if (o.k.shape[2] == 0 || o.q.shape[1] % o.k.shape[2] != 0) return "head counts";
  if (o.q2 != nullptr) {
    if (o.q2->dtype != o.q.dtype || o.k2->dtype != o.k.dtype || !last_contiguous(*o.q2))
      return "the rope part's layout";
    if (o.k2->shape[2] != o.k.shape[2]) return "rope cache heads differ";
  }
  if (o.sinks != nullptr && (o.sinks->dtype != DType::f32 || !o.sinks->contiguous()))
    return "sinks not f32";
  return nullptr;
}

AttentionLaunch launch_attention(Prepare& p, const AttentionOperands& o) {
  const TensorView& q = o.q;
  const TensorView& k = o.k;
  const TensorView& table = o.table;
  const auto cache = [](const TensorView& t) {
    return kernels::CacheView{t.data, t.strides[0], t.strides[1], t.strides[2]};
  };
  p.check<check_tables>("check_tables", table.bytes(), o.given_by,
                        {table.as<std::int32_t>(), o.query_lens.as<std::int32_t>(),
                         o.kv_lens.as<std::int32_t>(), o.query_lens.shape[0], q.shape[0],
                         table.shape[1], table.strides[0], k.shape[1], k.shape[0]});
  auto& a = p.launch<kernels::paged_attention>("paged_attention", q.bytes() + o.out.bytes());
  p.last().live_bytes = cached_bytes;
  p.last().serial = false;
  a.q = q.data;
  a.out = o.out.data;
  a.dtype = q.dtype;
  a.cache_dtype = k.dtype;
  a.k = cache(k);
  a.v = cache(o.v);
  a.q_stride = q.strides[0];
  a.q_head_stride = q.strides[1];
  if (o.q2 != nullptr) {
    a.q2 = o.q2->data;
    a.k2 = cache(*o.k2);
    a.q2_stride = o.q2->strides[0];
    a.q2_head_stride = o.q2->strides[1];
    a.dk2 = o.q2->shape[2];
  }
  a.out_stride = o.out.strides[0];
  a.out_head_stride = o.out.strides[1];
  a.block_table = table.as<std::int32_t>();
  a.cu_q = o.query_lens.as<std::int32_t>();
  a.kv_lens = o.kv_lens.as<std::int32_t>();
  a.sinks = o.sinks != nullptr ? o.sinks->as<float>() : nullptr;
  a.batch = o.query_lens.shape[0];
  a.tokens = q.shape[0];
  a.q_heads = q.shape[1];
  a.kv_heads = k.shape[2];
  a.dk = q.shape[2];
  a.dv = o.v.shape[3];
  a.block_size = k.shape[1];
  a.block_table_stride = table.strides[0];
  const std::string& mask = p.args.text("mask");
  a.mask = mask == "full"     ? kernels::MaskKind::full
           : mask == "window" ? kernels::MaskKind::window
           : mask == "chunk"  ? kernels::MaskKind::chunked
                              : kernels::MaskKind::causal;
  a.window = p.args.i64("window");
  a.scale = static_cast<float>(p.args.f64("scale"));
  a.soft_cap = static_cast<float>(p.args.f64("softcap"));
  a.max_kv_len = table.shape[1] * a.block_size;
  p.scratch(&a.scratch, kernels::paged_attention_scratch_bytes(a, p.n_threads));
  auto& c = p.launch<kernels::paged_attention_combine>("paged_attention_combine", o.out.bytes());
  p.last().serial = false;
  c = a;
  p.share_scratch(&c.scratch, &a.scratch);
  return {&a.q, &a.out, &c.q, &c.out};
}

const char* prepare_paged_attention(Prepare& p) {
  const AttentionOperands o{.q = p.in(0),
                            .q2 = p.has(6) ? &p.in(6) : nullptr,
                            .k = p.in(1),
                            .v = p.in(2),
                            .k2 = p.has(6) ? &p.in(7) : nullptr,
                            .table = p.in(3),
                            .query_lens = p.in(4),
                            .kv_lens = p.in(5),
                            .sinks = p.has(8) ? &p.in(8) : nullptr,
                            .out = p.out(),
                            .given_by = {3, 4, 5}};
  if (const char* no = attention_refuses(o)) return no;
  launch_attention(p, o);
  return nullptr;
}

}  // namespace tk

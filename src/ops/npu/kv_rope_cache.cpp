// Norm, rotation and the cache write of keys and values in one call: MLA's latent
// (npu_kv_rmsnorm_rope_cache, _v2) and split heads (npu_qkv_rms_norm_rope_cache).
#include <cmath>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/fused_attention.h"
#include "ops/npu/mla_rows.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"
#include "ops/npu/slot_map.h"

namespace tk::ops {
namespace {

enum Input {
  kv,
  gamma,
  cos_,
  sin_,
  index,
  k_cache,
  ckv_cache,
  k_scale,
  c_scale,
  k_offset,
  c_offset
};

struct CacheMode {
  std::string_view name;
  bool paged, nz, blocks;
};
constexpr CacheMode cache_modes[] = {
    {"Norm", false, false, false},      {"PA", true, false, false},
    {"PA_BNSD", true, false, false},    {"PA_NZ", true, true, false},
    {"PA_BLK_BNSD", true, false, true}, {"PA_BLK_NZ", true, true, true},
};

const CacheMode* cache_mode(std::string_view name) {
  for (const CacheMode& m : cache_modes)
    if (m.name == name) return &m;
  return nullptr;
}

constexpr std::string_view refused[] = {"k_rope_offset", "c_kv_offset", "v"};

std::vector<Type> latent_infer(const Args& args, bool returns_caches) {
  refuse_given(args, refused);
  for (const char* name : {"k_cache_dtype", "ckv_cache_dtype"})
    if (args.op().parsed().find_attr(name) != nullptr && args.has_attr(name))
      args.fail(cat("is not known here with ", name));
  const CacheMode* mode = cache_mode(args.text("cache_mode"));
  if (mode == nullptr)
    args.fail(cat("has no cache_mode \"", args.text("cache_mode"),
                  "\"; there are Norm, PA, PA_BNSD, PA_NZ, PA_BLK_BNSD, PA_BLK_NZ"));
  const Type& x = args.in(kv);
  for (const int i : {kv, gamma, cos_, sin_, k_scale, c_scale})
    if (args.has(i)) need_float(args, i);
  need_rank(args, gamma, 1, 1);
  for (const int i : {kv, cos_, sin_, k_cache, ckv_cache}) need_rank(args, i, 4, 4);
  const Sym rms = args.in(gamma).dim(0);
  const Sym rope = args.in(cos_).dim(3);
  if (!x.dim(1).is(1)) args.fail(cat("needs kv [B, 1, S, D], got ", x.str()));
  need_same(args, x.dim(3), rms + rope, "kv's last axis and gamma's and cos's together");
  for (const int i : {cos_, sin_}) {
    need_same(args, args.in(i).dim(0), x.dim(0), "cos and sin [B, 1, S, rope] and kv");
    need_same(args, args.in(i).dim(2), x.dim(2), "cos and sin [B, 1, S, rope] and kv");
    need_same(args, args.in(i).dim(3), rope, "cos and sin");
  }
  need_same(args, args.in(k_cache).dim(3), rope, "k_cache (the rope part, it comes first) and cos");
  need_same(args, args.in(ckv_cache).dim(3), rms, "ckv_cache (the latent) and gamma");
  need_integral(args, index);
  if (mode->paged) {
    for (const int i : {k_cache, ckv_cache})
      if (!args.in(i).dim(2).is(1))
        args.fail(cat("needs paged caches [blocks, block, 1, D], got ", args.in(i).str()));
    if (!mode->blocks)
      need_same(args, args.in(index).numel(), x.dim(0) * x.dim(2), "index and tokens");
  } else {
    need_same(args, args.in(index).numel(), x.dim(0) * x.dim(2), "index [B, S] and tokens");
    for (const int i : {k_cache, ckv_cache})
      if (!args.in(i).dim(1).is(1) || !(args.in(i).dim(0) == x.dim(0)))
        args.fail(cat("needs caches [B, 1, length, D] in mode Norm, got ", args.in(i).str()));
  }
  for (const auto& [cache, scale] : {std::pair{k_cache, k_scale}, std::pair{ckv_cache, c_scale}}) {
    if (args.has(scale) != (args.in(cache).dtype == DType::i8))
      args.fail(
          cat("needs a scale for an i8 cache, and for that alone, got ", args.in(cache).str()));
    if (!args.has(scale) && args.in(cache).dtype != x.dtype)
      args.fail(cat("needs caches of kv's dtype or i8, got ", args.in(cache).str()));
    if (args.has(scale) && !args.in(scale).numel().is(1))
      need_same(args, args.in(scale).numel(), args.in(cache).dim(3), "a scale and its cache");
  }
  const Type rotated{x.dtype, {x.dim(0), 1, x.dim(2), rope}};
  const Type normed{x.dtype, {x.dim(0), 1, x.dim(2), rms}};
  if (returns_caches) return {args.in(k_cache), args.in(ckv_cache), rotated, normed};
  return {rotated, normed, args.in(k_cache), args.in(ckv_cache)};
}

// Where token s of request b goes in a cache; -1: nowhere.
class Places {
 public:
  Places(const EvalArgs& a, const TensorView& cache, const CacheMode& mode, std::string_view what)
      : a_(a), mode_(mode) {
    if (!mode.paged) {
      map_ = {row_map(cache, "BNSD"), cache.shape[2], cache.shape[2]};
    } else {
      map_ = mode.nz ? slot_map_nz(a, cache, what) : slot_map(cache);
    }
    tokens_ = a.in(kv).shape[2];
    if (mode.blocks) {
      if (map_.block == 0)
        throw UserError("TK0505", cat(a.op().name, " needs blocks of at least one token, got ",
                                      what, " ", cache.shape.str()));
      pages_ = (tokens_ + map_.block - 1) / map_.block;
      const std::int64_t n = a.in(kv).shape[0] * pages_;
      if (a.in(index).numel() != n)
        throw UserError("TK0505", cat(a.op().name, " needs index of ", n, " blocks, got ",
                                      a.in(index).shape.str()));
    }
  }
  std::int64_t offset(std::int64_t b, std::int64_t s) const {
    if (!mode_.paged) {
      const std::int64_t at = slot_at(a_, a_.in(index), b * tokens_ + s, map_.slots);
      return at < 0 ? -1 : b * map_.rows.request + at * map_.rows.position;
    }
    if (!mode_.blocks) {
      const std::int64_t at = slot_at(a_, a_.in(index), b * tokens_ + s, map_.slots);
      return at < 0 ? -1 : map_.offset(at);
    }
    const std::int64_t page = slot_at(a_, a_.in(index), b * pages_ + s / map_.block, map_.slots);
    return page < 0 ? -1 : map_.offset(page / map_.block * map_.block + s % map_.block);
  }
  void write(std::int64_t at, const std::vector<float>& row) const {
    if (at >= 0) map_.rows.write(at, static_cast<std::int64_t>(row.size()), row.data());
  }

 private:
  const EvalArgs& a_;
  const CacheMode& mode_;
  SlotMap map_;
  std::int64_t tokens_ = 0, pages_ = 0;
};

void latent_eval(const EvalArgs& a, bool returns_caches) {
  const int caches = returns_caches ? 0 : 2;
  const int rows = returns_caches ? 2 : 0;
  for (const int i : {0, 1})
    if (a.out(caches + i).data != a.in(k_cache + i).data)
      copy_into(a.out(caches + i), a.in(k_cache + i));
  const CacheMode& mode = *cache_mode(a.text("cache_mode"));
  const Places rope_place(a, a.out(caches), mode, "k_cache");
  const Places latent_place(a, a.out(caches + 1), mode, "ckv_cache");
  const bool give = a.flag("is_output_kv");
  const std::vector<float> weight = floats(a.in(gamma));
  const std::int64_t rms = a.in(gamma).shape[0];
  const std::int64_t rope = a.in(cos_).shape[3];
  const auto eps = static_cast<float>(a.f64("epsilon"));
  const std::vector<float> k_factor = a.has(k_scale) ? floats(a.in(k_scale)) : std::vector<float>();
  const std::vector<float> c_factor = a.has(c_scale) ? floats(a.in(c_scale)) : std::vector<float>();
  const RowMap x = row_map(a.in(kv), "BNSD");
  const RowMap c = row_map(a.in(cos_), "BNSD");
  const RowMap s = row_map(a.in(sin_), "BNSD");
  const RowMap rotated = row_map(a.out(rows), "BNSD");
  const RowMap normed = row_map(a.out(rows + 1), "BNSD");
  std::vector<float> row(static_cast<std::size_t>(rms + rope));
  std::vector<float> cosines(static_cast<std::size_t>(rope));
  std::vector<float> sines(static_cast<std::size_t>(rope));
  for (std::int64_t b = 0; b < a.in(kv).shape[0]; ++b)
    for (std::int64_t t = 0; t < a.in(kv).shape[2]; ++t) {
      x.read(x.offset(b, t, 0), rms + rope, row.data());
      c.read(c.offset(b, t, 0), rope, cosines.data());
      s.read(s.offset(b, t, 0), rope, sines.data());
      std::vector<float> y(row.begin(), row.begin() + rms);
      std::vector<float> k(row.begin() + rms, row.end());
      rms_norm(&y, weight, eps);
      rotate_pairs(&k, cosines.data(), sines.data());
      const std::vector<float> none(give ? 0U : static_cast<std::size_t>(rms + rope), 0.0F);
      normed.write(normed.offset(b, t, 0), rms, give ? y.data() : none.data());
      rotated.write(rotated.offset(b, t, 0), rope, give ? k.data() : none.data());
      scale_by(&y, c_factor);
      scale_by(&k, k_factor);
      rope_place.write(rope_place.offset(b, t), k);
      latent_place.write(latent_place.offset(b, t), y);
    }
}

Cost latent_cost(const Args& args, const Load&) {
  Cost c;
  for (const int i : {kv, gamma, cos_, sin_, index}) c.read += bytes_of(args.in(i));
  const double tokens = elements_of(args.in(kv));
  c.vector = 8 * tokens;
  c.written = bytes_of(args.in(kv)) * (args.flag("is_output_kv") ? 2 : 1);
  return c;
}

constexpr Limit v1_limits[] = {
    {"kv_rmsnorm_rope_cache.hidden", "kv.shape[-1] == 576"},
    {"kv_rmsnorm_rope_cache.rms", "gamma.shape[0] == 512"},
    {"kv_rmsnorm_rope_cache.rope", "cos.shape[-1] == 64"},
    {"kv_rmsnorm_rope_cache.unique", "unique(index)", "duplicates are undefined"},
    {"kv_rmsnorm_rope_cache.blocks",
     "cache_mode == \"Norm\" or k_cache.shape[0] >= (kv.shape[2] + k_cache.shape[1] - 1) // "
     "k_cache.shape[1] * kv.shape[0]",
     "a block for each started one of every request"},
    {"kv_rmsnorm_rope_cache.quant_pair", "(k_rope_scale is None) == (c_kv_scale is None)"},
};
constexpr std::string_view v1_notes[] = {
    "the rope cache comes first, the latent cache second",
    "epsilon is 1e-5 unless given: pass the model's",
    "k_rope_offset and c_kv_offset are not usable yet; v, of split heads, is not known here",
    "PA_NZ stores a block as [D / 16, block, 16], int8 with 32, in a cache of the same shape",
    "is_output_kv has a meaning in the paged modes; without it the reference gives zeros",
    "index: Norm [B, S] places in the request's cache; PA, PA_BNSD, PA_NZ a slot a token; PA_BLK_* "
    "the first slot of each block; negative ones are skipped",
};
constexpr NpuFacts v1_facts{
    .group = "attention",
    .signature =
        "npu_kv_rmsnorm_rope_cache(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index, "
        "Tensor k_cache, Tensor ckv_cache, *, Tensor? k_rope_scale=None, Tensor? c_kv_scale=None, "
        "Tensor? k_rope_offset=None, Tensor? c_kv_offset=None, Tensor? v=None, float epsilon=1e-5, "
        "str cache_mode='Norm', bool is_output_kv=False) -> (Tensor, Tensor, Tensor, Tensor)",
    .source = "op-plugin docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated (op-plugin docs); shape function; GE converter",
    .notes = v1_notes,
    .limits = v1_limits,
};
constexpr std::string_view v2_notes[] = {
    "as v1, whose document it goes by; the caches are changed in place and not returned",
    "experimental by the torchair docs; npugraph_ex can put it in place again",
    "k_cache_dtype and ckv_cache_dtype are not known here",
};
constexpr NpuFacts v2_facts{
    .group = "attention",
    .signature =
        "npu_kv_rmsnorm_rope_cache_v2(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor "
        "index, Tensor(a!) k_cache, Tensor(b!) ckv_cache, *, Tensor? k_rope_scale=None, Tensor? "
        "c_kv_scale=None, Tensor? k_rope_offset=None, Tensor? c_kv_offset=None, Tensor? v=None, "
        "float epsilon=1e-5, str cache_mode='Norm', bool is_output_kv=False, int? "
        "k_cache_dtype=None, int? ckv_cache_dtype=None) -> (Tensor, Tensor)",
    .source = "library schema + op-plugin docs of v1",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "no document; shape function; GE converter of the functional variant alone",
    .notes = v2_notes,
};

constexpr int v1_updates[] = {k_cache, ckv_cache};
constexpr int v2_updates[] = {-1, -1, k_cache, ckv_cache};

}  // namespace

const OpDef npu_kv_rmsnorm_rope_cache{
    .name = "npu.npu_kv_rmsnorm_rope_cache",
    .schema =
        "(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index, Tensor k_cache, Tensor "
        "ckv_cache, Tensor? k_rope_scale=None, Tensor? c_kv_scale=None, Tensor? "
        "k_rope_offset=None, Tensor? c_kv_offset=None, Tensor? v=None, float epsilon=1e-5, str "
        "cache_mode=\"Norm\", bool is_output_kv=False) -> (Tensor k_cache, Tensor ckv_cache, "
        "Tensor k_embed_out, Tensor y_out)",
    .doc =
        "The first part of kv is normed (RMS) and goes into ckv_cache, the rest has its even lanes "
        "moved to the front, is rotated by halves and goes into k_cache, both in place; int8 "
        "caches hold round(x * scale).",
    .infer = [](const Args& a) { return latent_infer(a, true); },
    .eval = [](const EvalArgs& a) { latent_eval(a, true); },
    .updates = v1_updates,
    .cost = latent_cost,
    .npu = &v1_facts,
};

const OpDef npu_kv_rmsnorm_rope_cache_v2{
    .name = "npu.npu_kv_rmsnorm_rope_cache_v2",
    .schema =
        "(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index, Tensor k_cache, Tensor "
        "ckv_cache, Tensor? k_rope_scale=None, Tensor? c_kv_scale=None, Tensor? "
        "k_rope_offset=None, Tensor? c_kv_offset=None, Tensor? v=None, float epsilon=1e-5, str "
        "cache_mode=\"Norm\", bool is_output_kv=False, dtype? k_cache_dtype=None, dtype? "
        "ckv_cache_dtype=None) -> (Tensor k_embed_out, Tensor y_out, Tensor k_cache, Tensor "
        "ckv_cache)",
    .doc = "npu_kv_rmsnorm_rope_cache with other results: the rotated and the normed part.",
    .infer = [](const Args& a) { return latent_infer(a, false); },
    .eval = [](const EvalArgs& a) { latent_eval(a, false); },
    .updates = v2_updates,
    .cost = latent_cost,
    .npu = &v2_facts,
};

}  // namespace tk::ops

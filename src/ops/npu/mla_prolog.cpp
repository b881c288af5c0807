// npu_mla_prolog_v3 and _v2 of torch_npu 2.14: from hidden states to MLA's absorbed query, and the
// latent and rope part of the key into their caches.
#include "ops/npu/mla_prolog.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/cost.h"
#include "ops/gemm.h"
#include "ops/infer.h"
#include "ops/npu/fused_attention.h"
#include "ops/npu/int_rows.h"
#include "ops/npu/mla_rows.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"
#include "ops/npu/slot_map.h"
#include "ops/view.h"

namespace tk::ops {
namespace {

using mla::Inputs;
using mla::inputs_of;
using mla::Mode;
using mla::mode_of;
using mla::tile;

struct Sizes {
  SymDims lead;  // [T] or [B, S]
  Sym tokens, hidden, cq, ckv, rope, heads, nope;
};

Sizes sizes_of(const Args& args) {
  const Inputs in = inputs_of(args.op());
  const Type& x = args.in(in.x);
  need_rank(args, in.x, 2, 3);
  need_rank(args, in.w_dq, 2, 2);
  need_rank(args, in.w_uq_qr, 2, 2);
  need_rank(args, in.w_uk, 3, 3);
  need_rank(args, in.w_dkv_kr, 2, 2);
  need_rank(args, in.sin, 2, 3);
  Sizes s;
  s.lead = SymDims(x.shape.begin(), x.shape.end() - 1);
  s.tokens = 1;
  for (const Sym& d : s.lead) s.tokens = s.tokens * d;
  s.hidden = x.shape.back();
  s.cq = args.in(in.w_dq).dim(1);
  s.heads = args.in(in.w_uk).dim(0);
  s.nope = args.in(in.w_uk).dim(1);
  s.ckv = args.in(in.w_uk).dim(2);
  s.rope = args.in(in.sin).shape.back();
  need_same(args, args.in(in.w_dq).dim(0), s.hidden, "weight_dq and token_x");
  need_same(args, args.in(in.w_uq_qr).dim(0), s.cq, "weight_uq_qr and weight_dq");
  need_same(args, args.in(in.w_uq_qr).dim(1), s.heads * (s.nope + s.rope),
            "weight_uq_qr and heads * (D + rope)");
  need_same(args, args.in(in.w_dkv_kr).dim(0), s.hidden, "weight_dkv_kr and token_x");
  need_same(args, args.in(in.w_dkv_kr).dim(1), s.ckv + s.rope, "weight_dkv_kr and latent + rope");
  need_same(args, args.in(in.gamma_cq).numel(), s.cq, "rmsnorm_gamma_cq and weight_dq");
  need_same(args, args.in(in.gamma_ckv).numel(), s.ckv, "rmsnorm_gamma_ckv and weight_uk");
  SymDims angles = s.lead;
  angles.push_back(s.rope);
  for (const int i : {in.sin, in.cos})
    if (args.in(i).shape != angles)
      args.fail(cat("needs rope_sin and rope_cos ", str(angles), ", got ", args.in(i).str()));
  return s;
}

// kv_cache_quant_mode 3: latent, rope part and scales of a token in one row of bytes.
constexpr std::int64_t tiled = 3;

void need_quant(const Args& args, std::int64_t weights, std::int64_t cache) {
  if (weights < 0 || weights > 2)
    args.fail(cat("is known here with weight_quant_mode 0, 1 and 2, got ", weights));
  if (cache < 0 || cache > tiled)
    args.fail(cat("has kv_cache_quant_mode 0, 1, 2 and 3, got ", cache));
  const Inputs in = inputs_of(args.op());
  const auto need = [&](int i, bool quantised, std::string_view scale) {
    if ((args.in(i).dtype == DType::i8) != quantised)
      args.fail(cat("needs ", args.op().parsed().tensors[static_cast<std::size_t>(i)].name,
                    quantised ? " of i8" : " of floats", " in this quantisation mode, got ",
                    args.in(i).str()));
    if (!quantised) need_float(args, i);
    if (quantised && !scale.empty() && !given(args, scale))
      args.fail(cat("needs ", scale, " in this quantisation mode"));
  };
  need(in.x, weights == 2, "dequant_scale_x");
  need(in.w_dq, weights == 2, "dequant_scale_w_dq");
  need(in.w_uq_qr, weights >= 1, "dequant_scale_w_uq_qr");
  need(in.w_dkv_kr, weights == 2, "dequant_scale_w_dkv_kr");
  need(in.kv_cache, cache != 0, cache == tiled ? "" : "quant_scale_ckv");
  if (cache != tiled) need(in.kr_cache, cache == 2, "quant_scale_ckr");
  for (const int i : {in.w_uk, in.gamma_cq, in.gamma_ckv, in.sin, in.cos}) need_float(args, i);
}

// A factor for each of so many, or where `one` is allowed one for all.
void need_factors(const Args& args, std::string_view name, const Sym& n, bool one = false) {
  if (!given(args, name)) return;
  const int i = input_of(args.op(), name);
  need_float(args, i);
  if (!one || !args.in(i).numel().is(1)) need_same(args, args.in(i).numel(), n, name);
}

void need_scales(const Args& args, const Sizes& s) {
  const Inputs in = inputs_of(args.op());
  need_factors(args, "dequant_scale_x", s.tokens);
  need_factors(args, "dequant_scale_w_dq", s.cq);
  need_factors(args, "dequant_scale_w_uq_qr", args.in(in.w_uq_qr).dim(1));
  need_factors(args, "dequant_scale_w_dkv_kr", s.ckv + s.rope);
  need_factors(args, "smooth_scales_cq", s.cq, true);
  need_factors(args, "quant_scale_ckv", s.ckv, true);
  need_factors(args, "quant_scale_ckr", s.rope, true);
}

void need_caches(const Args& args, const Sizes& s, std::int64_t cache) {
  const Inputs in = inputs_of(args.op());
  const std::string& name = args.text("cache_mode");
  const Mode mode = mode_of(name);
  if (!mode.packed && !mode.nz && !mode.blocks && name != "PA_BSND")
    args.fail(cat("has no cache_mode \"", name, "\""));
  const bool v3 = args.op().parsed().tensor_index("actual_seq_len") >= 0;
  if (mode.blocks && !v3) args.fail(cat("has no cache_mode ", name, "; npu_mla_prolog_v3 has it"));
  const bool ends = mode.blocks && s.lead.size() == 1;
  if (v3 && given(args, "actual_seq_len") != ends)
    args.fail("needs actual_seq_len with tokens [T, He] in the modes PA_BLK_*, and there alone");
  const bool one = cache == tiled;
  if (one && (mode.nz || mode.blocks || !s.ckv.is_const() || s.ckv.value() % tile != 0))
    args.fail(cat("needs cache_mode PA_BSND, BSND or TND and a latent of tiles of ", tile,
                  " for kv_cache_quant_mode 3"));
  const Sym width = one ? s.ckv + s.rope * 2 + s.ckv.value() / tile * 4 : s.ckv;
  if (one && !args.in(in.kr_cache).numel().is(0))
    args.fail(
        cat("needs an empty kr_cache for kv_cache_quant_mode 3, got ", args.in(in.kr_cache).str()));
  for (const auto& [i, dim] : {std::pair{in.kv_cache, width}, std::pair{in.kr_cache, s.rope}}) {
    if (one && i == in.kr_cache) continue;
    const Type& c = args.in(i);
    if (c.rank() != (name == "TND" ? 3 : 4) || !c.dim(-2).is(1))
      args.fail(cat("needs caches [blocks, block, 1, D], got ", c.str()));
    need_same(args, c.dim(-1), dim, "the caches' D and latent or rope");
  }
  for (const int axis : {0, 1})
    if (!one)
      need_same(args, args.in(in.kv_cache).dim(axis), args.in(in.kr_cache).dim(axis),
                "blocks of the two caches");
  if (mode.packed) return;
  if (!args.has(in.index)) args.fail("needs cache_index in paged cache modes");
  need_integral(args, in.index);
  if (!mode.blocks) {
    need_same(args, args.in(in.index).numel(), s.tokens, "cache_index and tokens");
  } else if (ends) {
    const Type& t = args.in(input_of(args.op(), "actual_seq_len"));
    if (t.rank() != 1 || t.dtype != DType::i32)
      args.fail(cat("needs actual_seq_len i32[B], got ", t.str()));
    need_rank(args, in.index, 1, 1);
  } else {
    need_rank(args, in.index, 2, 2);
    need_same(args, args.in(in.index).dim(0), s.lead[0], "requests of cache_index and token_x");
  }
}

constexpr std::string_view v3_refused[] = {"k_nope_clip_alpha",   "token_x_dtype",
                                           "weight_dq_dtype",     "weight_uq_qr_dtype",
                                           "weight_dkv_kr_dtype", "kv_cache_dtype"};

DType float_dtype(const Args& args) { return args.in(inputs_of(args.op()).w_uk).dtype; }

Type with(DType dtype, SymDims lead, std::initializer_list<Sym> more) {
  lead.insert(lead.end(), more);
  return {dtype, std::move(lead)};
}

std::vector<Type> v3_infer(const Args& args) {
  refuse_given(args, v3_refused);
  for (const char* name : {"ckvkr_repo_mode", "quant_scale_repo_mode"})
    if (args.i64(name) != (args.i64("kv_cache_quant_mode") == tiled ? 1 : 0))
      args.fail(cat("has ", name, " 1 with kv_cache_quant_mode 3, and there alone"));
  if (args.i64("tile_size") != tile) args.fail(cat("has tile_size ", tile));
  const Sizes s = sizes_of(args);
  const std::int64_t weights = args.i64("weight_quant_mode");
  const std::int64_t cache = args.i64("kv_cache_quant_mode");
  need_quant(args, weights, cache);
  need_scales(args, s);
  need_caches(args, s, cache);
  const bool quantised_query = weights == 2 && cache == 1;
  if ((args.i64("query_quant_mode") == 1) != quantised_query)
    args.fail(
        "has query_quant_mode 1 with weight_quant_mode 2 and kv_cache_quant_mode 1, and with "
        "those alone");
  const DType d = float_dtype(args);
  const bool norm = args.flag("query_norm_flag");
  const Inputs in = inputs_of(args.op());
  return {with(quantised_query ? DType::i8 : d, s.lead, {s.heads, s.ckv}),
          with(d, s.lead, {s.heads, s.rope}),
          {DType::f32, quantised_query ? SymDims{s.tokens, s.heads, 1} : SymDims{0}},
          norm ? with(weights >= 1 ? DType::i8 : d, s.lead, {s.cq}) : Type{d, {0}},
          {DType::f32, norm && weights >= 1 ? SymDims{s.tokens, 1} : SymDims{0}},
          args.in(in.kv_cache),
          args.in(in.kr_cache)};
}

// v2 says its quantisation by what is given.
std::pair<std::int64_t, std::int64_t> v2_modes(const Args& args) {
  const Inputs in = inputs_of(args.op());
  const std::int64_t weights = args.in(in.x).dtype == DType::i8         ? 2
                               : args.in(in.w_uq_qr).dtype == DType::i8 ? 1
                                                                        : 0;
  const std::int64_t cache = args.in(in.kr_cache).dtype == DType::i8   ? 2
                             : args.in(in.kv_cache).dtype == DType::i8 ? 1
                                                                       : 0;
  return {weights, cache};
}

std::vector<Type> v2_infer(const Args& args) {
  const Sizes s = sizes_of(args);
  const auto [weights, cache] = v2_modes(args);
  need_quant(args, weights, cache);
  need_scales(args, s);
  need_caches(args, s, cache);
  const DType d = float_dtype(args);
  const bool quantised_query = weights == 2 && cache == 1;
  const Inputs in = inputs_of(args.op());
  return {with(quantised_query ? DType::i8 : d, s.lead, {s.heads, s.ckv}),
          with(d, s.lead, {s.heads, s.rope}),
          args.in(in.kv_cache),
          args.in(in.kr_cache),
          {DType::f32, quantised_query ? SymDims{s.tokens, s.heads, 1} : SymDims{1}}};
}

Cost prolog_cost(const Args& args, const Load&) {
  const Inputs in = inputs_of(args.op());
  const Sizes s = sizes_of(args);
  const double tokens = static_cast<double>(s.tokens.value());
  Cost c;
  for (const int i : {in.w_dq, in.w_uq_qr, in.w_uk, in.w_dkv_kr}) {
    c.cube += 2 * tokens * elements_of(args.in(i));
    c.read += bytes_of(args.in(i));
  }
  for (const int i : {in.x, in.sin, in.cos}) c.read += bytes_of(args.in(i));
  const std::vector<Type> out = args.op().infer(args);
  c.written = bytes_of(out[0]) + bytes_of(out[1]);
  c.written +=
      tokens * static_cast<double>((s.ckv + s.rope).value() *
                                   static_cast<std::int64_t>(size_of(args.in(in.kv_cache).dtype)));
  c.vector = 8 * (elements_of(out[0]) + elements_of(out[1]));
  return c;
}

#define TK_PROLOG_LIMITS(op)                                                                   \
  {op ".Hckv", "Hckv == 512"}, {op ".D", "D == 128"}, {op ".Dr", "Dr == 64"},                  \
      {op ".Nkv", "kv_cache.shape[-2] == 1"}, {op ".N", "N in (1, 2, 4, 8, 16, 32, 64, 128)"}, \
      {op ".Hcq", "Hcq == 1536"}, {op ".He", "He in (6144, 7168, 7680)"},                      \
      {op ".block", "not paged or kv_cache.shape[1] in (16, 128)"},                            \
      {op ".S", "token_x.ndim == 2 or 0 <= S <= 16"}, {op ".T", "0 <= T <= 1048576"},          \
      {op ".index",                                                                            \
       "not paged or (cache_index.dtype == int64 and (cache_index.numel == 0 or "              \
       "(min(cache_index) >= 0 and max(cache_index) < kv_cache.shape[0] * "                    \
       "(1 if blocks else kv_cache.shape[1]))))"}

constexpr Symbol symbols[] = {
    {"He", "token_x.shape[-1]", "hidden size"},
    {"Hcq", "weight_dq.shape[-1]", "rank of the query"},
    {"Hckv", "weight_uk.shape[-1]", "rank of keys and values"},
    {"N", "weight_uk.shape[0]", "heads of this rank"},
    {"D", "weight_uk.shape[1]", "head dim without rope"},
    {"Dr", "rope_sin.shape[-1]", "rope dim"},
    {"S", "token_x.shape[1]", "tokens of a request"},
    {"T", "prod(token_x.shape[:-1])", "tokens"},
    {"paged", "cache_mode not in (\"BSND\", \"TND\")"},
    {"blocks", "cache_mode in (\"PA_BLK_BSND\", \"PA_BLK_NZ\")",
     "cache_index has the numbers of blocks"},
};
constexpr Limit v3_limits[] = {TK_PROLOG_LIMITS("mla_prolog_v3")};
constexpr std::string_view v3_notes[] = {
    "even lanes of the rope parts move to the front half before they are rotated by halves",
    ("weight_quant_mode 0 none, 1 weight_uq_qr, 2 weight_dq, weight_uq_qr and weight_dkv_kr with "
     "token_x, all int8; 3 to 5 are of other chips; the wheel's text has weight_uk quantised in 2, "
     "op-plugin's and the models weight_uq_qr"),
    ("kv_cache_quant_mode 0 none, 1 the tensor, 2 a channel; 3 tiles of 128: rows of 656 bytes "
     "with latent, rope part and scales, an empty kr_cache, both repo modes 1"),
    "query_quant_mode 1 goes with int8 weights and an int8 cache",
    "both epsilons are 1e-5 unless given: pass the model's",
    "no tokens give nothing and leave the caches",
    "eleven inputs are positional; rope_sin comes before rope_cos",
    ("cache_mode PA_BSND, PA_NZ; of op-plugin's docs: BSND and TND write tokens in order, "
     "PA_BLK_BSND and PA_BLK_NZ take the numbers of blocks: cache_index [B, ceil(S / block)], or "
     "with tokens [T, He] those of all requests, which actual_seq_len ends (i32 [B])"),
    "results that are off are empty",
    "weights are FRACTAL_NZ except weight_uk; newer documents take more sizes",
};
constexpr NpuFacts v3_facts{
    .group = "attention",
    .signature =
        "npu_mla_prolog_v3(Tensor token_x, Tensor weight_dq, Tensor weight_uq_qr, Tensor "
        "weight_uk, Tensor weight_dkv_kr, Tensor rmsnorm_gamma_cq, Tensor rmsnorm_gamma_ckv, "
        "Tensor rope_sin, Tensor rope_cos, Tensor(a!) kv_cache, Tensor(b!) kr_cache, *, Tensor? "
        "cache_index=None, Tensor? dequant_scale_x=None, Tensor? dequant_scale_w_dq=None, Tensor? "
        "dequant_scale_w_uq_qr=None, Tensor? dequant_scale_w_dkv_kr=None, Tensor? "
        "quant_scale_ckv=None, Tensor? quant_scale_ckr=None, Tensor? smooth_scales_cq=None, "
        "Tensor? actual_seq_len=None, Tensor? k_nope_clip_alpha=None, float "
        "rmsnorm_epsilon_cq=1e-05, float rmsnorm_epsilon_ckv=1e-05, str cache_mode=\"PA_BSND\", "
        "bool query_norm_flag=False, int weight_quant_mode=0, int kv_cache_quant_mode=0, int "
        "query_quant_mode=0, int ckvkr_repo_mode=0, int quant_scale_repo_mode=0, int "
        "tile_size=128, float qc_qr_scale=1.0, float kc_scale=1.0, int? token_x_dtype=None, int? "
        "weight_dq_dtype=None, int? weight_uq_qr_dtype=None, int? weight_dkv_kr_dtype=None, int? "
        "kv_cache_dtype=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter; npugraph_ex can put it in place again",
    .notes = v3_notes,
    .symbols = symbols,
    .limits = v3_limits,
};
constexpr Limit v2_limits[] = {TK_PROLOG_LIMITS("mla_prolog_v2")};
constexpr std::string_view v2_notes[] = {
    "as v3 without its query norm, scales and modes, which follow from the dtypes; cache_index is "
    "positional; the caches are results, changed in place",
};
constexpr NpuFacts v2_facts{
    .group = "attention",
    .signature =
        "npu_mla_prolog_v2(Tensor token_x, Tensor weight_dq, Tensor weight_uq_qr, Tensor "
        "weight_uk, Tensor weight_dkv_kr, Tensor rmsnorm_gamma_cq, Tensor rmsnorm_gamma_ckv, "
        "Tensor rope_sin, Tensor rope_cos, Tensor cache_index, Tensor kv_cache, Tensor kr_cache, "
        "*, Tensor? dequant_scale_x=None, Tensor? dequant_scale_w_dq=None, Tensor? "
        "dequant_scale_w_uq_qr=None, Tensor? dequant_scale_w_dkv_kr=None, Tensor? "
        "quant_scale_ckv=None, Tensor? quant_scale_ckr=None, Tensor? smooth_scales_cq=None, float "
        "rmsnorm_epsilon_cq=1e-05, float rmsnorm_epsilon_ckv=1e-05, str cache_mode=\"PA_BSND\") "
        "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .notes = v2_notes,
    .symbols = symbols,
    .limits = v2_limits,
};

constexpr int v3_updates[] = {-1, -1, -1, -1, -1, 9, 10};
constexpr int v2_updates[] = {-1, -1, 10, 11};

}  // namespace

const OpDef npu_mla_prolog_v3{
    .name = "npu.npu_mla_prolog_v3",
    .schema =
        "(Tensor token_x, Tensor weight_dq, Tensor weight_uq_qr, Tensor weight_uk, Tensor "
        "weight_dkv_kr, Tensor rmsnorm_gamma_cq, Tensor rmsnorm_gamma_ckv, Tensor rope_sin, Tensor "
        "rope_cos, Tensor kv_cache, Tensor kr_cache, Tensor? cache_index=None, Tensor? "
        "dequant_scale_x=None, Tensor? dequant_scale_w_dq=None, Tensor? "
        "dequant_scale_w_uq_qr=None, Tensor? dequant_scale_w_dkv_kr=None, Tensor? "
        "quant_scale_ckv=None, Tensor? quant_scale_ckr=None, Tensor? smooth_scales_cq=None, "
        "Tensor? actual_seq_len=None, Tensor? k_nope_clip_alpha=None, float "
        "rmsnorm_epsilon_cq=1e-05, float rmsnorm_epsilon_ckv=1e-05, str cache_mode=\"PA_BSND\", "
        "bool query_norm_flag=False, int weight_quant_mode=0, int kv_cache_quant_mode=0, int "
        "query_quant_mode=0, int ckvkr_repo_mode=0, int quant_scale_repo_mode=0, int "
        "tile_size=128, float qc_qr_scale=1.0, float kc_scale=1.0, dtype? token_x_dtype=None, "
        "dtype? weight_dq_dtype=None, dtype? weight_uq_qr_dtype=None, dtype? "
        "weight_dkv_kr_dtype=None, dtype? kv_cache_dtype=None) -> (Tensor query, Tensor "
        "query_rope, Tensor dequant_scale_q_nope, Tensor query_norm, Tensor dequant_scale_q_norm, "
        "Tensor kv_cache, Tensor kr_cache)",
    .doc =
        "c = rms_norm(x @ weight_dq) * qc_qr_scale; heads of c @ weight_uq_qr: the first part @ "
        "weight_uk is query, the rest rotated query_rope. x @ weight_dkv_kr: the first part normed "
        "* kc_scale goes into kv_cache, the rest rotated into kr_cache, in place. Each product is "
        "rounded to the dtype of weight_uk.",
    .infer = v3_infer,
    .eval = mla::v3_eval,
    .updates = v3_updates,
    .cost = prolog_cost,
    .npu = &v3_facts,
};

const OpDef npu_mla_prolog_v2{
    .name = "npu.npu_mla_prolog_v2",
    .schema =
        "(Tensor token_x, Tensor weight_dq, Tensor weight_uq_qr, Tensor weight_uk, Tensor "
        "weight_dkv_kr, Tensor rmsnorm_gamma_cq, Tensor rmsnorm_gamma_ckv, Tensor rope_sin, Tensor "
        "rope_cos, Tensor cache_index, Tensor kv_cache, Tensor kr_cache, Tensor? "
        "dequant_scale_x=None, Tensor? dequant_scale_w_dq=None, Tensor? "
        "dequant_scale_w_uq_qr=None, Tensor? dequant_scale_w_dkv_kr=None, Tensor? "
        "quant_scale_ckv=None, Tensor? quant_scale_ckr=None, Tensor? smooth_scales_cq=None, float "
        "rmsnorm_epsilon_cq=1e-05, float rmsnorm_epsilon_ckv=1e-05, str cache_mode=\"PA_BSND\") "
        "-> (Tensor query, Tensor query_rope, Tensor kv_cache, Tensor kr_cache, Tensor "
        "dequant_scale_q_nope)",
    .doc = "npu_mla_prolog_v3 with fewer arguments, and the caches among its results.",
    .infer = v2_infer,
    .eval = mla::v2_eval,
    .updates = v2_updates,
    .cost = prolog_cost,
    .npu = &v2_facts,
};

}  // namespace tk::ops

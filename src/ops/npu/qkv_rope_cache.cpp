// npu_qkv_rms_norm_rope_cache of torch_npu 2.14: heads of one projection normed, rotated, and keys
// and values written into NZ caches.
#include <cmath>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/attend.h"
#include "ops/npu/fused_attention.h"
#include "ops/npu/mla_rows.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/slot_map.h"

namespace tk::ops {
namespace {

enum Input {
  qkv,
  q_gamma,
  k_gamma,
  cos_,
  sin_,
  index,
  q_out,
  k_cache,
  v_cache,
  k_scale,
  v_scale,
  k_offset,
  v_offset
};

std::vector<Type> infer(const Args& args) {
  const std::vector<std::int64_t> size = args.ints("qkv_size");
  const std::vector<std::int64_t> heads = args.ints("head_nums");
  if (size.size() != 4 || heads.size() != 3 || size[2] != heads[0] + heads[1] + heads[2] ||
      heads[0] < 1 || heads[1] < 1 || heads[1] != heads[2])
    args.fail("needs qkv_size [B, S, heads, D] and head_nums [q, k, v] that make its heads");
  if (args.text("cache_mode") != "PA_NZ")
    args.fail(cat("is known here with cache_mode PA_NZ, got \"", args.text("cache_mode"), "\""));
  const Type& x = args.in(qkv);
  need_float(args, qkv);
  for (const int i : {qkv, cos_, sin_}) need_rank(args, i, 2, 2);
  need_same(args, x.dim(0), size[0] * size[1], "tokens of qkv and qkv_size");
  need_same(args, x.dim(1), size[2] * size[3], "the width of qkv and heads * D");
  for (const int i : {cos_, sin_})
    if (!(args.in(i).dim(0) == x.dim(0)) || !args.in(i).dim(1).is(size[3]))
      args.fail(cat("is known here with cos and sin [tokens, D], got ", args.in(i).str()));
  for (const int i : {q_gamma, k_gamma})
    need_same(args, args.in(i).numel(), size[3], "q_gamma and k_gamma and D");
  need_integral(args, index);
  need_same(args, args.in(index).numel(), x.dim(0), "index and tokens");
  if (!(args.in(q_out) == Type{x.dtype, {x.dim(0), heads[0] * size[3]}}))
    args.fail(cat("needs q_out of qkv's dtype, [tokens, heads * D], got ", args.in(q_out).str()));
  for (const auto& [cache, scale] : {std::pair{k_cache, k_scale}, std::pair{v_cache, v_scale}}) {
    const Type& c = args.in(cache);
    need_rank(args, cache, 4, 4);
    need_same(args, c.dim(1) * c.dim(3), heads[1] * size[3],
              "a cache [blocks, heads * D / lanes, block, lanes] and heads * D");
    if (args.has(scale) != (c.dtype == DType::i8) || (!args.has(scale) && c.dtype != x.dtype))
      args.fail(cat("needs caches of qkv's dtype, or of i8 with a scale, got ", c.str()));
    if (args.has(scale) && !args.in(scale).numel().is(1))
      need_same(args, args.in(scale).numel(), heads[1] * size[3], "a scale and heads * D");
  }
  const bool give = args.flag("is_output_qkv");
  std::vector<Type> out;
  for (const std::int64_t n : heads)
    out.push_back({x.dtype, give ? SymDims{x.dim(0), n * size[3]} : SymDims{0}});
  for (const int i : {q_out, k_cache, v_cache}) out.push_back(args.in(i));
  return out;
}

// x / scale + offset, of one head; nothing without a scale.
void quantise(std::vector<float>* x, const std::vector<float>& scale,
              const std::vector<float>& offset, std::size_t head) {
  if (scale.empty()) return;
  const std::size_t n = x->size();
  const auto at = [&](const std::vector<float>& v, std::size_t d) {
    return v[v.size() == 1 ? 0 : head * n + d];
  };
  for (std::size_t d = 0; d < n; ++d)
    (*x)[d] = (*x)[d] / at(scale, d) + (offset.empty() ? 0 : at(offset, d));
}

void eval(const EvalArgs& a) {
  for (int i = 0; i < 3; ++i)
    if (a.out(3 + i).data != a.in(q_out + i).data) copy_into(a.out(3 + i), a.in(q_out + i));
  const Dims size = a.ints("qkv_size");
  const Dims heads = a.ints("head_nums");
  const std::int64_t dim = size[3];
  const auto factors = [&](int i) { return a.has(i) ? floats(a.in(i)) : std::vector<float>(); };
  const std::vector<float> gammas[] = {floats(a.in(q_gamma)), floats(a.in(k_gamma)), {}};
  const std::vector<float> scales[] = {{}, factors(k_scale), factors(v_scale)};
  const std::vector<float> offsets[] = {{}, factors(k_offset), factors(v_offset)};
  const std::vector<float> cosines = floats(a.in(cos_));
  const std::vector<float> sines = floats(a.in(sin_));
  const auto eps = static_cast<float>(a.f64("epsilon"));
  const RowMap x = row_map(a.in(qkv), "TH", size[2]);
  for (std::int64_t t = 0; t < a.in(qkv).shape[0]; ++t) {
    std::int64_t from = 0;
    for (std::size_t part = 0; part < 3; ++part) {
      const std::int64_t n = heads[static_cast<int>(part)];
      const TensorView& target = a.out(3 + static_cast<int>(part));
      for (std::int64_t h = 0; h < n; ++h) {
        std::vector<float> row(static_cast<std::size_t>(dim));
        x.read(x.offset(0, t, from + h), dim, row.data());
        if (part < 2) {
          rms_norm(&row, gammas[part], eps);
          rotate_half(&row, cosines.data() + t * dim, sines.data() + t * dim);
        }
        const TensorView& before = a.out(static_cast<int>(part));
        if (before.numel() > 0) {
          const RowMap b = row_map(before, "TH", n);
          b.write(b.offset(0, t, h), dim, row.data());
        }
        if (part == 0) {
          const RowMap q = row_map(target, "TH", n);
          q.write(q.offset(0, t, h), dim, row.data());
          continue;
        }
        const std::int64_t slots = target.shape[2];
        const std::int64_t slot = slot_at(a, a.in(index), t, target.shape[0] * slots);
        if (slot < 0) continue;
        quantise(&row, scales[part], offsets[part], static_cast<std::size_t>(h));
        const RowMap c = row_map(target, "BGSL");
        const std::int64_t lanes = target.shape[3];
        for (std::int64_t d = 0; d < dim; ++d) {  // heads * D in groups of lanes
          const std::int64_t e = h * dim + d;
          RowMap one = c;
          one.lane = 0;
          one.write(slot / slots * c.request + slot % slots * c.position + e / lanes * c.lane_step +
                        e % lanes * c.element,
                    1, &row[static_cast<std::size_t>(d)]);
        }
      }
      from += n;
    }
  }
}

constexpr Limit limits[] = {
    {"qkv_rms_norm_rope_cache.rank", "qkv.ndim == 2 and cos.ndim == 2 and sin.ndim == 2"},
};
constexpr std::string_view notes[] = {
    "it has no document: fits models that norm queries and keys; pending until its limits are "
    "known",
    "k_scale, v_scale: [heads, D] or one, int8 caches hold round(x / scale + offset)",
    "qkv_size: [B, S, heads of all, D]; head_nums: [q, k, v]; negative indices are skipped",
    "known here: cache_mode PA_NZ with caches [blocks, heads * D / lanes, block, lanes]",
};
constexpr NpuFacts facts{
    .group = "attention",
    .signature =
        "npu_qkv_rms_norm_rope_cache(Tensor qkv, Tensor q_gamma, Tensor k_gamma, Tensor cos, "
        "Tensor sin, Tensor index, Tensor(a!) q_out, Tensor(b!) k_cache, Tensor(c!) v_cache, "
        "int[4] qkv_size, int[3] head_nums, *, Tensor? k_scale=None, Tensor? v_scale=None, Tensor? "
        "k_offset=None, Tensor? v_offset=None, float epsilon=1e-6, str cache_mode='PA_NZ', bool "
        "is_output_qkv=False) -> (Tensor, Tensor, Tensor)",
    .source = "library schema + meta function",
    .a2 = "unknown",
    .a3 = "unknown",
    .graph_mode = "no document; shape function; GE converter",
    .notes = notes,
    .limits = limits,
};

constexpr int updates[] = {-1, -1, -1, q_out, k_cache, v_cache};

}  // namespace

const OpDef npu_qkv_rms_norm_rope_cache{
    .name = "npu.npu_qkv_rms_norm_rope_cache",
    .schema =
        "(Tensor qkv, Tensor q_gamma, Tensor k_gamma, Tensor cos, Tensor sin, Tensor index, Tensor "
        "q_out, Tensor k_cache, Tensor v_cache, Tensor? k_scale=None, Tensor? v_scale=None, "
        "Tensor? k_offset=None, Tensor? v_offset=None, int[] qkv_size, int[] head_nums, float "
        "epsilon=1e-6, str cache_mode=\"PA_NZ\", bool is_output_qkv=False) -> (Tensor q, Tensor k, "
        "Tensor v, Tensor q_out, Tensor k_cache, Tensor v_cache)",
    .doc =
        "Each head of queries and keys normed (RMS) and rotated by halves; queries into q_out, "
        "keys "
        "and values at their slots into the caches, in place. is_output_qkv gives all three before "
        "quantisation too.",
    .infer = infer,
    .eval = eval,
    .updates = updates,
    .cost =
        [](const Args& a, const Load&) {
          Cost c;
          c.read = c.written = bytes_of(a.in(qkv));
          c.vector = 8 * elements_of(a.in(qkv));
          return c;
        },
    .npu = &facts,
};

}  // namespace tk::ops

// The reference of npu_mla_prolog_v2 and _v3.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/compute.h"
#include "ops/gemm.h"
#include "ops/npu/fused_attention.h"
#include "ops/npu/int_rows.h"
#include "ops/npu/mla_prolog.h"
#include "ops/npu/mla_rows.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"
#include "ops/npu/slot_map.h"
#include "ops/view.h"

namespace tk::ops::mla {
namespace {

// Rows [n, k] by a weight [k, m], as floats whatever they were; rounded to `dtype`.
Tensor product(const TensorView& x, const TensorView& w, DType dtype) {
  const Tensor left = to_dtype(x, DType::f32);
  const Tensor right = to_dtype(w, DType::f32);
  Tensor out = Tensor::empty(DType::f32, {x.shape[0], w.shape[1]});
  gemm(left, right, out, 1.0);
  return dtype == DType::f32 ? out : to_dtype(out, dtype);
}

// out[i, j] *= rows[i] * columns[j]; absent factors are 1.
void rescale(Tensor* t, const std::vector<float>& rows, const std::vector<float>& columns) {
  const std::int64_t n = t->shape[1];
  for (std::int64_t i = 0; i < t->numel(); ++i) {
    float& x = t->as<float>()[i];
    if (!rows.empty()) x *= rows[static_cast<std::size_t>(i / n)];
    if (!columns.empty()) x *= columns[static_cast<std::size_t>(i % n)];
  }
}

// Each row as round(x / scale), scale = max |x| / 127.
std::vector<float> quantise_rows(Tensor* t) {
  const std::int64_t n = t->shape[1];
  std::vector<float> scales;
  for (std::int64_t r = 0; r < t->shape[0]; ++r) {
    float* row = t->as<float>() + r * n;
    float top = 0;
    for (std::int64_t i = 0; i < n; ++i) top = std::max(top, std::abs(row[i]));
    const float scale = top / 127;
    scales.push_back(scale);
    for (std::int64_t i = 0; i < n; ++i)
      row[i] = scale == 0 ? 0 : std::clamp(std::nearbyint(row[i] / scale), -128.0F, 127.0F);
  }
  return scales;
}

TensorView flat(TensorView t, std::int64_t rows) {
  const Dims shape{rows, rows == 0 ? t.shape.back() : t.numel() / rows};
  t.shape = shape;
  t.strides = contiguous_strides(shape);
  return t;
}

// Where each token of the step goes in the caches, which share their blocks; -1: nowhere.
std::vector<std::int64_t> slots_of(const EvalArgs& a, const Inputs& in, const Mode& mode,
                                   std::int64_t tokens, const SlotMap& map) {
  std::vector<std::int64_t> slots;
  if (!mode.blocks) {
    for (std::int64_t t = 0; t < tokens; ++t)
      slots.push_back(mode.packed ? checked_index(a, t, map.slots, false)
                                  : slot_at(a, a.in(in.index), t, map.slots));
    return slots;
  }
  // Blocks by their number, those of one request after those of the one before.
  const TensorView& x = a.in(in.x);
  std::vector<std::int64_t> lens;
  if (x.rank() == 3) {
    lens.assign(static_cast<std::size_t>(x.shape[0]), x.shape[1]);
  } else {
    const TensorView& totals = a.in(input_of(a.op(), "actual_seq_len"));
    lens = lengths(a, totals, true, tokens, cat(a.op().name, " needs actual_seq_len"));
  }
  std::int64_t all = 0;
  std::int64_t pages = 0;
  for (const std::int64_t n : lens) {
    all += n;
    pages += map.block == 0 ? 0 : (n + map.block - 1) / map.block;
  }
  if (map.block == 0 || all != tokens || pages != a.in(in.index).numel())
    throw UserError(
        "TK0505", cat(a.op().name, " needs a number in cache_index for each block of ", map.block,
                      " tokens of a request and ", tokens, " tokens in all, got ",
                      a.in(in.index).shape.str(), " for ", pages, " blocks and ", all, " tokens"));
  std::int64_t page = 0;
  for (const std::int64_t n : lens) {
    for (std::int64_t t = 0; t < n; ++t) {
      const std::int64_t number =
          slot_at(a, a.in(in.index), page + t / map.block, map.slots / map.block);
      slots.push_back(number < 0 ? -1 : number * map.block + t % map.block);
    }
    page += (n + map.block - 1) / map.block;
  }
  return slots;
}

// A row of kv_cache_quant_mode 3, byte by byte: the latent in tiles as round(x / scale), scale =
// max |x| / 127; the rope part in the dtype; the scales in f32.
std::vector<float> tiled_row(const std::vector<float>& latent, const std::vector<float>& rope,
                             DType dtype) {
  std::vector<std::int8_t> bytes(latent.size());
  std::vector<float> scales;
  for (std::size_t at = 0; at < latent.size(); at += tile)
    scales.push_back(
        quantise_row(std::vector<float>(latent.begin() + static_cast<std::ptrdiff_t>(at),
                                        latent.begin() + static_cast<std::ptrdiff_t>(at + tile)),
                     bytes.data() + at));
  const auto append = [&](const void* data, std::size_t n) {
    const auto* from = static_cast<const std::int8_t*>(data);
    bytes.insert(bytes.end(), from, from + n);
  };
  Tensor part = Tensor::empty(dtype, {static_cast<std::int64_t>(rope.size())});
  write_row(part, 0, 1, part.numel(), rope.data());
  append(part.data, rope.size() * size_of(dtype));
  append(scales.data(), scales.size() * sizeof(float));
  return {bytes.begin(), bytes.end()};
}

struct Results {
  TensorView query, rope, query_scale, norm, norm_scale, kv_cache, kr_cache;
};

void prolog(const EvalArgs& a, const Inputs& in, std::int64_t weights, bool quantised_query,
            float query_factor, float key_factor, const Results& out) {
  const auto factors = [&](std::string_view name) {
    return given(a, name) ? floats(a.in(input_of(a.op(), name))) : std::vector<float>();
  };
  const DType d = a.in(in.w_uk).dtype;
  const Tensor x_rows = contiguous(a.in(in.x));
  const std::int64_t tokens = x_rows.numel() / std::max<std::int64_t>(1, x_rows.shape.back());
  const TensorView& x_view = x_rows;
  const TensorView x = flat(x_view, tokens);
  const std::vector<float> x_scale = factors("dequant_scale_x");
  const std::int64_t heads = a.in(in.w_uk).shape[0];
  const std::int64_t nope = a.in(in.w_uk).shape[1];
  const std::int64_t latent = a.in(in.w_uk).shape[2];
  const std::int64_t rope = a.in(in.sin).shape.back();
  const std::vector<float> sines = floats(a.in(in.sin));
  const std::vector<float> cosines = floats(a.in(in.cos));

  // c^Q, normed, quantised where weight_uq_qr is.
  Tensor cq = product(x, a.in(in.w_dq), DType::f32);
  if (weights == 2) rescale(&cq, x_scale, factors("dequant_scale_w_dq"));
  const std::vector<float> gamma_q = floats(a.in(in.gamma_cq));
  const std::vector<float> smooth = factors("smooth_scales_cq");
  const std::int64_t width = cq.shape[1];
  for (std::int64_t t = 0; t < tokens; ++t) {
    float* at = cq.as<float>() + t * width;
    std::vector<float> row(at, at + width);
    round_to(&row, d);
    rms_norm(&row, gamma_q, static_cast<float>(a.f64("rmsnorm_epsilon_cq")));
    scale_by(&row, {query_factor});
    round_to(&row, d);
    if (weights >= 1) scale_by(&row, smooth);
    std::copy(row.begin(), row.end(), at);
  }
  std::vector<float> cq_scale;
  if (weights >= 1) cq_scale = quantise_rows(&cq);
  if (out.norm.data != nullptr && out.norm.numel() > 0)
    for (std::int64_t t = 0; t < tokens; ++t)
      write_row(out.norm, t * width, 1, width, cq.as<float>() + t * width);
  if (out.norm_scale.data != nullptr && out.norm_scale.numel() > 0)
    std::copy(cq_scale.begin(), cq_scale.end(), out.norm_scale.as<float>());

  // Heads: q^R rotated, q^C by W^UK.
  Tensor q = product(cq, a.in(in.w_uq_qr), DType::f32);
  if (weights >= 1) rescale(&q, cq_scale, factors("dequant_scale_w_uq_qr"));
  for (std::int64_t h = 0; h < heads; ++h) {
    Tensor part = Tensor::empty(d, {tokens, nope});
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float* at = q.as<float>() + (t * heads + h) * (nope + rope);
      write_row(part, t * nope, 1, nope, at);
      std::vector<float> turned(at + nope, at + nope + rope);
      round_to(&turned, d);
      rotate_pairs(&turned, cosines.data() + t * rope, sines.data() + t * rope);
      write_row(out.rope, (t * heads + h) * rope, 1, rope, turned.data());
    }
    TensorView w = moved(a.in(in.w_uk), h * a.in(in.w_uk).strides[0]);
    w.shape.erase(0), w.strides.erase(0);
    Tensor absorbed = product(part, w, DType::f32);
    std::vector<float> scales;
    if (quantised_query) scales = quantise_rows(&absorbed);
    for (std::int64_t t = 0; t < tokens; ++t) {
      write_row(out.query, (t * heads + h) * latent, 1, latent, absorbed.as<float>() + t * latent);
      if (quantised_query)
        out.query_scale.as<float>()[t * heads + h] = scales[static_cast<std::size_t>(t)];
    }
  }

  // Keys into the caches.
  Tensor k = product(x, a.in(in.w_dkv_kr), DType::f32);
  if (weights == 2) rescale(&k, x_scale, factors("dequant_scale_w_dkv_kr"));
  const std::vector<float> gamma_k = floats(a.in(in.gamma_ckv));
  const std::vector<float> kv_factor = factors("quant_scale_ckv");
  const std::vector<float> kr_factor = factors("quant_scale_ckr");
  const Mode mode = mode_of(a.text("cache_mode"));
  const auto map_of = [&](const TensorView& cache, std::string_view what) {
    if (mode.packed) {
      TensorView c = cache;
      if (c.rank() == 3) c.shape.insert(0, 1), c.strides.insert(0, 0);
      return slot_map(c);
    }
    return mode.nz ? slot_map_nz(a, cache, what) : slot_map(cache);
  };
  const SlotMap kv = map_of(out.kv_cache, "kv_cache");
  const bool one = out.kv_cache.shape.back() != latent;  // both in one cache
  const SlotMap kr = one ? SlotMap{} : map_of(out.kr_cache, "kr_cache");
  const std::vector<std::int64_t> slots = slots_of(a, in, mode, tokens, kv);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t slot = slots[static_cast<std::size_t>(t)];
    if (slot < 0) continue;
    const float* at = k.as<float>() + t * (latent + rope);
    std::vector<float> c(at, at + latent);
    std::vector<float> r(at + latent, at + latent + rope);
    round_to(&c, d);
    round_to(&r, d);
    rms_norm(&c, gamma_k, static_cast<float>(a.f64("rmsnorm_epsilon_ckv")));
    scale_by(&c, {key_factor});
    rotate_pairs(&r, cosines.data() + t * rope, sines.data() + t * rope);
    if (one) {
      const std::vector<float> row = tiled_row(c, r, d);
      kv.rows.write(kv.offset(slot), static_cast<std::int64_t>(row.size()), row.data());
      continue;
    }
    if (out.kv_cache.dtype == DType::i8) scale_by(&c, kv_factor);
    if (out.kr_cache.dtype == DType::i8) scale_by(&r, kr_factor);
    kv.rows.write(kv.offset(slot), latent, c.data());
    kr.rows.write(kr.offset(slot), rope, r.data());
  }
}

void begin_caches(const EvalArgs& a, const Inputs& in, int kv, int kr) {
  if (a.out(kv).data != a.in(in.kv_cache).data) copy_into(a.out(kv), a.in(in.kv_cache));
  if (a.out(kr).data != a.in(in.kr_cache).data) copy_into(a.out(kr), a.in(in.kr_cache));
}

}  // namespace

Inputs inputs_of(const OpDef& op) {
  const auto at = [&](std::string_view name) { return input_of(op, name); };
  return {at("token_x"),       at("weight_dq"),        at("weight_uq_qr"),      at("weight_uk"),
          at("weight_dkv_kr"), at("rmsnorm_gamma_cq"), at("rmsnorm_gamma_ckv"), at("rope_sin"),
          at("rope_cos"),      at("kv_cache"),         at("kr_cache"),          at("cache_index")};
}

Mode mode_of(std::string_view name) {
  return {name == "BSND" || name == "TND", name == "PA_NZ" || name == "PA_BLK_NZ",
          name == "PA_BLK_BSND" || name == "PA_BLK_NZ"};
}

void v3_eval(const EvalArgs& a) {
  const Inputs in = inputs_of(a.op());
  begin_caches(a, in, 5, 6);
  prolog(a, in, a.i64("weight_quant_mode"), a.i64("query_quant_mode") == 1,
         static_cast<float>(a.f64("qc_qr_scale")), static_cast<float>(a.f64("kc_scale")),
         {a.out(0), a.out(1), a.out(2), a.out(3), a.out(4), a.out(5), a.out(6)});
}

void v2_eval(const EvalArgs& a) {
  const Inputs in = inputs_of(a.op());
  begin_caches(a, in, 2, 3);
  const std::int64_t weights = a.in(in.x).dtype == DType::i8         ? 2
                               : a.in(in.w_uq_qr).dtype == DType::i8 ? 1
                                                                     : 0;
  if (a.out(0).dtype != DType::i8) std::fill_n(a.out(4).as<float>(), a.out(4).numel(), 0.0F);
  prolog(a, in, weights, a.out(0).dtype == DType::i8, 1.0F, 1.0F,
         {a.out(0), a.out(1), a.out(4), TensorView(), TensorView(), a.out(2), a.out(3)});
}

}  // namespace tk::ops::mla

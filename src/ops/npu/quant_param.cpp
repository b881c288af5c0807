// Parameters of quantised products in torch_npu 2.14, and the way back from int8 and int4.
#include <bit>
#include <cmath>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/quant.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

Cost moved_cost(const Args& args, const Load&) { return moved(args, 2); }

// ---- trans_quant_param

std::vector<Type> trans_infer(const Args& args) {
  const Type& scale = args.in(0);
  need_rank(args, 0, 1, 2);
  if (scale.dtype != DType::f32) args.fail(cat("needs an f32 scale, got ", scale.str()));
  const std::int64_t mode = args.has_attr("round_mode") ? args.i64("round_mode") : 0;
  if (mode != 0 && mode != 1) args.fail(cat("needs round_mode 0 or 1, got ", mode));
  Type out{DType::i64, scale.shape};
  if (args.has(1)) {
    const Type& offset = args.in(1);
    const bool broadcasts =
        offset.numel() == scale.numel() || offset.numel().is(1) || scale.numel().is(1);
    if (offset.dtype != DType::f32 || offset.rank() != scale.rank() || !broadcasts ||
        (scale.rank() == 2 && !(offset.numel() == scale.numel()) && !offset.numel().is(1)))
      args.fail(cat("needs an f32 offset as scale ", scale.str(), ", got ", offset.str()));
    if (scale.rank() == 1 && scale.numel().is(1)) out.shape = offset.shape;
  }
  return {out};
}

// The bits of an f32 that the matrix unit keeps: sign, exponent, 10 of the mantissa.
std::uint32_t fp19(float scale, bool nearest) {
  auto bits = std::bit_cast<std::uint32_t>(scale);
  if (nearest) bits += 0xFFFU + ((bits >> 13) & 1U);
  return bits & 0xFFFFE000U;
}

void trans_eval(const EvalArgs& a) {
  const bool nearest = a.has_attr("round_mode") && a.i64("round_mode") == 1;
  const Tensor scale = to_dtype(a.in(0), DType::f32);
  const Tensor offset = a.has(1) ? to_dtype(a.in(1), DType::f32) : Tensor();
  for (std::int64_t i = 0; i < a.out().numel(); ++i) {
    const float s = scale.as<float>()[scale.numel() == 1 ? 0 : i];
    std::uint64_t word = fp19(s, nearest) | (std::uint64_t{1} << 46);
    if (offset.data != nullptr) {
      const float o = std::nearbyint(offset.as<float>()[offset.numel() == 1 ? 0 : i]);
      const auto n = static_cast<std::int64_t>(std::fmax(std::fmin(o, 255.0F), -256.0F));
      word |= (static_cast<std::uint64_t>(n) & 0x1FFU) << 37;
    }
    a.out().as<std::int64_t>()[i] = static_cast<std::int64_t>(word);
  }
}

constexpr Limit trans_limits[] = {
    {"trans_quant_param.shape", "scale.ndim in (1, 2)"},
    {"trans_quant_param.dtype", "scale.dtype == fp32 and (offset is None or offset.dtype == fp32)"},
    {"trans_quant_param.empty", "scale.numel > 0"},
    {"trans_quant_param.offset", "offset is None or scale.ndim == 1 or scale.shape[0] == 1",
     "with an offset scale is (1,), (n,) or (1, n)"},
    {"trans_quant_param.round", "round_mode in (None, 0, 1)"},
};
constexpr NpuFacts trans_facts{
    .group = "quant",
    .signature =
        "npu_trans_quant_param(Tensor scale, Tensor? offset=None, int? round_mode=0) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated (u64 there); shape function; GE converter",
    .limits = trans_limits,
};

// ---- convert_weight_to_int4pack

std::vector<Type> pack_infer(const Args& args) {
  const Type& w = args.in(0);
  need_rank(args, 0, 2, 3);
  if (w.dtype != DType::i32) args.fail(cat("needs an i32 weight, got ", w.str()));
  const auto last = exact_div(w.dim(-1), 8);
  if (!last) args.fail(cat("needs a last axis of a multiple of 8, got ", w.str()));
  Type out = w;
  out.shape.back() = *last;
  return {out};
}

void pack_eval(const EvalArgs& a) {
  const Tensor w = contiguous(a.in(0));
  for (std::int64_t i = 0; i < a.out().numel(); ++i) {
    std::uint32_t word = 0;
    for (int j = 0; j < 8; ++j) {
      const std::int32_t v = w.as<std::int32_t>()[i * 8 + j];
      if (v < -8 || v > 7)
        throw UserError("TK0505", cat("npu_convert_weight_to_int4pack: the weight has ", v,
                                      ", which is no int4 (-8 to 7)"));
      word |= (static_cast<std::uint32_t>(v) & 0xFU) << (4 * j);
    }
    a.out().as<std::int32_t>()[i] = static_cast<std::int32_t>(word);
  }
}

constexpr Limit pack_limits[] = {
    {"convert_weight_to_int4pack.align", "weight.shape[-1] % 8 == 0"},
    {"convert_weight_to_int4pack.range", "min(weight) >= -8 and max(weight) <= 7"},
    {"convert_weight_to_int4pack.dtype", "weight.dtype == int32"},
    {"convert_weight_to_int4pack.empty", "weight.numel > 0"},
};
constexpr std::string_view pack_notes[] = {
    "no shape function: outside of what is captured",
    "eight values in an i32, the first in the lowest bits",
};
constexpr NpuFacts pack_facts{
    .group = "quant",
    .signature = "npu_convert_weight_to_int4pack(Tensor weight, int inner_k_tiles=0) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; no shape function; no GE converter",
    .notes = pack_notes,
    .limits = pack_limits,
};

// ---- anti_quant

std::vector<Type> anti_infer(const Args& args) {
  const Type& x = args.in(0);
  if (x.rank() < 1 || (x.dtype != DType::i8 && x.dtype != DType::i32))
    args.fail(cat("needs i8, or i32 that hold eight int4, got ", x.str()));
  const DType dst = args.has_attr("dst_dtype") ? args.dtype("dst_dtype") : DType::f16;
  if (dst != DType::f16 && dst != DType::bf16)
    args.fail(cat("needs dst_dtype f16 or bf16, got ", name_of(dst)));
  Type out{dst, x.shape};
  if (x.dtype == DType::i32) out.shape.back() = x.dim(-1) * Sym(8);
  const SymDims& scale = args.in(1).shape;
  if (scale.size() != 1 || !(scale[0].is(1) || scale[0] == out.dim(-1)))
    args.fail(cat("needs a scale [", out.dim(-1).str(), "] or [1], got ", args.in(1).str()));
  if (args.has(2) && !(args.in(2) == args.in(1)))
    args.fail(
        cat("needs an offset of scale's type ", args.in(1).str(), ", got ", args.in(2).str()));
  return {out};
}

void anti_eval(const EvalArgs& a) {
  const bool packed = a.in(0).dtype == DType::i32;
  const Tensor x = contiguous(a.in(0));
  const Tensor scale = to_dtype(a.in(1), DType::f32);
  const Tensor offset = a.has(2) ? to_dtype(a.in(2), DType::f32) : Tensor();
  const std::int64_t h = a.out().shape.back();
  for (std::int64_t i = 0; i < a.out().numel(); ++i) {
    std::int32_t v = 0;
    if (packed) {
      const auto word = static_cast<std::uint32_t>(x.as<std::int32_t>()[i / 8]);
      v = static_cast<std::int32_t>(word << (28 - 4 * (i % 8))) >> 28;  // its sign with it
    } else {
      v = x.as<std::int8_t>()[i];
    }
    const std::int64_t k = scale.numel() == 1 ? 0 : i % h;
    float y = static_cast<float>(v);
    if (offset.data != nullptr) y += offset.as<float>()[k];
    y *= scale.as<float>()[k];
    write_row(a.out(), i, 1, 1, &y);
  }
}

constexpr Limit anti_limits[] = {
    {"anti_quant.dtype", "x.dtype in (int8, int32)"},
    {"anti_quant.scale",
     "scale.ndim == 1 and scale.shape[0] in (1, x.shape[-1] * (8 if x.dtype == int32 else 1))"},
    {"anti_quant.scale_dtype",
     "scale.dtype in (fp32, bf16) and (offset is None or (offset.dtype == scale.dtype and "
     "offset.shape == scale.shape))"},
    {"anti_quant.src",
     "src_dtype is None or src_dtype in ((16, 285) if x.dtype == int32 else (1,))",
     "int4 in an i32, int8 as it is"},
};
constexpr NpuFacts anti_facts{
    .group = "quant",
    .signature =
        "npu_anti_quant(Tensor x, Tensor scale, *, Tensor? offset=None, int? dst_dtype=None, int? "
        "src_dtype=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .limits = anti_limits,
};

// ---- dynamic_mx_quant

std::vector<Type> mx_infer(const Args& args) {
  args.fail("is not there on a2 and a3: its float8 and float4 results are those of newer devices");
}

constexpr Limit mx_limits[] = {
    {"dynamic_mx_quant.soc", "soc not in (\"a2\", \"a3\")", "not available on a2 and a3"},
};
constexpr std::string_view mx_notes[] = {
    "for the 950 series alone: any proposal on a2 and a3 is refused",
};
constexpr NpuFacts mx_facts{
    .group = "quant",
    .signature =
        "npu_dynamic_mx_quant(Tensor input, *, int axis=-1, str round_mode=\"rint\", int "
        "dst_type=296, int block_size=32, int? scale_alg=0, float dst_type_max=0.0, float "
        "max_low_bound=0.0) -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "no",
    .a3 = "no",
    .graph_mode = "stated; shape function; GE converter",
    .notes = mx_notes,
    .limits = mx_limits,
};

}  // namespace

const OpDef npu_trans_quant_param{
    .name = "npu.npu_trans_quant_param",
    .schema = "(Tensor scale, Tensor? offset=None, int? round_mode=0) -> Tensor",
    .doc =
        "An i64 for each scale: its 19 upper bits (round_mode 1: rounded to them) in the low half, "
        "bit 46 set, and the offset, rounded to -256 .. 255, in bits 37 to 45.",
    .infer = trans_infer,
    .eval = trans_eval,
    .cost = moved_cost,
    .npu = &trans_facts,
};

const OpDef npu_convert_weight_to_int4pack{
    .name = "npu.npu_convert_weight_to_int4pack",
    .schema = "(Tensor weight, int inner_k_tiles=0) -> Tensor",
    .doc = "Eight int4 of an i32 weight's last axis in one i32, the first in the lowest bits.",
    .infer = pack_infer,
    .eval = pack_eval,
    .cost = moved_cost,
    .npu = &pack_facts,
};

const OpDef npu_anti_quant{
    .name = "npu.npu_anti_quant",
    .schema =
        "(Tensor x, Tensor scale, Tensor? offset=None, dtype? dst_dtype=None, "
        "int? src_dtype=None) -> Tensor",
    .doc = "(x + offset) * scale along the last axis, x being i8, or eight int4 in an i32.",
    .infer = anti_infer,
    .eval = anti_eval,
    .cost = moved_cost,
    .npu = &anti_facts,
};

const OpDef npu_dynamic_mx_quant{
    .name = "npu.npu_dynamic_mx_quant",
    .schema =
        "(Tensor input, int axis=-1, str round_mode=\"rint\", int dst_type=296, "
        "int block_size=32, int? scale_alg=0, float dst_type_max=0.0, float max_low_bound=0.0) -> "
        "(Tensor y, Tensor mxscale)",
    .doc = "MX formats of newer devices: refused, a2 and a3 don't have them.",
    .infer = mx_infer,
    .cost = moved_cost,
    .npu = &mx_facts,
};

}  // namespace tk::ops

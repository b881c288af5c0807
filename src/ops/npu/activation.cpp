// Gated and plain activations of torch_npu 2.14. Arithmetic in f32, rounded once.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

std::vector<Type> halved_infer(const Args& args) {
  Type t = args.in(0);
  if (!is_float(t.dtype)) args.fail("needs a floating-point tensor");
  need_rank(args, 0, 1, 8);
  const int dim = axis(args, "dim", t.rank());
  const Sym whole = t.dim(dim);
  const auto half = exact_div(whole, 2);
  if (!half) args.fail(cat("needs an even axis ", dim, ", got ", t.str()));
  t.shape[static_cast<std::size_t>(dim)] = *half;
  return {t};
}

// f(a, b) over pairs of the axis: halves, or neighbours when interleaved.
template <typename F>
void pairs(const TensorView& in, const TensorView& out, int dim, bool interleaved, F f) {
  TensorView first = in;
  first.shape[dim] = out.shape[dim];
  TensorView second = first;
  const auto size = static_cast<std::int64_t>(size_of(in.dtype));
  if (interleaved) {
    second.data = in.as<char>() + in.strides[dim] * size;
    first.strides[dim] *= 2;
    second.strides[dim] *= 2;
  } else {
    second.data = in.as<char>() + in.strides[dim] * out.shape[dim] * size;
  }
  const Tensor a = to_dtype(first, DType::f32);
  const Tensor b = to_dtype(second, DType::f32);
  std::vector<float> y(static_cast<std::size_t>(a.numel()));
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = f(a.as<float>()[i], b.as<float>()[i]);
  write_row(out, 0, 1, a.numel(), y.data());
}

void swiglu_eval(const EvalArgs& a) {
  pairs(a.in(0), a.out(), axis(a.i64("dim"), a.in(0).rank()), false,
        [](float g, float u) { return g * sigmoid(g) * u; });
}

std::vector<Type> geglu_infer(const Args& args) {
  std::vector<Type> t = halved_infer(args);
  const std::int64_t approximate = args.i64("approximate");
  if (approximate != 0 && approximate != 1)
    args.fail(cat("needs approximate 0 (erf) or 1 (tanh), got ", approximate));
  return {t[0], t[0]};
}

void geglu_eval(const EvalArgs& a) {
  const bool tanh = a.i64("approximate") == 1;
  const bool left = a.flag("activate_left");
  const int dim = axis(a.i64("dim"), a.in(0).rank());
  auto gelu = [&](float x) { return tanh ? gelu_tanh(x) : gelu_erf(x); };
  pairs(a.in(0), a.out(0), dim, false,
        [&](float l, float r) { return left ? gelu(l) * r : l * gelu(r); });
  pairs(a.in(0), a.out(1), dim, false, [&](float l, float r) { return gelu(left ? l : r); });
}

void need_approximate(const Args& args) {
  const std::string& a = args.text("approximate");
  if (a != "none" && a != "tanh") args.fail(cat("needs approximate none or tanh, got '", a, "'"));
}

std::vector<Type> gelu_infer(const Args& args) {
  if (!is_float(args.in(0).dtype)) args.fail("needs a floating-point tensor");
  need_approximate(args);
  return {args.in(0)};
}

void gelu_eval(const EvalArgs& a) {
  const bool tanh = a.text("approximate") == "tanh";
  const Tensor x = to_dtype(a.in(0), DType::f32);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const float y = tanh ? gelu_tanh(x.as<float>()[i]) : gelu_erf(x.as<float>()[i]);
    write_row(a.out(), i, 1, 1, &y);
  }
}

std::vector<Type> clipped_swiglu_infer(const Args& args) {
  if (args.has(1)) {
    need_rank(args, 1, 1, 1);
    need_integral(args, 1);
  }
  return halved_infer(args);
}

// Rows, in the order of the axes before dim, past the groups' sum: the library leaves them as they
// are; 0 here.
void clear_past_groups(const EvalArgs& a, int dim) {
  const Tensor counts = to_dtype(a.in(1), DType::i64);
  std::int64_t used = 0;
  for (std::int64_t i = 0; i < counts.numel(); ++i) used += counts.as<std::int64_t>()[i];
  std::int64_t rows = 1;
  for (int i = 0; i < dim; ++i) rows *= a.out().shape[i];
  if (used < 0 || used > rows)
    throw UserError("TK0506",
                    cat("npu_clipped_swiglu: group_index has ", used, " rows in all, x ", rows));
  const std::int64_t width = rows == 0 ? 0 : a.out().bytes() / rows;
  std::memset(a.out().as<char>() + used * width, 0,
              static_cast<std::size_t>((rows - used) * width));
}

// f of each element, rounded once.
template <typename F>
void each(const EvalArgs& a, F f) {
  const Tensor x = to_dtype(a.in(0), DType::f32);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.as<float>()[i] = f(x.as<float>()[i]);
  write_row(a.out(), 0, 1, x.numel(), x.as<float>());
}

std::vector<Type> float_infer(const Args& args) {
  need_float(args, 0);
  return {args.in(0)};
}

void fast_gelu_eval(const EvalArgs& a) {
  each(a, [](float x) { return x * sigmoid(1.702F * x); });
}
void silu_eval(const EvalArgs& a) {
  each(a, [](float x) { return x * sigmoid(x); });
}

std::vector<Type> gelu_mul_infer(const Args& args) {
  need_approximate(args);
  Type t = args.in(0);
  if (t.rank() < 2 || !is_float(t.dtype))
    args.fail(cat("needs a floating-point tensor of 2 or more axes, got ", t.str()));
  const auto half = exact_div(t.dim(-1), 2);
  if (!half) args.fail(cat("needs an even last axis, got ", t.str()));
  t.shape.back() = *half;
  return {t};
}

void gelu_mul_eval(const EvalArgs& a) {
  const bool tanh = a.text("approximate") == "tanh";
  pairs(a.in(0), a.out(), a.in(0).rank() - 1, false,
        [&](float l, float r) { return (tanh ? gelu_tanh(l) : gelu_erf(l)) * r; });
}

Cost activation_cost(const Args& args, const Load&) { return moved(args, 8); }

void clipped_swiglu_eval(const EvalArgs& a) {
  const auto alpha = static_cast<float>(a.f64("alpha"));
  const auto limit = static_cast<float>(a.f64("limit"));
  const auto bias = static_cast<float>(a.f64("bias"));
  // torch.clamp keeps NaN, as min and max in this order do.
  pairs(a.in(0), a.out(), axis(a.i64("dim"), a.in(0).rank()), a.flag("interleaved"),
        [&](float g, float u) {
          g = std::min(g, limit);
          u = std::max(std::min(u, limit), -limit);
          return g * sigmoid(alpha * g) * (u + bias);
        });
  if (a.has(1)) clear_past_groups(a, axis(a.i64("dim"), a.in(0).rank()));
}

constexpr std::string_view swiglu_notes[] = {
    "the first half is the gate: a fused weight is gate then up",
};
constexpr Limit swiglu_limits[] = {
    {"swiglu.even", "input.shape[dim] % 2 == 0"},
    {"swiglu.dtype", "input.dtype in (fp16, bf16, fp32)"},
    {"swiglu.rank", "1 <= input.ndim <= 8"},
};
constexpr NpuFacts swiglu_facts{
    .group = "ffn",
    .signature = "npu_swiglu(Tensor input, int dim=-1) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "not named",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = swiglu_notes,
    .limits = swiglu_limits,
};

constexpr NpuFacts geglu_facts{
    .group = "ffn",
    .signature =
        "npu_geglu(Tensor input, int dim=-1, int approximate=1, bool activate_left=False) -> "
        "(Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "not named",
    .graph_mode = "not stated; shape function; GE converter",
};

constexpr NpuFacts gelu_facts{
    .group = "ffn",
    .signature = "npu_gelu(Tensor input, *, str approximate='none') -> Tensor",
    .source = "library schema",
    .a2 = "unknown",
    .a3 = "unknown",
    .graph_mode = "no document; shape function; GE converter",
};

constexpr std::string_view fast_gelu_notes[] = {"the older series have another formula"};
constexpr Limit fast_gelu_limits[] = {
    {"fast_gelu.dtype", "input.dtype in (fp16, fp32, bf16)"},
    {"fast_gelu.rank", "input.ndim <= 8"},
};
constexpr NpuFacts fast_gelu_facts{
    .group = "ffn",
    .signature = "npu_fast_gelu(Tensor input) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .notes = fast_gelu_notes,
    .limits = fast_gelu_limits,
};

constexpr std::string_view gelu_mul_notes[] = {
    "where the last axis is not a multiple of 32 bytes separate operators are faster",
};
constexpr Limit gelu_mul_limits[] = {
    {"gelu_mul.last", "input.shape[-1] % 2 == 0 and input.shape[-1] <= 1024"},
    {"gelu_mul.rows", "prod(input.shape[:-1]) <= 200000"},
    {"gelu_mul.dtype", "input.dtype in (fp16, fp32, bf16)"},
    {"gelu_mul.rank", "2 <= input.ndim <= 8"},
};
constexpr NpuFacts gelu_mul_facts{
    .group = "ffn",
    .signature = "npu_gelu_mul(Tensor input, *, str approximate='none') -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; no GE converter",
    .notes = gelu_mul_notes,
    .limits = gelu_mul_limits,
};

constexpr NpuFacts silu_facts{
    .group = "misc",
    .signature = "npu_silu(Tensor input) -> Tensor",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "not named",
    .graph_mode = "not stated; shape function; no GE converter",
};

constexpr std::string_view clipped_swiglu_notes[] = {
    "with group_index the first sum(group_index) rows are computed, the others are not defined",
};
constexpr Limit clipped_swiglu_limits[] = {
    {"clipped_swiglu.dtype", "x.dtype in (fp16, bf16, fp32)"},
    {"clipped_swiglu.even", "x.ndim > 1 and x.shape[dim] % 2 == 0"},
    {"clipped_swiglu.group", "group_index is None or group_index.dtype == int64"},
};
constexpr NpuFacts clipped_swiglu_facts{
    .group = "ffn",
    .signature =
        "npu_clipped_swiglu(Tensor x, *, Tensor? group_index=None, int dim=-1, float alpha=1.702, "
        "float limit=7.0, float bias=1.0, bool interleaved=True) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = clipped_swiglu_notes,
    .limits = clipped_swiglu_limits,
};

}  // namespace

const OpDef npu_swiglu{
    .name = "npu.npu_swiglu",
    .schema = "(Tensor input, int dim=-1) -> Tensor",
    .doc = "silu(a) * b, a and b being the halves of axis dim: the gate is the first half.",
    .infer = halved_infer,
    .eval = swiglu_eval,
    .npu = &swiglu_facts,
};

const OpDef npu_geglu{
    .name = "npu.npu_geglu",
    .schema =
        "(Tensor input, int dim=-1, int approximate=1, bool activate_left=False) -> "
        "(Tensor out, Tensor gelu)",
    .doc =
        "l * gelu(r), or gelu(l) * r with activate_left, l and r being the halves of axis dim; "
        "approximate 0 is erf, 1 tanh. The second result is the gelu alone.",
    .infer = geglu_infer,
    .eval = geglu_eval,
    .npu = &geglu_facts,
};

const OpDef npu_gelu{
    .name = "npu.npu_gelu",
    .schema = "(Tensor input, str approximate=\"none\") -> Tensor",
    .doc = "gelu of each element: with erf, or its tanh approximation.",
    .infer = gelu_infer,
    .eval = gelu_eval,
    .npu = &gelu_facts,
};

const OpDef npu_clipped_swiglu{
    .name = "npu.npu_clipped_swiglu",
    .schema =
        "(Tensor x, Tensor? group_index=None, int dim=-1, float alpha=1.702, float limit=7.0, "
        "float bias=1.0, "
        "bool interleaved=True) -> Tensor",
    .doc =
        "g * sigmoid(alpha * g) * (u + bias), g = min(gate, limit), u = clamp(up, -limit, "
        "limit); gate and up are the even and odd elements of axis dim, or its halves. With "
        "group_index (counts) only the first sum(group_index) rows are defined.",
    .infer = clipped_swiglu_infer,
    .eval = clipped_swiglu_eval,
    .npu = &clipped_swiglu_facts,
};

const OpDef npu_fast_gelu{
    .name = "npu.npu_fast_gelu",
    .schema = "(Tensor input) -> Tensor",
    .doc = "input * sigmoid(1.702 * input), as on a2 and a3.",
    .infer = float_infer,
    .eval = fast_gelu_eval,
    .cost = activation_cost,
    .npu = &fast_gelu_facts,
};

const OpDef npu_gelu_mul{
    .name = "npu.npu_gelu_mul",
    .schema = "(Tensor input, str approximate=\"none\") -> Tensor",
    .doc = "gelu(a) * b, a and b being the halves of the last axis.",
    .infer = gelu_mul_infer,
    .eval = gelu_mul_eval,
    .cost = activation_cost,
    .npu = &gelu_mul_facts,
};

const OpDef npu_silu{
    .name = "npu.npu_silu",
    .schema = "(Tensor input) -> Tensor",
    .doc = "input * sigmoid(input).",
    .infer = float_infer,
    .eval = silu_eval,
    .cost = activation_cost,
    .npu = &silu_facts,
};

}  // namespace tk::ops

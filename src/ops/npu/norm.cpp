// Normalisation operators of torch_npu 2.14. Arithmetic in f32, rounded once.
#include <cmath>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

// gamma spans the trailing axes of x. Returns the type of rstd: f32, those axes being 1.
Type rstd_type(const Args& args, int x, int gamma) {
  const Type& t = args.in(x);
  const Type& g = args.in(gamma);
  const int k = g.rank();
  bool fits = k >= 1 && k <= t.rank();
  for (int i = 1; fits && i <= k; ++i) fits = g.dim(-i) == t.dim(-i);
  if (!fits)
    args.fail(cat("needs gamma to span the trailing axes of ", t.str(), ", got ", g.str()));
  if (!is_float(t.dtype) || !is_float(g.dtype)) args.fail("needs floating-point tensors");
  Type r{DType::f32, t.shape};
  for (int i = 0; i < k; ++i) r.shape[static_cast<std::size_t>(t.rank() - 1 - i)] = 1;
  return r;
}

std::vector<Type> rms_norm_infer(const Args& args) { return {args.in(0), rstd_type(args, 0, 1)}; }

std::vector<Type> add_rms_norm_infer(const Args& args) {
  if (!(args.in(0) == args.in(1)))
    args.fail(cat("needs x2 of x1's type ", args.in(0).str(), ", got ", args.in(1).str()));
  return {args.in(0), rstd_type(args, 0, 2), args.in(0)};
}

struct NormArgs {
  TensorView x, gamma, y, rstd;
  float epsilon, offset;  // offset is added to gamma
};

void normalise(const NormArgs& a) {
  const Tensor gamma = to_dtype(a.gamma, DType::f32);
  const std::int64_t d = a.gamma.numel();
  const int inner = a.gamma.rank();
  const RowWalk x(a.x, inner);
  const Tensor row_in = Tensor::empty(DType::f32, a.gamma.shape);
  TensorView part = a.x;  // one row of several axes
  part.shape = a.gamma.shape;
  part.strides =
      Dims(std::span(a.x.strides.begin() + (a.x.rank() - inner), static_cast<std::size_t>(inner)));
  const auto size = static_cast<std::int64_t>(size_of(a.x.dtype));
  std::vector<float> row(static_cast<std::size_t>(d));
  for (std::int64_t i = 0; i < x.count(); ++i) {
    part.data = a.x.as<char>() + x.offset(i) * size;
    copy_into(row_in, part);
    const float* v = row_in.as<float>();
    double sum = 0;
    for (std::int64_t k = 0; k < d; ++k) sum += static_cast<double>(v[k]) * v[k];
    const float rstd =
        1.0F / std::sqrt(static_cast<float>(sum / static_cast<double>(d)) + a.epsilon);
    for (std::int64_t k = 0; k < d; ++k)
      row[static_cast<std::size_t>(k)] = v[k] * rstd * (gamma.as<float>()[k] + a.offset);
    write_row(a.y, i * d, 1, d, row.data());
    a.rstd.as<float>()[i] = rstd;
  }
}

void rms_norm_eval(const EvalArgs& a) {
  normalise({a.in(0), a.in(1), a.out(0), a.out(1), static_cast<float>(a.f64("epsilon")), 0.0F});
}

void gemma_rms_norm_eval(const EvalArgs& a) {
  normalise({a.in(0), a.in(1), a.out(0), a.out(1), static_cast<float>(a.f64("epsilon")), 1.0F});
}

void add_rms_norm_eval(const EvalArgs& a) {
  const RowWalk x1(a.in(0));
  const RowWalk x2(a.in(1));
  const std::int64_t d = a.out(2).shape.back();
  const int last = a.in(0).rank() - 1;
  std::vector<float> p(static_cast<std::size_t>(d));
  std::vector<float> q(static_cast<std::size_t>(d));
  for (std::int64_t i = 0; i < x1.count(); ++i) {
    read_row(a.in(0), x1.offset(i), a.in(0).strides[last], d, p.data());
    read_row(a.in(1), x2.offset(i), a.in(1).strides[last], d, q.data());
    for (std::size_t k = 0; k < p.size(); ++k) p[k] += q[k];
    write_row(a.out(2), i * d, 1, d, p.data());
  }
  // The norm is of the stored sum, so that both results agree.
  normalise({a.out(2), a.in(2), a.out(0), a.out(1), static_cast<float>(a.f64("epsilon")), 0.0F});
}

std::vector<Type> layer_norm_eval_infer(const Args& args) {
  const Type& t = args.in(0);
  const SymDims shape = args.syms("normalized_shape");
  bool fits = !shape.empty() && static_cast<int>(shape.size()) <= t.rank();
  for (std::size_t i = 1; fits && i <= shape.size(); ++i)
    fits = shape[shape.size() - i] == t.dim(-static_cast<int>(i));
  if (!fits) args.fail(cat("needs normalized_shape to be the trailing axes of ", t.str()));
  for (int i = 1; i <= 2; ++i)
    if (args.has(i) && args.in(i).shape != shape)
      args.fail(cat("needs weight and bias of shape ", str(shape), ", got ", args.in(i).str()));
  return {t};
}

void layer_norm_eval_eval(const EvalArgs& a) {
  const Dims shape = a.ints("normalized_shape");
  const std::int64_t d = shape.numel();
  const Tensor x = to_dtype(a.in(0), DType::f32);
  const Tensor w = a.has(1) ? to_dtype(a.in(1), DType::f32) : Tensor();
  const Tensor b = a.has(2) ? to_dtype(a.in(2), DType::f32) : Tensor();
  const auto eps = static_cast<float>(a.f64("eps"));
  std::vector<float> row(static_cast<std::size_t>(d));
  for (std::int64_t i = 0; i * d < x.numel(); ++i) {
    const float* v = x.as<float>() + i * d;
    double sum = 0;
    for (std::int64_t k = 0; k < d; ++k) sum += v[k];
    const double mean = sum / static_cast<double>(d);
    double var = 0;
    for (std::int64_t k = 0; k < d; ++k) var += (v[k] - mean) * (v[k] - mean);
    const float scale = 1.0F / std::sqrt(static_cast<float>(var / static_cast<double>(d)) + eps);
    for (std::int64_t k = 0; k < d; ++k)
      row[static_cast<std::size_t>(k)] =
          (v[k] - static_cast<float>(mean)) * scale * (a.has(1) ? w.as<float>()[k] : 1.0F) +
          (a.has(2) ? b.as<float>()[k] : 0.0F);
    write_row(a.out(), i * d, 1, d, row.data());
  }
}

constexpr std::string_view rms_norm_notes[] = {
    "two results: models take the first",
    "the document gives gamma 2 to 8 axes; models pass one, which is taken",
};
constexpr Limit rms_norm_limits[] = {
    {"rms_norm.dtype", "input.dtype in (fp16, bf16, fp32) and gamma.dtype == input.dtype"},
    {"rms_norm.rank", "1 <= input.ndim <= 8"},
};
constexpr NpuFacts rms_norm_facts{
    .group = "norm",
    .signature =
        "npu_rms_norm(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = rms_norm_notes,
    .limits = rms_norm_limits,
};

constexpr Limit add_rms_norm_limits[] = {
    {"add_rms_norm.dtype", "x1.dtype == gamma.dtype"},
    {"add_rms_norm.gamma", "gamma.shape == x1.shape[-gamma.ndim:]"},
    {"add_rms_norm.float", "x1.dtype in (fp16, bf16, fp32) and x2.dtype == x1.dtype"},
    {"add_rms_norm.rank", "1 <= x1.ndim <= 8"},
};
constexpr NpuFacts add_rms_norm_facts{
    .group = "norm",
    .signature =
        "npu_add_rms_norm(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, "
        "Tensor, Tensor)",
    .source = "op-plugin docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .limits = add_rms_norm_limits,
};

constexpr Limit gemma_rms_norm_limits[] = {
    {"gemma_rms_norm.dtype", "input.dtype in (fp16, bf16, fp32) and gamma.dtype == input.dtype"},
    {"gemma_rms_norm.empty", "input.numel > 0 and gamma.numel > 0"},
};
constexpr NpuFacts gemma_rms_norm_facts{
    .group = "norm",
    .signature =
        "npu_gemma_rms_norm(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; no GE converter",
    .limits = gemma_rms_norm_limits,
};

constexpr NpuFacts layer_norm_eval_facts{
    .group = "norm",
    .signature =
        "npu_layer_norm_eval(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? "
        "bias=None, float eps=1e-05) -> Tensor",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "not named",
    .graph_mode = "not stated; shape function; no GE converter",
};

}  // namespace

const OpDef npu_rms_norm{
    .name = "npu.npu_rms_norm",
    .schema = "(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor y, Tensor rstd)",
    .doc = "y = input * rstd * gamma, rstd = 1 / sqrt(mean(input^2) + epsilon) over gamma's axes.",
    .infer = rms_norm_infer,
    .eval = rms_norm_eval,
    .npu = &rms_norm_facts,
};

const OpDef npu_gemma_rms_norm{
    .name = "npu.npu_gemma_rms_norm",
    .schema = "(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor y, Tensor rstd)",
    .doc = "As npu_rms_norm with 1 + gamma in gamma's place.",
    .infer = rms_norm_infer,
    .eval = gemma_rms_norm_eval,
    .npu = &gemma_rms_norm_facts,
};

const OpDef npu_add_rms_norm{
    .name = "npu.npu_add_rms_norm",
    .schema =
        "(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> "
        "(Tensor y, Tensor rstd, Tensor x)",
    .doc = "x = x1 + x2, rounded to its dtype; y and rstd as npu_rms_norm of x.",
    .infer = add_rms_norm_infer,
    .eval = add_rms_norm_eval,
    .npu = &add_rms_norm_facts,
};

const OpDef npu_layer_norm_eval{
    .name = "npu.npu_layer_norm_eval",
    .schema =
        "(Tensor input, Tensor? weight=None, Tensor? bias=None, int[] normalized_shape, "
        "float eps=1e-05) -> Tensor",
    .doc =
        "(input - mean) / sqrt(var + eps) * weight + bias over the trailing axes "
        "normalized_shape; torch_npu's order is (input, normalized_shape, weight, bias, eps).",
    .infer = layer_norm_eval_infer,
    .eval = layer_norm_eval_eval,
    .npu = &layer_norm_eval_facts,
};

}  // namespace tk::ops

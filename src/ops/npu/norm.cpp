// Normalisation operators of torch_npu 2.14. Arithmetic in f32, rounded once.
#include "ops/npu/norm.h"

#include <cmath>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
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

void need_same_type(const Args& args, int a, int b) {
  if (args.in(a) == args.in(b)) return;
  const auto name = [&](int i) {
    return args.op().parsed().tensors[static_cast<std::size_t>(i)].name;
  };
  args.fail(cat("needs ", name(b), " of ", name(a), "'s type ", args.in(a).str(), ", got ",
                args.in(b).str()));
}

void rms_norm(const RmsNorm& norm,
              const std::function<void(std::int64_t, std::vector<float>&, float)>& row) {
  const Tensor gamma = to_dtype(norm.gamma, DType::f32);
  const Tensor beta = norm.beta.data == nullptr ? Tensor() : to_dtype(norm.beta, DType::f32);
  const std::int64_t d = gamma.numel();
  const int inner = gamma.rank();
  const RowWalk x(norm.x, inner);
  const Tensor row_in = Tensor::empty(DType::f32, gamma.shape);
  TensorView part = norm.x;  // one row of several axes
  part.shape = gamma.shape;
  part.strides = Dims(
      std::span(norm.x.strides.begin() + (norm.x.rank() - inner), static_cast<std::size_t>(inner)));
  const auto size = static_cast<std::int64_t>(size_of(norm.x.dtype));
  std::vector<float> y(static_cast<std::size_t>(d));
  for (std::int64_t i = 0; i < x.count(); ++i) {
    part.data = norm.x.as<char>() + x.offset(i) * size;
    copy_into(row_in, part);
    const float* v = row_in.as<float>();
    double sum = 0;
    for (std::int64_t k = 0; k < d; ++k) sum += static_cast<double>(v[k]) * v[k];
    const float rstd =
        1.0F / std::sqrt(static_cast<float>(sum / static_cast<double>(d)) + norm.epsilon);
    for (std::int64_t k = 0; k < d; ++k)
      y[static_cast<std::size_t>(k)] = v[k] * rstd * (gamma.as<float>()[k] + norm.offset) +
                                       (beta.data == nullptr ? 0.0F : beta.as<float>()[k]);
    row(i, y, rstd);
  }
}

void add_rows(const TensorView& a, const TensorView& b, const TensorView& sum) {
  const RowWalk as(a);
  const RowWalk bs(b);
  const RowWalk to(sum);
  const std::int64_t d = sum.shape.back();
  const int last = sum.rank() - 1;
  std::vector<float> p(static_cast<std::size_t>(d));
  std::vector<float> q(static_cast<std::size_t>(d));
  for (std::int64_t i = 0; i < as.count(); ++i) {
    read_row(a, as.offset(i), a.strides[last], d, p.data());
    read_row(b, bs.offset(i), b.strides[last], d, q.data());
    for (std::size_t k = 0; k < p.size(); ++k) p[k] += q[k];
    write_row(sum, to.offset(i), sum.strides[last], d, p.data());
  }
}

namespace {

std::vector<Type> rms_norm_infer(const Args& args) { return {args.in(0), rstd_type(args, 0, 1)}; }

std::vector<Type> add_rms_norm_infer(const Args& args) {
  need_same_type(args, 0, 1);
  return {args.in(0), rstd_type(args, 0, 2), args.in(0)};
}

// y and rstd of rms_norm into results of their own.
void normalise(const RmsNorm& norm, const TensorView& y, const TensorView& rstd) {
  TK_CHECK(y.contiguous());
  rms_norm(norm, [&](std::int64_t i, std::vector<float>& row, float r) {
    const auto d = static_cast<std::int64_t>(row.size());
    write_row(y, i * d, 1, d, row.data());
    rstd.as<float>()[i] = r;
  });
}

float epsilon(const EvalArgs& a) { return static_cast<float>(a.f64("epsilon")); }

void rms_norm_eval(const EvalArgs& a) {
  normalise({a.in(0), a.in(1), {}, epsilon(a)}, a.out(0), a.out(1));
}

void gemma_rms_norm_eval(const EvalArgs& a) {
  normalise({a.in(0), a.in(1), {}, epsilon(a), 1.0F}, a.out(0), a.out(1));
}

// The norm is of the stored sum, so that both results agree.
void add_rms_norm_eval(const EvalArgs& a) {
  add_rows(a.in(0), a.in(1), a.out(2));
  normalise({a.out(2), a.in(2), {}, epsilon(a)}, a.out(0), a.out(1));
}

std::vector<Type> add_rms_norm_v2_infer(const Args& args) {
  need_same_type(args, 0, 1);
  return {rstd_type(args, 0, 2), args.in(0), args.in(0)};
}

void add_rms_norm_v2_eval(const EvalArgs& a) {
  add_rows(a.in(0), a.in(1), a.out(2));
  normalise({a.out(2), a.in(2), {}, epsilon(a)}, a.out(1), a.out(0));
}

constexpr int x1_and_x2[] = {-1, 0, 1};

std::vector<Type> add_rms_norm_cast_infer(const Args& args) {
  need_same_type(args, 0, 1);
  const Type rstd = rstd_type(args, 0, 2);
  return {{DType::f32, args.in(0).shape}, args.in(0), rstd, args.in(0)};
}

void add_rms_norm_cast_eval(const EvalArgs& a) {
  add_rows(a.in(0), a.in(1), a.out(3));
  const RmsNorm norm{a.out(3), a.in(2), {}, epsilon(a)};
  rms_norm(norm, [&](std::int64_t i, std::vector<float>& y, float rstd) {
    const auto d = static_cast<std::int64_t>(y.size());
    write_row(a.out(0), i * d, 1, d, y.data());
    write_row(a.out(1), i * d, 1, d, y.data());
    a.out(2).as<float>()[i] = rstd;
  });
}

std::vector<Type> layer_norm_eval_infer(const Args& args) {
  const Type& t = args.in(0);
  for (const int i : {0, 1, 2})
    if (args.has(i)) need_float(args, i);
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

constexpr std::string_view add_rms_norm_v2_notes[] = {
    "x1 becomes y and x2 the sum; npugraph_ex turns the functional form back into this one",
};
constexpr NpuFacts add_rms_norm_v2_facts{
    .group = "norm",
    .signature =
        "npu_add_rms_norm_v2(Tensor(a!) x1, Tensor(b!) x2, Tensor gamma, float epsilon=1e-06) -> "
        "Tensor",
    .source = "library schema",
    .a2 = "unknown",
    .a3 = "unknown",
    .graph_mode = "no document; shape function; GE converter of the functional form",
    .notes = add_rms_norm_v2_notes,
};

constexpr std::string_view add_rms_norm_cast_notes[] = {"for a router that needs f32 input"};
constexpr Limit add_rms_norm_cast_limits[] = {
    {"add_rms_norm_cast.dtype",
     "x1.dtype in (fp16, bf16) and x2.dtype == x1.dtype and gamma.dtype == x1.dtype"},
};
constexpr NpuFacts add_rms_norm_cast_facts{
    .group = "norm",
    .signature =
        "npu_add_rms_norm_cast(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> "
        "(Tensor, Tensor, Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = add_rms_norm_cast_notes,
    .limits = add_rms_norm_cast_limits,
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

Cost norm_cost(const Args& args, const Load&) { return moved(args, 6); }

}  // namespace

const OpDef npu_rms_norm{
    .name = "npu.npu_rms_norm",
    .schema = "(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor y, Tensor rstd)",
    .doc = "y = input * rstd * gamma, rstd = 1 / sqrt(mean(input^2) + epsilon) over gamma's axes.",
    .infer = rms_norm_infer,
    .eval = rms_norm_eval,
    .cost = norm_cost,
    .npu = &rms_norm_facts,
};

const OpDef npu_gemma_rms_norm{
    .name = "npu.npu_gemma_rms_norm",
    .schema = "(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor y, Tensor rstd)",
    .doc = "As npu_rms_norm with 1 + gamma in gamma's place.",
    .infer = rms_norm_infer,
    .eval = gemma_rms_norm_eval,
    .cost = norm_cost,
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
    .cost = norm_cost,
    .npu = &add_rms_norm_facts,
};

const OpDef npu_add_rms_norm_v2{
    .name = "npu.npu_add_rms_norm_v2",
    .schema =
        "(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> "
        "(Tensor rstd, Tensor x1, Tensor x2)",
    .doc = "As npu_add_rms_norm, in place: x1 becomes y, x2 the sum.",
    .infer = add_rms_norm_v2_infer,
    .eval = add_rms_norm_v2_eval,
    .updates = x1_and_x2,
    .cost = norm_cost,
    .npu = &add_rms_norm_v2_facts,
};

const OpDef npu_add_rms_norm_cast{
    .name = "npu.npu_add_rms_norm_cast",
    .schema =
        "(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> "
        "(Tensor y1, Tensor y2, Tensor rstd, Tensor x)",
    .doc = "As npu_add_rms_norm; y1 is y in f32, y2 y in x1's dtype.",
    .infer = add_rms_norm_cast_infer,
    .eval = add_rms_norm_cast_eval,
    .cost = norm_cost,
    .npu = &add_rms_norm_cast_facts,
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
    .cost = norm_cost,
    .npu = &layer_norm_eval_facts,
};

}  // namespace tk::ops

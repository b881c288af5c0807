// Group norms of torch_npu 2.14. Arithmetic in f32, rounded once.
#include <cmath>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

std::vector<Type> silu_infer(const Args& args) {
  const Type& x = args.in(0);
  need_float(args, 0);
  need_rank(args, 0, 2, 8);
  const std::int64_t group = args.i64("group");
  if (group < 1 || !exact_div(x.dim(1), Sym(group)))
    args.fail(cat("needs a group that divides axis 1 of ", x.str(), ", got ", group));
  for (const int i : {1, 2})
    if (args.has(i) && (args.in(i).shape != SymDims{x.dim(1)} || !is_float(args.in(i).dtype)))
      args.fail(cat("needs weight and bias [", x.dim(1).str(), "], got ", args.in(i).str()));
  const Type each{x.dtype, {x.dim(0), Sym(group)}};
  return {x, each, each};
}

void silu_eval(const EvalArgs& a) {
  const Tensor x = to_dtype(a.in(0), DType::f32);
  const Tensor w = a.has(1) ? to_dtype(a.in(1), DType::f32) : Tensor();
  const Tensor b = a.has(2) ? to_dtype(a.in(2), DType::f32) : Tensor();
  const auto eps = static_cast<float>(a.f64("eps"));
  const std::int64_t groups = a.i64("group");
  const std::int64_t channels = x.shape[1];
  const std::int64_t lines = x.shape[0] * groups;
  const std::int64_t n = lines == 0 ? 0 : x.numel() / lines;
  const std::int64_t per_channel = n / std::max<std::int64_t>(1, channels / groups);
  std::vector<float> row(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < lines; ++i) {
    const float* v = x.as<float>() + i * n;
    double sum = 0;
    for (std::int64_t k = 0; k < n; ++k) sum += v[k];
    const double mean = sum / static_cast<double>(n);
    double var = 0;
    for (std::int64_t k = 0; k < n; ++k) var += (v[k] - mean) * (v[k] - mean);
    const auto m = static_cast<float>(mean);
    const float rstd = 1.0F / std::sqrt(static_cast<float>(var / static_cast<double>(n)) + eps);
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t c = i % groups * (channels / groups) + k / per_channel;
      const float y = (v[k] - m) * rstd * (w.data == nullptr ? 1.0F : w.as<float>()[c]) +
                      (b.data == nullptr ? 0.0F : b.as<float>()[c]);
      row[static_cast<std::size_t>(k)] = y * sigmoid(y);
    }
    write_row(a.out(0), i * n, 1, n, row.data());
    write_row(a.out(1), i, 1, 1, &m);
    write_row(a.out(2), i, 1, 1, &rstd);
  }
}

Cost norm_cost(const Args& args, const Load&) { return moved(args, 12); }

constexpr Limit silu_limits[] = {
    {"group_norm_silu.group", "input.shape[1] % group == 0"},
    {"group_norm_silu.dtype", "input.dtype in (fp16, fp32, bf16)"},
    {"group_norm_silu.parameters",
     "(weight is None or weight.dtype in (input.dtype, fp32)) and (bias is None or bias.dtype in "
     "(input.dtype, fp32)) and (weight is None or bias is None or weight.dtype == bias.dtype)",
     "weight and bias of one dtype, no less precise than input"},
    {"group_norm_silu.empty", "input.numel > 0"},
    {"group_norm_silu.eps", "eps > 0 and group > 0"},
};
constexpr NpuFacts silu_facts{
    .group = "norm",
    .signature =
        "npu_group_norm_silu(Tensor input, Tensor? weight, Tensor? bias, int group, float "
        "eps=0.00001) -> (Tensor, Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "not named",
    .graph_mode = "stated; shape function; GE converter",
    .limits = silu_limits,
};

}  // namespace

const OpDef npu_group_norm_silu{
    .name = "npu.npu_group_norm_silu",
    .schema =
        "(Tensor input, Tensor? weight, Tensor? bias, int group, float eps=1e-05) -> "
        "(Tensor out, Tensor mean, Tensor rstd)",
    .doc =
        "silu((input - mean) * rstd * weight + bias), mean and rstd over each of `group` parts of "
        "axis 1 and the axes after it.",
    .infer = silu_infer,
    .eval = silu_eval,
    .cost = norm_cost,
    .npu = &silu_facts,
};

}  // namespace tk::ops

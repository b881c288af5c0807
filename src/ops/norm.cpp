// Normalisations: of the last axes, of groups of channels, and by given statistics.
#include <cmath>
#include <limits>

#include "ops/lines.h"
#include "ops/ops.h"

namespace tk::ops {
namespace {

// The trailing axes that normalized_shape names; checks them, weight and bias.
int normalized_rank(const Args& args) {
  need_float(args, 0);
  const Type& t = args.in(0);
  const SymDims shape = args.syms("normalized_shape");
  const int n = static_cast<int>(shape.size());
  bool fits = n >= 1 && n <= t.rank();
  for (int i = 0; fits && i < n; ++i) fits = t.dim(i - n) == shape[static_cast<std::size_t>(i)];
  if (!fits) args.fail(cat("needs an input that ends in ", str(shape), ", got ", t.str()));
  for (int i = 1; i <= 2; ++i)
    if (args.has(i) && args.in(i).shape != shape)
      args.fail(cat("needs weight and bias of shape ", str(shape), ", got ", args.in(i).str()));
  return n;
}

std::vector<Type> infer_norm(const Args& args) {
  normalized_rank(args);
  return {args.in(0)};
}

std::vector<Type> infer_native_layer_norm(const Args& args) {
  const int n = normalized_rank(args);
  Type stats = args.in(0);
  for (int i = 1; i <= n; ++i) stats.shape[stats.shape.size() - static_cast<std::size_t>(i)] = 1;
  return {args.in(0), stats, stats};
}

// Optional weights of n elements in double, `otherwise` where absent.
std::vector<double> weights_of(const EvalArgs& args, int input, std::int64_t n, double otherwise) {
  std::vector<double> w(static_cast<std::size_t>(n), otherwise);
  if (!args.has(input)) return w;
  const Tensor t = cast_to(args.in(input), DType::f64);
  std::copy_n(t.as<double>(), n, w.begin());
  return w;
}

struct Stats {
  double mean, rstd;
};

Stats stats_of(const std::vector<double>& row, double eps, bool centered) {
  const auto n = static_cast<double>(row.size());
  double mean = 0;
  if (centered) {
    for (double v : row) mean += v;
    mean /= n;
  }
  double squares = 0;
  for (double v : row) squares += (v - mean) * (v - mean);
  return {mean, 1 / std::sqrt(squares / n + eps)};
}

// Rows of n elements of the contiguous copy of input 0; f(row index, row).
template <typename F>
void for_rows(const EvalArgs& args, std::int64_t n, F f) {
  const Tensor x = contiguous(args.in(0));
  if (x.numel() == 0) return;
  std::vector<double> row(static_cast<std::size_t>(n));
  for (std::int64_t r = 0; r < x.numel() / n; ++r) {
    read_line(x, {r * n, n, 1}, row.data());
    f(r, row);
  }
}

std::int64_t normalized_size(const EvalArgs& args) { return args.ints("normalized_shape").numel(); }

void eval_layer_norm(const EvalArgs& args) {
  const std::int64_t n = normalized_size(args);
  const auto weight = weights_of(args, 1, n, 1);
  const auto bias = weights_of(args, 2, n, 0);
  const double eps = args.f64("eps");
  for_rows(args, n, [&](std::int64_t r, std::vector<double>& row) {
    const Stats s = stats_of(row, eps, true);
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] = (row[i] - s.mean) * s.rstd * weight[i] + bias[i];
    write_line(args.out(), {r * n, n, 1}, row.data());
    if (args.n_outputs() == 1) return;
    store_one(args.out(1), r, s.mean);
    store_one(args.out(2), r, s.rstd);
  });
}

// Where eps is None: the resolution of the type that is computed in.
double default_eps(DType dtype) {
  return dtype == DType::f64 ? std::numeric_limits<double>::epsilon()
                             : std::numeric_limits<float>::epsilon();
}

void eval_rms_norm(const EvalArgs& args) {
  const std::int64_t n = normalized_size(args);
  const auto weight = weights_of(args, 1, n, 1);
  const double eps = args.has_attr("eps") ? args.f64("eps") : default_eps(args.in(0).dtype);
  for_rows(args, n, [&](std::int64_t r, std::vector<double>& row) {
    const Stats s = stats_of(row, eps, false);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = row[i] * s.rstd * weight[i];
    write_line(args.out(), {r * n, n, 1}, row.data());
  });
}

// ---- by channel: axis 1 of [N, C, ...]

void need_channels(const Args& args, std::initializer_list<int> inputs) {
  for (int i : inputs)
    if (args.has(i) && (args.in(i).rank() != 1 || !(args.in(i).dim(0) == args.in(0).dim(1))))
      args.fail(cat("needs one number for each of ", args.in(0).dim(1).str(), " channels, got ",
                    args.in(i).str()));
}

std::vector<Type> infer_group_norm(const Args& args) {
  need_float(args, 0);
  need_rank(args, 0, 2, max_rank);
  const std::int64_t groups = args.i64("num_groups");
  if (groups < 1 || !mod(args.in(0).dim(1), groups).is(0))
    args.fail(cat("needs channels that ", groups, " groups divide, got ", args.in(0).str()));
  need_channels(args, {1, 2});
  return {args.in(0)};
}

void eval_group_norm(const EvalArgs& args) {
  const TensorView& t = args.in(0);
  if (t.numel() == 0) return;
  const std::int64_t channels = t.shape[1];
  const std::int64_t groups = args.i64("num_groups");
  const std::int64_t inner = t.numel() / (t.shape[0] * channels);
  const std::int64_t n = channels / groups * inner;
  const auto weight = weights_of(args, 1, channels, 1);
  const auto bias = weights_of(args, 2, channels, 0);
  const double eps = args.f64("eps");
  for_rows(args, n, [&](std::int64_t r, std::vector<double>& row) {
    const Stats s = stats_of(row, eps, true);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto c = static_cast<std::size_t>(r % groups * (channels / groups) + i / inner);
      double& v = row[static_cast<std::size_t>(i)];
      v = (v - s.mean) * s.rstd * weight[c] + bias[c];
    }
    write_line(args.out(), {r * n, n, 1}, row.data());
  });
}

std::vector<Type> infer_batch_norm(const Args& args) {
  if (args.flag("training")) args.fail("is for inference: needs training to be false");
  need_float(args, 0);
  need_rank(args, 0, 2, max_rank);
  if (!args.has(3) || !args.has(4)) args.fail("needs running_mean and running_var");
  need_channels(args, {1, 2, 3, 4});
  return {args.in(0)};
}

void eval_batch_norm(const EvalArgs& args) {
  const TensorView& t = args.in(0);
  if (t.numel() == 0) return;
  const std::int64_t channels = t.shape[1];
  const std::int64_t inner = t.numel() / (t.shape[0] * channels);
  const auto weight = weights_of(args, 1, channels, 1);
  const auto bias = weights_of(args, 2, channels, 0);
  const auto mean = weights_of(args, 3, channels, 0);
  const auto var = weights_of(args, 4, channels, 1);
  const double eps = args.f64("eps");
  for_rows(args, inner, [&](std::int64_t r, std::vector<double>& row) {
    const auto c = static_cast<std::size_t>(r % channels);
    const double scale = weight[c] / std::sqrt(var[c] + eps);
    for (double& v : row) v = (v - mean[c]) * scale + bias[c];
    write_line(args.out(), {r * inner, inner, 1}, row.data());
  });
}

}  // namespace

const OpDef aten_layer_norm{
    .name = "aten.layer_norm",
    .schema =
        "(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
        "float eps=1e-05, bool cudnn_enable=true) -> Tensor",
    .doc = "(x - mean) / sqrt(var + eps) * weight + bias over the trailing dims",
    .infer = infer_norm,
    .eval = eval_layer_norm};
const OpDef aten_native_layer_norm{
    .name = "aten.native_layer_norm",
    .schema =
        "(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps)"
        " -> (Tensor out, Tensor mean, Tensor rstd)",
    .doc = "layer_norm with its mean and 1 / sqrt(var + eps)",
    .infer = infer_native_layer_norm,
    .eval = eval_layer_norm};
const OpDef aten_rms_norm{
    .name = "aten.rms_norm",
    .schema =
        "(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None)"
        " -> Tensor",
    .doc = "x / sqrt(mean of squares + eps) * weight over the trailing dims",
    .infer = infer_norm,
    .eval = eval_rms_norm};
const OpDef aten_group_norm{
    .name = "aten.group_norm",
    .schema =
        "(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, "
        "float eps=1e-05, bool cudnn_enabled=true) -> Tensor",
    .doc = "layer_norm of each group of channels, weight and bias by channel",
    .infer = infer_group_norm,
    .eval = eval_group_norm};
const OpDef aten_batch_norm{
    .name = "aten.batch_norm",
    .schema =
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
        "Tensor? running_var, bool training, float momentum, float eps, "
        "bool cudnn_enabled=true) -> Tensor",
    .doc = "(x - running_mean) / sqrt(running_var + eps) * weight + bias by channel",
    .infer = infer_batch_norm,
    .eval = eval_batch_norm};

}  // namespace tk::ops

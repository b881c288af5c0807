// Softmax and running sums: functions of a line.
#include <cmath>

#include "ops/lines.h"
#include "ops/ops.h"

namespace tk::ops {
namespace {

std::vector<Type> infer_softmax(const Args& args) {
  const Type& t = args.in(0);
  axis(args, "dim", t.rank());
  const DType dtype = args.has_attr("dtype") ? args.dtype("dtype") : t.dtype;
  if (!is_float(dtype)) args.fail("needs floating-point numbers or a dtype");
  return {{dtype, t.shape}};
}

std::vector<Type> infer_internal_softmax(const Args& args) {
  need_float(args, 0);
  Type t = args.in(0);
  axis(args, "dim", t.rank());
  if (args.flag("half_to_float")) t.dtype = DType::f32;
  return {t};
}

template <bool logarithm>
void eval_softmax(const EvalArgs& args) {
  const TensorView& out = args.out();
  const TensorView& in = args.in(0);
  const int dim = axis(args.i64("dim"), in.rank());
  const std::int64_t n = line_size(in, dim);
  with_float(out.dtype, [&](auto tag) {
    using T = decltype(tag);
    std::vector<T> line(static_cast<std::size_t>(n));
    for_lines<2>({in, out}, dim, [&](const Offsets<2>& at) {
      read_line(in, {at[0], n, line_stride(in, dim)}, line.data());
      T most = -INFINITY;
      for (T v : line) most = v > most || v != v ? v : most;
      double sum = 0;
      if constexpr (logarithm) {
        for (T v : line) sum += std::exp(v - most);
        const T shift = static_cast<T>(std::log(sum));
        for (T& v : line) v = v - most - shift;
      } else {
        for (T& v : line) sum += v = std::exp(v - most);
        const T scale = static_cast<T>(1 / sum);
        for (T& v : line) v *= scale;
      }
      write_line(out, {at[1], n, line_stride(out, dim)}, line.data());
    });
  });
}

std::vector<Type> infer_running(const Args& args) {
  const Type& t = args.in(0);
  axis(args, "dim", t.rank());
  const DType natural = is_integral(t.dtype) ? DType::i64 : t.dtype;
  const DType dtype = args.has_attr("dtype") ? args.dtype("dtype") : natural;
  if (dtype == DType::c64) args.fail("is not defined for complex numbers here");
  return {{dtype, t.shape}};
}

template <bool product>
void eval_running(const EvalArgs& args) {
  const TensorView& out = args.out();
  const Tensor in = as_dtype(args.in(0), out.dtype);
  const int dim = axis(args.i64("dim"), in.rank());
  const std::int64_t n = line_size(in, dim);
  const auto run = [&](auto tag) {
    using T = decltype(tag);
    std::vector<T> line(static_cast<std::size_t>(n));
    for_lines<2>({in, out}, dim, [&](const Offsets<2>& at) {
      read_line(in, {at[0], n, line_stride(in, dim)}, line.data());
      T total = product ? 1 : 0;
      for (T& v : line) {
        total = product ? wrap_mul(total, v) : wrap_add(total, v);
        v = total;
      }
      write_line(out, {at[1], n, line_stride(out, dim)}, line.data());
    });
  };
  if (is_integral(out.dtype)) return run(std::int64_t{});
  run(double{});
}

constexpr std::string_view softmax_schema = "(Tensor self, int dim, dtype? dtype=None) -> Tensor";
constexpr std::string_view internal_schema =
    "(Tensor self, int dim, bool half_to_float=false) -> Tensor";
constexpr std::string_view running_schema =
    "(Tensor self, int dim, *, dtype? dtype=None) -> Tensor";

}  // namespace

const OpDef aten_softmax{.name = "aten.softmax",
                         .schema = softmax_schema,
                         .doc = "e^x / the sum of e^x along dim",
                         .infer = infer_softmax,
                         .eval = eval_softmax<false>};
const OpDef aten_log_softmax{.name = "aten.log_softmax",
                             .schema = softmax_schema,
                             .doc = "ln softmax along dim",
                             .infer = infer_softmax,
                             .eval = eval_softmax<true>};
const OpDef aten_internal_softmax{.name = "aten._softmax",
                                  .schema = internal_schema,
                                  .doc = "e^x / the sum of e^x along dim",
                                  .infer = infer_internal_softmax,
                                  .eval = eval_softmax<false>};
const OpDef aten_internal_log_softmax{.name = "aten._log_softmax",
                                      .schema = internal_schema,
                                      .doc = "ln softmax along dim",
                                      .infer = infer_internal_softmax,
                                      .eval = eval_softmax<true>};
const OpDef aten_cumsum{.name = "aten.cumsum",
                        .schema = running_schema,
                        .doc = "running sums along dim; of integers in i64",
                        .infer = infer_running,
                        .eval = eval_running<false>};
const OpDef aten_cumprod{.name = "aten.cumprod",
                         .schema = running_schema,
                         .doc = "running products along dim; of integers in i64",
                         .infer = infer_running,
                         .eval = eval_running<true>};

}  // namespace tk::ops

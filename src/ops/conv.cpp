// Convolutions over one to three axes: the windows of the input as columns, times the weight.
#include <cstring>

#include "ops/gemm.h"
#include "ops/ops.h"
#include "ops/view.h"

namespace tk::ops {
namespace {

// A number for each spatial axis, from a list of that many or of one.
std::vector<std::int64_t> for_each_axis(const std::vector<std::int64_t>& list, int n) {
  if (list.size() == 1) return std::vector<std::int64_t>(static_cast<std::size_t>(n), list[0]);
  return list;
}

std::vector<std::int64_t> numbers(const Args& args, std::string_view name, std::int64_t least) {
  const int n = args.in(0).rank() - 2;
  const auto list = for_each_axis(args.ints(name), n);
  if (static_cast<int>(list.size()) != n)
    args.fail(cat("needs ", n, " numbers for ", name, ", got ", list.size()));
  for (std::int64_t v : list)
    if (v < least || v > (std::int64_t{1} << 32))
      args.fail(cat("needs ", name, " of ", least, " or more, got ", v));
  return list;
}

std::vector<std::int64_t> numbers(const EvalArgs& args, std::string_view name) {
  const Dims list = args.ints(name);
  return for_each_axis({list.begin(), list.end()}, args.in(0).rank() - 2);
}

std::vector<Type> infer_conv(const Args& args) {
  need_float(args, 0);
  need_rank(args, 0, 3, 5);
  const Type& t = args.in(0);
  const Type& weight = args.in(1);
  const int n = t.rank() - 2;
  need_rank(args, 1, n + 2, n + 2);
  if (weight.dtype != t.dtype || (args.has(2) && args.in(2).dtype != t.dtype))
    args.fail("needs input, weight and bias of one dtype");
  const auto stride = numbers(args, "stride", 1);
  const auto padding = numbers(args, "padding", 0);
  const auto dilation = numbers(args, "dilation", 1);
  const std::int64_t groups = args.i64("groups");
  if (groups < 1 || !mod(weight.dim(0), groups).is(0) || !(weight.dim(1) * groups == t.dim(1)))
    args.fail(cat("needs a weight for ", t.dim(1).str(), " channels in ", groups, " groups, got ",
                  weight.str()));
  if (args.has(2) && (args.in(2).rank() != 1 || !(args.in(2).dim(0) == weight.dim(0))))
    args.fail(cat("needs a bias of ", weight.dim(0).str(), " numbers, got ", args.in(2).str()));
  Type out{t.dtype, {t.dim(0), weight.dim(0)}};
  for (int i = 0; i < n; ++i) {
    const auto k = static_cast<std::size_t>(i);
    const Sym span = (weight.dim(i + 2) - 1) * dilation[k] + 1;
    const Sym room = t.dim(i + 2) + 2 * padding[k] - span;
    if (room.is_const() && room.value() < 0)
      args.fail(cat("needs an input of at least the kernel's ", span.str(), " elements"));
    out.shape.push_back(floordiv(room, stride[k]) + 1);
  }
  return {out};
}

std::vector<Type> infer_convolution(const Args& args) {
  if (args.flag("transposed")) args.fail("is not supported transposed");
  return infer_conv(args);
}

template <int n>
std::vector<Type> infer_conv_nd(const Args& args) {
  need_rank(args, 0, n + 2, n + 2);
  return infer_conv(args);
}

// f(index) for each index of a shape, row-major.
template <typename F>
void for_index(const Dims& shape, F f) {
  Dims index = shape;
  for (auto& i : index) i = 0;
  for (std::int64_t count = shape.numel(); count > 0; --count) {
    f(index);
    for (int i = shape.size() - 1; i >= 0 && ++index[i] == shape[i]; --i) index[i] = 0;
  }
}

void eval_conv(const EvalArgs& args) {
  const TensorView& out = args.out();
  if (out.numel() == 0) return;
  const DType dtype = out.dtype == DType::f64 ? DType::f64 : DType::f32;
  const Tensor x = cast_to(args.in(0), dtype);
  const Tensor weight = contiguous(args.in(1));
  const auto stride = numbers(args, "stride");
  const auto padding = numbers(args, "padding");
  const auto dilation = numbers(args, "dilation");
  const std::int64_t groups = args.i64("groups");
  const int n = x.rank() - 2;
  const auto tail = [n](const Dims& d) {
    return Dims(std::span(d.begin() + 2, static_cast<std::size_t>(n)));
  };
  const Dims sizes = tail(x.shape);
  const Dims kernel = tail(weight.shape);
  const Dims places = tail(out.shape);
  const std::int64_t channels = weight.shape[1];
  const std::int64_t n_places = places.numel();
  const std::int64_t outputs = weight.shape[0] / groups;
  Tensor columns = Tensor::empty(dtype, {channels * kernel.numel(), n_places});
  const auto size = size_of(dtype);
  for (std::int64_t b = 0; b < x.shape[0]; ++b)
    for (std::int64_t g = 0; g < groups; ++g) {
      std::memset(columns.data, 0, static_cast<std::size_t>(columns.bytes()));
      char* to = columns.as<char>();
      for (std::int64_t c = 0; c < channels; ++c) {
        const char* from = x.as<char>() + ((b * x.shape[1] + g * channels + c) * sizes.numel()) *
                                              static_cast<std::int64_t>(size);
        for_index(kernel, [&](const Dims& k) {
          for_index(places, [&](const Dims& p) {
            std::int64_t at = 0;
            bool inside = true;
            for (int i = 0; i < n; ++i) {
              const auto u = static_cast<std::size_t>(i);
              const std::int64_t v = p[i] * stride[u] - padding[u] + k[i] * dilation[u];
              inside = inside && v >= 0 && v < sizes[i];
              at = at * sizes[i] + v;
            }
            if (inside) std::memcpy(to, from + at * static_cast<std::int64_t>(size), size);
            to += size;
          });
        });
      }
      TensorView rows = moved(weight, g * outputs * channels * kernel.numel());
      rows.shape = {outputs, channels * kernel.numel()};
      rows.strides = contiguous_strides(rows.shape);
      const Tensor wide = as_dtype(rows, dtype);
      TensorView result = moved(out, (b * out.shape[1] + g * outputs) * n_places);
      result.shape = {outputs, n_places};
      result.strides = {n_places, 1};
      TensorView bias;
      Tensor wide_bias;
      if (args.has(2)) {
        wide_bias = cast_to(args.in(2), dtype);
        bias = moved(wide_bias, g * outputs);
        bias.shape = {outputs, 1};
        bias.strides = {1, 0};
      }
      gemm(wide, columns, result, 1, bias.data != nullptr ? 1 : 0, bias);
    }
}

constexpr std::string_view conv_schema =
    "(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, "
    "int[] dilation=1, int groups=1) -> Tensor";

}  // namespace

const OpDef aten_conv1d{.name = "aten.conv1d",
                        .schema = conv_schema,
                        .doc = "weight [out, in / groups, k] slid over input [batch, in, n]",
                        .infer = infer_conv_nd<1>,
                        .eval = eval_conv};
const OpDef aten_conv2d{.name = "aten.conv2d",
                        .schema = conv_schema,
                        .doc = "weight [out, in / groups, h, w] slid over input [batch, in, h, w]",
                        .infer = infer_conv_nd<2>,
                        .eval = eval_conv};
const OpDef aten_convolution{
    .name = "aten.convolution",
    .schema =
        "(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, "
        "int[] dilation, bool transposed, int[] output_padding, int groups) -> Tensor",
    .doc = "weight slid over the axes of input after batch and channels",
    .infer = infer_convolution,
    .eval = eval_conv};

}  // namespace tk::ops

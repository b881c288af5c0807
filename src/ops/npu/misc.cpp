// Casts, prefetch and the plain product of torch_npu 2.14.
#include <cstring>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/cost.h"
#include "ops/gemm.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

Cost moved_cost(const Args& args, const Load&) { return moved(args, 0); }

// ---- casts

// Storage formats are no part of a type here: a cast of format is a copy.
std::vector<Type> format_infer(const Args& args) {
  const std::int64_t format = args.i64("acl_format");
  if (format < -1 || format > 47) args.fail(cat("needs an acl_format, got ", format));
  return {args.in(0)};
}
void copy_eval(const EvalArgs& a) { copy_into(a.out(), a.in(0)); }

constexpr std::string_view format_notes[] = {
    "no shape function: outside of what is captured",
    "acl_format 29 is FRACTAL_NZ, 2 is ND; nothing may change or slice a weight in NZ",
};
constexpr Limit format_limits[] = {
    {"format_cast.format", "acl_format in (-1, 0, 1, 2, 3, 4, 12, 16, 27, 29, 30, 32, 33, 35, 47)"},
    {"format_cast.graph", "not graph", "no shape function: a capture cannot hold it"},
};
constexpr NpuFacts format_facts{
    .group = "misc",
    .signature =
        "npu_format_cast(Tensor input, int acl_format, *, int? customize_dtype=None, int? "
        "input_dtype=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "not named",
    .graph_mode = "not stated; no shape function; no GE converter",
    .notes = format_notes,
    .limits = format_limits,
};

std::vector<Type> dtype_infer(const Args& args) {
  return {{args.dtype("dtype"), args.in(0).shape}};
}

constexpr NpuFacts dtype_facts{
    .group = "misc",
    .signature = "npu_dtype_cast(Tensor input, int dtype, int? input_dtype=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "not named",
    .graph_mode = "not stated; shape function; GE converter",
};

// ---- prefetch

std::vector<Type> prefetch_infer(const Args& args) {
  if (args.i64("max_size") <= 0 || args.i64("offset") < 0)
    args.fail(cat("needs max_size above 0 and an offset of 0 or more, got ", args.i64("max_size"),
                  " and ", args.i64("offset")));
  return {};
}
void prefetch_eval(const EvalArgs&) {}

Cost prefetch_cost(const Args& args, const Load&) {
  Cost c;
  c.read = std::min(static_cast<double>(args.i64("max_size")), bytes_of(args.in(0)));
  return c;
}

constexpr std::string_view prefetch_notes[] = {
    "dependency is the node that starts the transfer",
    "max_size is in bytes, cut to the tensor",
};
constexpr Limit prefetch_limits[] = {
    {"prefetch.dep", "dependency is not None or not graph"},
    {"prefetch.size", "max_size > 0 and offset >= 0"},
    {"prefetch.offset", "offset < input.numel * input.itemsize"},
};
constexpr NpuFacts prefetch_facts{
    .group = "misc",
    .signature = "npu_prefetch(Tensor input, Tensor? dependency, int max_size, int offset=0) -> ()",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes (op-plugin docs)",
    .graph_mode = "stated; shape function; GE converter",
    .notes = prefetch_notes,
    .limits = prefetch_limits,
};

// ---- linear

std::vector<Type> linear_infer(const Args& args) {
  const Type& x = args.in(0);
  const Type& w = args.in(1);
  need_rank(args, 0, 1, 8);
  if (!is_float(x.dtype) || x.dtype != w.dtype || w.rank() != 2 || !(w.dim(1) == x.dim(-1)))
    args.fail(cat("needs a floating-point input [.., K] and weight [N, K], got ", x.str(), " and ",
                  w.str()));
  if (args.has(2) && !(args.in(2) == Type{x.dtype, {w.dim(0)}}))
    args.fail(cat("needs a bias [", w.dim(0).str(), "], got ", args.in(2).str()));
  Type out = x;
  out.shape.back() = w.dim(0);
  return {out};
}

void linear_eval(const EvalArgs& a) {
  Tensor x = contiguous(a.in(0));
  const std::int64_t k = x.shape.back();
  const std::int64_t n = a.in(1).shape[0];
  TensorView out = a.out();
  const std::int64_t m = n == 0 ? 0 : out.numel() / n;
  x.shape = {m, k};
  x.strides = {k, 1};
  out.shape = {m, n};
  out.strides = {n, 1};
  TensorView w = a.in(1);
  std::swap(w.shape[0], w.shape[1]);
  std::swap(w.strides[0], w.strides[1]);
  gemm(x, w, out, 1, a.has(2) ? 1 : 0, a.has(2) ? a.in(2) : TensorView());
}

constexpr Limit linear_limits[] = {
    {"linear.rank", "input.ndim == 2 and weight.ndim == 2"},
    {"linear.dtype", "input.dtype in (fp32, fp16, int32, int8) and weight.dtype == input.dtype"},
};
constexpr NpuFacts linear_facts{
    .group = "misc",
    .signature = "npu_linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "not named",
    .graph_mode = "not stated; shape function; GE converter",
    .limits = linear_limits,
};

}  // namespace

const OpDef npu_format_cast{
    .name = "npu.npu_format_cast",
    .schema =
        "(Tensor input, int acl_format, int? customize_dtype=None, int? input_dtype=None) -> "
        "Tensor",
    .doc = "A copy in another storage format (29: FRACTAL_NZ, 2: ND); its values are the same.",
    .infer = format_infer,
    .eval = copy_eval,
    .cost = moved_cost,
    .npu = &format_facts,
};

const OpDef npu_dtype_cast{
    .name = "npu.npu_dtype_cast",
    .schema = "(Tensor input, dtype dtype, int? input_dtype=None) -> Tensor",
    .doc = "As Tensor.to(dtype).",
    .infer = dtype_infer,
    .eval = copy_eval,
    .cost = moved_cost,
    .npu = &dtype_facts,
};

const OpDef npu_prefetch{
    .name = "npu.npu_prefetch",
    .schema = "(Tensor input, Tensor? dependency, int max_size, int offset=0) -> ()",
    .doc = "Up to max_size bytes of input are brought to L2. Changes no value.",
    .infer = prefetch_infer,
    .eval = prefetch_eval,
    .cost = prefetch_cost,
    .npu = &prefetch_facts,
};

const OpDef npu_linear{
    .name = "npu.npu_linear",
    .schema = "(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    .doc = "input @ weight.T + bias, summed in f32 and rounded once. Integers are refused here.",
    .infer = linear_infer,
    .eval = linear_eval,
    .cost = product_cost,
    .npu = &linear_facts,
};

}  // namespace tk::ops

// Norms of torch_npu 2.14 with quantised results: the norm in f32, rounded to int8 or int4 once.
#include "base/error.h"
#include "graph/graph.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/norm.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/quant.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

Cost norm_cost(const Args& args, const Load&) { return moved(args, 10); }

// A parameter for each element of gamma.
void need_as_gamma(const Args& args, int gamma, std::initializer_list<int> inputs) {
  for (const int i : inputs)
    if (args.has(i) && args.in(i).shape != args.in(gamma).shape)
      args.fail(cat("needs ", args.op().parsed().tensors[static_cast<std::size_t>(i)].name,
                    " of gamma's shape ", str(args.in(gamma).shape), ", got ", args.in(i).str()));
}

// ---- per token

struct Ways {
  bool first, second;
};

// Which results there are, as the library decides.
template <typename A>
Ways ways_of(const A& args) {
  if (const Attr* mask = args.attr("output_mask")) {
    const auto& m = std::get<SymDims>(*mask);
    return {!m[0].is(0), !m[1].is(0)};
  }
  return {true, args.has(3) && args.has(4)};
}

std::vector<Type> dynamic_infer(const Args& args) {
  need_same_type(args, 0, 1);
  const Type& x = args.in(0);
  if (x.rank() < 2) args.fail(cat("needs x1 of 2 to 8 axes, got ", x.str()));
  rstd_type(args, 0, 2);
  need_rank(args, 2, 1, 1);
  need_as_gamma(args, 2, {3, 4, 5});
  if (args.has_attr("output_mask") && args.syms("output_mask").size() != 2)
    args.fail("needs an output_mask of two");
  const QuantType& type = quant_type(args, "y_dtype", {"int8", "quint4x2", "int4"});
  const Ways ways = ways_of(args);
  if (!ways.first && !ways.second) args.fail("needs an output_mask with a result");
  const Type y = quantised(args, x, type);
  const Type scale = without_last(x, DType::f32);
  const Type no_y{y.dtype, {}};
  const Type no_scale{DType::f32, {}};
  return {ways.first ? y : no_y, ways.second ? y : no_y, x, ways.first ? scale : no_scale,
          ways.second ? scale : no_scale};
}

void dynamic_eval(const EvalArgs& a) {
  add_rows(a.in(0), a.in(1), a.out(2));
  const QuantType& type = quant_type(a, "y_dtype");
  const Ways ways = ways_of(a);
  const Tensor smooth[2] = {a.has(3) ? to_dtype(a.in(3), DType::f32) : Tensor(),
                            a.has(4) ? to_dtype(a.in(4), DType::f32) : Tensor()};
  for (const int way : {0, 1}) {
    if (way == 0 ? ways.first : ways.second) continue;
    set_element(a.out(way), 0, 0);  // of a result that is not there: a number of no meaning
    set_element(a.out(3 + way), 0, 0);
  }
  const RmsNorm norm{a.out(2), a.in(2), a.in(5), static_cast<float>(a.f64("epsilon"))};
  rms_norm(norm, [&](std::int64_t i, std::vector<float>& y, float) {
    for (const int way : {0, 1}) {
      if (!(way == 0 ? ways.first : ways.second)) continue;
      std::vector<float> row = y;
      if (smooth[way].data != nullptr)
        for (std::size_t k = 0; k < row.size(); ++k) row[k] *= smooth[way].as<float>()[k];
      a.out(3 + way).as<float>()[i] = scale_symmetric(&row, type.high);
      write_quantised(a.out(way), i, row.data(), static_cast<std::int64_t>(row.size()), type);
    }
  });
}

constexpr std::string_view dynamic_notes[] = {
    "output_mask is an empty list in the document, None in the library",
    "a result that the mask leaves out is a number of no meaning",
};
constexpr Limit dynamic_limits[] = {
    {"add_rms_norm_dynamic_quant.mask", "output_mask is None or any(output_mask)"},
    {"add_rms_norm_dynamic_quant.smooth2",
     "output_mask is not None or smooth_scale2 is None or smooth_scale1 is not None"},
    {"add_rms_norm_dynamic_quant.smooth1_mask",
     "output_mask is None or smooth_scale1 is None or output_mask[0]"},
    {"add_rms_norm_dynamic_quant.smooth2_mask",
     "output_mask is None or smooth_scale2 is None or output_mask[1]"},
    {"add_rms_norm_dynamic_quant.dtype",
     "x1.dtype in (fp16, bf16) and gamma.dtype == x1.dtype and (smooth_scale1 is None or "
     "smooth_scale1.dtype == x1.dtype) and (smooth_scale2 is None or smooth_scale2.dtype == "
     "x1.dtype) and (beta is None or beta.dtype == x1.dtype)"},
    {"add_rms_norm_dynamic_quant.empty", "x1.numel > 0"},
};
constexpr NpuFacts dynamic_facts{
    .group = "norm",
    .signature =
        "npu_add_rms_norm_dynamic_quant(Tensor x1, Tensor x2, Tensor gamma, *, Tensor? "
        "smooth_scale1=None, Tensor? smooth_scale2=None, Tensor? beta=None, float epsilon=1e-6, "
        "bool[2]? output_mask=None, int? y_dtype=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = dynamic_notes,
    .limits = dynamic_limits,
};

// ---- with scales given

// round(y / scale + zero), or times it.
void write_scaled(const TensorView& out, std::int64_t i, const std::vector<float>& y,
                  const Tensor& scale, const Tensor& zero, bool divide, const QuantType& type) {
  std::vector<float> row = y;
  const bool one = scale.numel() == 1;
  for (std::size_t k = 0; k < row.size(); ++k) {
    const float s = scale.as<float>()[one ? 0 : k];
    row[k] = (divide ? row[k] / s : row[k] * s) +
             (zero.data == nullptr ? 0.0F : zero.as<float>()[one ? 0 : k]);
  }
  write_quantised(out, i, row.data(), static_cast<std::int64_t>(row.size()), type);
}

std::vector<Type> static_infer(const Args& args) {
  need_same_type(args, 0, 1);
  rstd_type(args, 0, 2);
  need_as_gamma(args, 2, {3, 4, 5, 6, 7});
  const QuantType& type = quant_type(args, "dst_type", {"int8", "qint8"});
  const Type y = quantised(args, args.in(0), type);
  return {y, y, args.in(0)};
}

void static_eval(const EvalArgs& a) {
  add_rows(a.in(0), a.in(1), a.out(2));
  const QuantType& type = quant_type(a, "dst_type");
  const bool divide = a.flag("div_mode");
  const auto given = [&](int i) { return a.has(i) ? to_dtype(a.in(i), DType::f32) : Tensor(); };
  const Tensor scales1 = given(3), zeros1 = given(4), scales2 = given(6), zeros2 = given(7);
  if (scales2.data == nullptr)
    for (std::int64_t i = 0; i < a.out(1).numel(); ++i) a.out(1).as<std::int8_t>()[i] = 0;
  const RmsNorm norm{a.out(2), a.in(2), a.in(5), static_cast<float>(a.f64("epsilon"))};
  rms_norm(norm, [&](std::int64_t i, std::vector<float>& y, float) {
    write_scaled(a.out(0), i, y, scales1, zeros1, divide, type);
    if (scales2.data != nullptr) write_scaled(a.out(1), i, y, scales2, zeros2, divide, type);
  });
}

constexpr Limit static_limits[] = {
    {"add_rms_norm_quant.axis", "axis == -1"},
    {"add_rms_norm_quant.scale0",
     "not div_mode or (0 not in scales1 and (scales2 is None or 0 not in scales2))",
     "no scale is 0"},
    {"add_rms_norm_quant.dtype",
     "x1.dtype in (fp16, bf16) and gamma.dtype == x1.dtype and (beta is None or beta.dtype == "
     "x1.dtype)"},
    {"add_rms_norm_quant.scales",
     "scales1.dtype == (bf16 if x1.dtype == bf16 else fp32) and (scales2 is None or scales2.dtype "
     "== scales1.dtype)"},
    {"add_rms_norm_quant.zeros",
     "(zero_points1 is None or zero_points1.dtype == (bf16 if x1.dtype == bf16 else int32)) and "
     "(zero_points2 is None or zero_points2.dtype == (bf16 if x1.dtype == bf16 else int32))"},
};
constexpr std::string_view static_notes[] = {
    "graph fusion makes it only where a row is a multiple of 32 bytes",
    "without scales2 the second result has no meaning",
};
constexpr NpuFacts static_facts{
    .group = "norm",
    .signature =
        "npu_add_rms_norm_quant(Tensor x1, Tensor x2, Tensor gamma, Tensor scales1, Tensor? "
        "zero_points1, Tensor? beta=None, Tensor? scales2=None, Tensor? zero_points2=None, *, int "
        "axis=-1, float epsilon=1e-06, bool div_mode=True, int? dst_type=None) -> (Tensor, Tensor, "
        "Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; no GE converter",
    .notes = static_notes,
    .limits = static_limits,
};

// gamma and beta may have an axis of 1 before theirs.
bool spans_last(const Type& x, const Type& g) {
  return g.rank() >= 1 && g.rank() <= 2 && g.dim(-1) == x.dim(-1) &&
         (g.rank() == 1 || g.dim(0).is(1));
}

std::vector<Type> rms_norm_quant_infer(const Args& args) {
  const Type& x = args.in(0);
  if (x.rank() < 1 || !is_float(x.dtype))
    args.fail(cat("needs floating-point rows, got ", x.str()));
  for (const int i : {1, 2})
    if (!spans_last(x, args.in(i)) || !is_float(args.in(i).dtype))
      args.fail(
          cat("needs gamma and beta of the last axis of ", x.str(), ", got ", args.in(i).str()));
  for (const int i : {3, 4})
    if (!args.in(i).numel().is(1))
      args.fail(cat("needs scale and offset of one element, got ", args.in(i).str()));
  return {quantised(args, x, quant_type(args, "dst_dtype", {"int8", "quint4x2", "int4"}))};
}

void rms_norm_quant_eval(const EvalArgs& a) {
  const QuantType& type = quant_type(a, "dst_dtype");
  const Tensor scale = to_dtype(a.in(3), DType::f32);
  const Tensor offset = to_dtype(a.in(4), DType::f32);
  Tensor gamma = to_dtype(a.in(1), DType::f32);
  gamma.shape = {gamma.numel()};
  gamma.strides = {1};
  Tensor beta = to_dtype(a.in(2), DType::f32);
  const RmsNorm norm{a.in(0), gamma, beta, static_cast<float>(a.f64("epsilon"))};
  rms_norm(norm, [&](std::int64_t i, std::vector<float>& y, float) {
    write_scaled(a.out(), i, y, scale, offset, false, type);
  });
}

constexpr Limit rms_norm_quant_limits[] = {
    {"rms_norm_quant.row", "x.shape[-1] * x.itemsize >= 32"},
    {"rms_norm_quant.dtype",
     "x.dtype in (fp16, bf16) and gamma.dtype == x.dtype and beta.dtype == x.dtype and scale.dtype "
     "== x.dtype and offset.dtype == int8"},
    {"rms_norm_quant.int4", "dst_dtype not in (16, 285) or x.shape[-1] % 8 == 0"},
    {"rms_norm_quant.empty", "x.numel > 0"},
};
constexpr NpuFacts rms_norm_quant_facts{
    .group = "norm",
    .signature =
        "npu_rms_norm_quant(Tensor x, Tensor gamma, Tensor beta, Tensor scale, Tensor offset, "
        "float epsilon=1e-06, *, int? dst_dtype=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; no GE converter",
    .limits = rms_norm_quant_limits,
};

}  // namespace

const OpDef npu_add_rms_norm_dynamic_quant{
    .name = "npu.npu_add_rms_norm_dynamic_quant",
    .schema =
        "(Tensor x1, Tensor x2, Tensor gamma, Tensor? smooth_scale1=None, "
        "Tensor? smooth_scale2=None, Tensor? beta=None, float epsilon=1e-06, "
        "int[]? output_mask=None, int? y_dtype=None) -> "
        "(Tensor y1, Tensor y2, Tensor x_out, Tensor scale1, Tensor scale2)",
    .doc =
        "x_out = x1 + x2; y = its RMS norm + beta; for each way v = y * smooth_scale, "
        "scale = max |v| of the row / 127 (int4: / 7), y = round(v / scale). Both ways with two "
        "smooth scales, or as output_mask says.",
    .infer = dynamic_infer,
    .eval = dynamic_eval,
    .cost = norm_cost,
    .npu = &dynamic_facts,
};

const OpDef npu_add_rms_norm_quant{
    .name = "npu.npu_add_rms_norm_quant",
    .schema =
        "(Tensor x1, Tensor x2, Tensor gamma, Tensor scales1, Tensor? zero_points1=None, "
        "Tensor? beta=None, Tensor? scales2=None, Tensor? zero_points2=None, int axis=-1, "
        "float epsilon=1e-06, bool div_mode=True, int? dst_type=None) -> "
        "(Tensor y1, Tensor y2, Tensor x)",
    .doc =
        "x = x1 + x2; y = its RMS norm + beta; y1 = round(y / scales1 + zero_points1) (times "
        "without div_mode), int8; y2 the same with the second ones.",
    .infer = static_infer,
    .eval = static_eval,
    .cost = norm_cost,
    .npu = &static_facts,
};

const OpDef npu_rms_norm_quant{
    .name = "npu.npu_rms_norm_quant",
    .schema =
        "(Tensor x, Tensor gamma, Tensor beta, Tensor scale, Tensor offset, float epsilon=1e-06, "
        "int? dst_dtype=None) -> Tensor",
    .doc = "round((x's RMS norm + beta) * scale + offset), int8, or int4 eight in an i32.",
    .infer = rms_norm_quant_infer,
    .eval = rms_norm_quant_eval,
    .cost = norm_cost,
    .npu = &rms_norm_quant_facts,
};

}  // namespace tk::ops

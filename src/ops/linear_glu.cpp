// A product with a weight and a gated unit in one, dense and in groups of rows: neutral operators
// for the CPU, whose kernels apply the gate before the product is stored.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"
#include "ops/ops.h"

namespace tk::ops {
namespace {

void need_act(const Args& args) {
  const std::string& act = args.text("act");
  if (act != "silu" && act != "gelu" && act != "gelu_tanh" && act != "clipped")
    args.fail(cat("needs act silu, gelu, gelu_tanh or clipped, got '", act, "'"));
}

Sym half_of(const Args& args, const Sym& columns) {
  const auto half = exact_div(columns, 2);
  if (!half) args.fail(cat("needs an even number of columns, got ", columns.str()));
  return *half;
}

std::vector<Type> linear_glu_infer(const Args& args) {
  need_act(args);
  Type y = aten_linear.infer(Args(aten_linear, args.inputs(), {}))[0];
  y.shape.back() = half_of(args, y.shape.back());
  return {y};
}

std::vector<Type> grouped_linear_glu_infer(const Args& args) {
  need_act(args);
  const Attrs attrs{{"split_item", Sym(3)}, {"group_type", Sym(0)}, {"group_list_type", Sym(1)}};
  Type y = npu_grouped_matmul.infer(Args(npu_grouped_matmul, args.inputs(), attrs))[0];
  y.shape.back() = half_of(args, y.shape.back());
  return {y};
}

// y = gate of the merged columns, which are f32 [.., 2F].
void apply_gate(const EvalArgs& a, const Tensor& merged) {
  const std::string& act = a.text("act");
  const bool interleaved = a.flag("interleaved");
  const auto limit = static_cast<float>(a.f64("limit"));
  const auto alpha = static_cast<float>(a.f64("alpha"));
  const auto offset = static_cast<float>(a.f64("up_offset"));
  const std::int64_t f = a.out().shape.back();
  std::vector<float> row(static_cast<std::size_t>(f));
  for (std::int64_t i = 0; i * f < a.out().numel(); ++i) {
    const float* m = merged.as<float>() + i * 2 * f;
    for (std::int64_t j = 0; j < f; ++j) {
      float g = m[interleaved ? 2 * j : j];
      float u = m[interleaved ? 2 * j + 1 : f + j];
      float& y = row[static_cast<std::size_t>(j)];
      if (act == "silu") {
        y = g * sigmoid(g) * u;
      } else if (act == "gelu") {
        y = gelu_erf(g) * u;
      } else if (act == "gelu_tanh") {
        y = gelu_tanh(g) * u;
      } else {
        g = std::min(g, limit);
        u = std::max(std::min(u, limit), -limit);
        y = g * sigmoid(alpha * g) * (u + offset);
      }
    }
    write_row(a.out(), i * f, 1, f, row.data());
  }
}

Tensor in_f32(const TensorView& t) {
  return t.data == nullptr ? Tensor() : to_dtype(t, DType::f32);
}

Tensor merged_like(const TensorView& out) {
  Dims shape = out.shape;
  shape[shape.size() - 1] *= 2;
  return Tensor::empty(DType::f32, shape);
}

void linear_glu_eval(const EvalArgs& a) {
  const Tensor x = in_f32(a.in(0));
  const Tensor w = in_f32(a.in(1));
  const Tensor bias = a.has(2) ? in_f32(a.in(2)) : Tensor();
  const Tensor merged = merged_like(a.out());
  const std::array<TensorView, 3> inputs{x, w, bias};
  const std::array<TensorView, 1> outputs{merged};
  aten_linear.eval(EvalArgs(aten_linear, inputs, outputs, {}, a.env()));
  apply_gate(a, merged);
}

void grouped_linear_glu_eval(const EvalArgs& a) {
  const Tensor x = in_f32(a.in(0));
  const Tensor w = in_f32(a.in(1));
  const Tensor bias = a.has(2) ? in_f32(a.in(2)) : Tensor();
  const Tensor merged = merged_like(a.out());
  const std::array<TensorView, 4> inputs{x, w, bias, a.in(3)};
  const std::array<TensorView, 1> outputs{merged};
  const Attrs attrs{{"split_item", Sym(3)}, {"group_type", Sym(0)}, {"group_list_type", Sym(1)}};
  npu_grouped_matmul.eval(EvalArgs(npu_grouped_matmul, inputs, outputs, attrs, a.env()));
  apply_gate(a, merged);
}

}  // namespace

const OpDef tk_linear_glu{
    .name = "tk.linear_glu",
    .schema =
        "(Tensor input, Tensor weight, Tensor? bias=None, str act=\"silu\", "
        "bool interleaved=False, float limit=7.0, float alpha=1.702, float up_offset=1.0) -> "
        "Tensor",
    .doc =
        "act(gate) * up, gate and up being the halves of input @ weight^T + bias, or its even "
        "and odd columns. act clipped: g * sigmoid(alpha * g) * (u + up_offset) with g = "
        "min(gate, limit), u = clamp(up, -limit, limit). Rounded once, at the end.",
    .infer = linear_glu_infer,
    .eval = linear_glu_eval,
};

const OpDef tk_grouped_linear_glu{
    .name = "tk.grouped_linear_glu",
    .schema =
        "(Tensor x, Tensor weight, Tensor? bias, Tensor group_list, str act=\"silu\", "
        "bool interleaved=False, float limit=7.0, float alpha=1.702, float up_offset=1.0) -> "
        "Tensor",
    .doc =
        "The same of rows in groups, as npu_grouped_matmul: weight [E, K, 2F], group_list the "
        "numbers of rows.",
    .infer = grouped_linear_glu_infer,
    .eval = grouped_linear_glu_eval,
};

}  // namespace tk::ops

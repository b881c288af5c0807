#include "moves/fuse/row_wise.h"

#include <algorithm>

namespace tk::fuse {
namespace {

constexpr std::string_view elementwise[] = {
    "aten.abs", "aten.add",  "aten.clamp", "aten.cos",  "aten.div",   "aten.exp",     "aten.gelu",
    "aten.mul", "aten.neg",  "aten.pow",   "aten.relu", "aten.rsqrt", "aten.sigmoid", "aten.silu",
    "aten.sin", "aten.sqrt", "aten.sub",   "aten.tanh", "aten.to",    "npu.npu_gelu"};
// Along a `dim`, which must not be the rows.
constexpr std::string_view along[] = {
    "aten.slice",   "aten.cat",       "aten.mean",     "aten.sum",
    "aten.softmax", "npu.npu_swiglu", "npu.npu_geglu", "npu.npu_clipped_swiglu"};
// Along trailing axes given by a weight: the first input has the rows.
constexpr std::string_view norms[] = {"npu.npu_rms_norm", "npu.npu_gemma_rms_norm",
                                      "npu.npu_add_rms_norm", "npu.npu_layer_norm_eval"};

template <typename List>
bool has(const List& list, std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool dims_avoid_rows(const Node& n) {
  const Args args = n.args();
  if (!args.has_attr("dim")) return false;
  const int rank = n.inputs[0]->type.rank();
  for (const Sym& d : args.syms("dim"))
    if (!d.is_const() || d.is(0) || d.is(-rank)) return false;
  return true;
}

}  // namespace

bool is_row_wise(const Node& n, const std::function<bool(const Value*)>& is_rows) {
  const std::string_view op = n.op->name;
  const Type& out = n.outputs[0]->type;
  if (out.rank() == 0) return false;
  // Inputs with rows have all of them, at the front; the others don't reach the first axis.
  auto fits = [&](const Value* v) {
    if (v == nullptr) return true;
    if (is_rows(v)) return v->type.rank() >= 1 && v->type.dim(0) == out.dim(0);
    return v->type.rank() < out.rank() || v->type.dim(0).is(1);
  };
  if (has(elementwise, op)) {
    return std::all_of(n.inputs.begin(), n.inputs.end(), [&](const Value* v) {
      return fits(v) && (v == nullptr || !is_rows(v) || v->type.rank() == out.rank());
    });
  }
  if (has(along, op))
    return dims_avoid_rows(n) && std::all_of(n.inputs.begin(), n.inputs.end(),
                                             [&](const Value* v) { return is_rows(v) && fits(v); });
  if (has(norms, op)) {
    const int spanned = op == "npu.npu_layer_norm_eval"
                            ? static_cast<int>(n.args().syms("normalized_shape").size())
                            : n.inputs.back()->type.rank();
    if (spanned >= n.inputs[0]->type.rank()) return false;
    return fits(n.inputs[0]) && is_rows(n.inputs[0]) && !is_rows(n.inputs.back());
  }
  if (op == "aten.linear")
    return is_rows(n.inputs[0]) && fits(n.inputs[0]) && n.inputs[0]->type.rank() >= 2 &&
           !is_rows(n.inputs[1]) && (n.in(2) == nullptr || !is_rows(n.inputs[2]));
  if (op == "aten.reshape") {
    const Type& in = n.inputs[0]->type;
    return is_rows(n.inputs[0]) && in.rank() >= 1 && in.dim(0) == out.dim(0);
  }
  return false;
}

}  // namespace tk::fuse

// Which class of the proof each operator falls in. An operator that is not listed mixes tokens
// until somebody shows that it does not.
#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "moves/flatten/locality.h"

namespace tk {
namespace {

using enum TokenRule;

// clang-format off
constexpr std::string_view elementwise_ops[] = {
    "abs", "add", "addcdiv", "addcmul", "atan", "bitwise_and", "bitwise_left_shift", "bitwise_not",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clamp", "clamp_max", "clamp_min",
    "clone", "complex", "conj", "contiguous", "copy", "cos", "cosh", "detach", "alias", "div",
    "dropout", "elu", "eq", "erf", "exp", "exp2", "expm1", "floor", "floor_divide", "fmod", "ge",
    "gelu", "gt", "hardsigmoid", "hardswish", "hardtanh", "imag", "isinf", "isnan", "le",
    "leaky_relu", "lerp", "lift_fresh_copy", "log", "log10", "log1p", "log2", "log_sigmoid",
    "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "masked_fill", "maximum",
    "minimum", "mish", "mul", "ne", "neg", "polar", "pow", "real", "reciprocal", "relu",
    "remainder", "round", "rsqrt", "rsub", "sigmoid", "sign", "silu", "sin", "sinh", "softplus",
    "sqrt", "square", "sub", "tan", "tanh", "to", "_to_copy", "trunc", "type_as", "where", "__and__",
    "__or__", "__xor__", "__lshift__", "__rshift__"};
constexpr std::string_view along_ops[] = {
    "all", "amax", "amin", "any", "argmax", "argmin", "chunk", "constant_pad_nd", "cumprod",
    "cumsum", "diff", "flip", "layer_norm", "linalg_vector_norm", "log_softmax", "logsumexp",
    "max", "mean", "min", "narrow", "native_layer_norm", "norm", "one_hot", "pad", "prod", "repeat",
    "repeat_interleave", "rms_norm", "roll", "select", "slice", "softmax", "_softmax", "split",
    "split_with_sizes", "std", "sum", "topk", "unbind", "var", "view_as_complex", "view_as_real"};
constexpr std::string_view reshape_ops[] = {"flatten", "reshape", "_unsafe_view", "squeeze",
                                            "unflatten", "unsqueeze", "view", "view_as"};
constexpr std::string_view permute_ops[] = {"movedim", "mT", "numpy_T", "permute", "t", "transpose"};
constexpr std::string_view create_ops[] = {
    "arange", "empty", "empty_like", "eye", "full", "full_like", "linspace", "new_empty",
    "new_full", "new_ones", "new_zeros", "ones", "ones_like", "scalar_tensor", "zeros",
    "zeros_like"};
// clang-format on

std::map<std::string, TokenRule, std::less<>> build() {
  std::map<std::string, TokenRule, std::less<>> rules{{"aten.expand", expand},
                                                      {"aten.expand_as", expand},
                                                      {"aten.cat", cat},
                                                      {"aten.linear", linear},
                                                      {"aten.matmul", matmul},
                                                      {"aten.bmm", matmul},
                                                      {"aten.mm", matmul},
                                                      {"aten._grouped_mm", grouped_matmul},
                                                      {"aten.einsum", einsum},
                                                      {"aten.index", index},
                                                      {"aten.embedding", embedding},
                                                      {"aten.index_select", index_select},
                                                      {"aten.index_put", index_put},
                                                      {"aten.index_add", index_add},
                                                      {"aten.scatter_add", index_add},
                                                      {"aten.gather", gather},
                                                      {"aten.scatter", gather},
                                                      {"aten.sort", sort},
                                                      {"aten.argsort", sort},
                                                      {"aten.histc", count},
                                                      {"aten.bincount", count},
                                                      {"tk.attention", attention}};
  const auto add_all = [&](auto& names, TokenRule rule) {
    for (std::string_view name : names) rules[tk::cat("aten.", name)] = rule;
  };
  add_all(elementwise_ops, elementwise);
  add_all(along_ops, along);
  add_all(reshape_ops, reshape);
  add_all(permute_ops, permute);
  add_all(create_ops, create);
  return rules;
}

}  // namespace

TokenRule token_rule(std::string_view op_name) {
  static const auto rules = build();
  auto it = rules.find(op_name);
  return it == rules.end() ? unknown : it->second;
}

std::vector<int> axis_order(const Node& node) {
  const int rank = node.in(0)->type.rank();
  const Args args = node.args();
  std::vector<int> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  const auto axis = [&](std::int64_t i) { return static_cast<int>(i < 0 ? i + rank : i); };
  const auto swap = [&](int a, int b) {
    std::swap(order[static_cast<std::size_t>(a)], order[static_cast<std::size_t>(b)]);
  };
  if (node.is("aten.transpose")) {
    swap(axis(args.i64("dim0")), axis(args.i64("dim1")));
  } else if (node.is("aten.permute")) {
    const auto dims = args.ints("dims");
    for (std::size_t i = 0; i < dims.size(); ++i) order[i] = axis(dims[i]);
  } else if (node.is("aten.movedim")) {
    const auto from = args.ints("source");
    const auto to = args.ints("destination");
    std::vector<int> rest;
    for (int i = 0; i < rank; ++i)
      if (std::none_of(from.begin(), from.end(), [&](auto f) { return axis(f) == i; }))
        rest.push_back(i);
    std::vector<int> placed(static_cast<std::size_t>(rank), -1);
    for (std::size_t i = 0; i < from.size(); ++i)
      placed[static_cast<std::size_t>(axis(to[i]))] = axis(from[i]);
    std::size_t next = 0;
    for (int i = 0; i < rank; ++i)
      order[static_cast<std::size_t>(i)] = placed[static_cast<std::size_t>(i)] >= 0
                                               ? placed[static_cast<std::size_t>(i)]
                                               : rest[next++];
  } else if (node.is("aten.numpy_T")) {
    std::reverse(order.begin(), order.end());
  } else if (rank >= 2) {  // t, mT
    swap(rank - 2, rank - 1);
  }
  return order;
}

std::vector<int> axes_of(const Node& node) {
  const Schema& schema = node.op->parsed();
  const Args args = node.args();
  const int rank = node.in(0)->type.rank();
  std::vector<int> axes;
  const auto add = [&](std::int64_t axis) {
    axes.push_back(static_cast<int>(axis < 0 ? axis + rank : axis));
  };
  const auto last = [&](int n) {
    for (int i = rank - n; i < rank; ++i) axes.push_back(i);
  };
  const std::string_view name = node.op->name;
  if (name == "aten.layer_norm" || name == "aten.native_layer_norm" || name == "aten.rms_norm") {
    last(static_cast<int>(args.syms("normalized_shape").size()));
  } else if (name == "aten.pad" || name == "aten.constant_pad_nd") {
    last(static_cast<int>(args.syms("pad").size() / 2));
  } else if (name == "aten.view_as_complex") {
    last(1);
  } else if (name == "aten.one_hot" || name == "aten.view_as_real") {
    // a new last axis: nothing is mixed
  } else if (name == "aten.repeat") {
    const SymDims repeats = args.syms("repeats");
    for (int i = 0; i < rank; ++i) {
      const Sym& times = repeats[repeats.size() - static_cast<std::size_t>(rank - i)];
      if (!times.is(1)) add(i);
    }
  } else {
    const char* key = schema.find_attr("dim") != nullptr    ? "dim"
                      : schema.find_attr("dims") != nullptr ? "dims"
                                                            : nullptr;
    if (key == nullptr || !args.has_attr(key)) {
      last(rank);
    } else {
      for (std::int64_t axis : args.ints(key)) add(axis);
      if (axes.empty()) last(rank);
    }
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

}  // namespace tk

#include "npu/kernel_types.h"

#include <cctype>
#include <utility>

#include "npu/shard.h"

namespace tk {
namespace {

// Where the kernel is not called after the operator.
constexpr std::pair<std::string_view, std::string_view> names[] = {
    {"aten.linear", "MatMulV2"},
    {"aten.matmul", "MatMulV2"},
    {"aten.mm", "MatMulV2"},
    {"aten.addmm", "MatMulV2"},
    {"aten.bmm", "BatchMatMulV2"},
    {"aten.embedding", "GatherV2"},
    {"aten.index_select", "GatherV2"},
    {"aten.to", "Cast"},
    {"aten.cat", "ConcatD"},
    {"aten.full", "Fill"},
    {"tk.cache_write", "IndexPutV2"},  // rows of a flat view of the cache
    {"npu.npu_fused_infer_attention_score_v2", "FusedInferAttentionScore"},
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

std::string kernel_type(std::string_view op) {
  for (const auto& [from, to] : names)
    if (from == op) return std::string(to);
  op.remove_prefix(op.find('.') + 1);
  if (op.starts_with("npu_")) op.remove_prefix(4);
  std::string out;
  bool start = true;
  for (const char c : op) {
    if (c == '_') {
      start = true;
      continue;
    }
    out += start ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    start = false;
  }
  return out;
}

Family family_of(const Node& node, const Cost& cost) {
  const std::string_view op = node.op->name;
  if (is_grouped(node)) return Family::grouped_matmul;
  if (is_attention(node)) return Family::attention;
  if (cost.cube > 0) return Family::matmul;
  if (has(op, "cache")) return Family::cache;
  if (has(op, "norm")) return Family::norm;
  if (has(op, "rope") || has(op, "rotary")) return Family::rope;
  if (has(op, "routing") || has(op, "top_k") || has(op, "topk") || has(op, "sort"))
    return Family::routing;
  if (has(op, "embedding") || has(op, "index") || has(op, "gather") || has(op, "scatter"))
    return Family::gather;
  if (has(op, "quant")) return Family::quant;
  return Family::pointwise;
}

double vector_passes(std::string_view op) {
  op.remove_prefix(op.find('.') + 1);
  // An exponential, with what divides by its sum: as of the fused activations (8) and softmax (5).
  for (const std::string_view name : {"silu", "gelu", "softplus", "mish"})
    if (op == name) return 8;
  for (const std::string_view name : {"softmax", "log_softmax"})
    if (op == name) return 5;
  for (const std::string_view name : {"exp", "log", "sin", "cos", "tanh", "sigmoid", "rsqrt",
                                      "sqrt", "pow", "erf", "reciprocal", "div"})
    if (op == name) return 4;
  return 1;
}

bool reduces(std::string_view op) {
  op.remove_prefix(op.find('.') + 1);
  for (const std::string_view name :
       {"sum", "mean", "amax", "amin", "max", "min", "argmax", "prod", "any", "all", "var"})
    if (op == name) return true;
  return false;
}

std::string_view profiler_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "FLOAT";
    case DType::f16:
      return "FLOAT16";
    case DType::bf16:
      return "DT_BF16";
    case DType::f64:
      return "DOUBLE";
    case DType::i64:
      return "INT64";
    case DType::i32:
      return "INT32";
    case DType::i16:
      return "INT16";
    case DType::i8:
      return "INT8";
    case DType::u8:
      return "UINT8";
    case DType::boolean:
      return "BOOL";
    case DType::c64:
      return "COMPLEX64";
  }
  return "";
}

}  // namespace tk

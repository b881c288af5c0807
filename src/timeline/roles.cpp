#include "timeline/roles.h"

#include <array>
#include <string>

namespace tk {

namespace {

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

struct Pattern {
  std::string_view part;  // lower case, anywhere in the type
  Role role;
};

// First match wins, so that fused kernels go by what dominates them.
constexpr Pattern patterns[] = {
    {"attentionupdate", Role::other},
    {"metadata", Role::other},  // of sparse attention and indexers
    {"attnres", Role::other},   // mixes the residual streams of earlier blocks
    {"compressepilog", Role::cache_write},
    {"lightningindexer", Role::indexer},
    {"indexer", Role::indexer},
    {"mlaprolog", Role::prolog},
    {"mlapreprocess", Role::prolog},
    {"mla_preprocess", Role::prolog},
    {"kvrmsnormropecache", Role::cache_write},
    {"gateddelta", Role::linear_attention},
    {"gated_delta", Role::linear_attention},
    {"causalconv1d", Role::linear_attention},
    {"causal_conv1d", Role::linear_attention},
    {"recurrent", Role::linear_attention},
    {"selectivescan", Role::linear_attention},
    {"selective_scan", Role::linear_attention},
    {"linearattention", Role::linear_attention},
    {"lightningattention", Role::linear_attention},
    {"mamba", Role::linear_attention},
    {"selectivestate", Role::linear_attention},
    {"selective_state", Role::linear_attention},
    {"deltarule", Role::linear_attention},
    {"delta_rule", Role::linear_attention},
    {"flashkda", Role::linear_attention},
    {"flash_kda", Role::linear_attention},
    {"rwkv", Role::linear_attention},
    {"retention", Role::linear_attention},
    {"chunk_fwd", Role::linear_attention},
    {"attention", Role::attention},
    {"flashmla", Role::attention},
    {"flash_mla", Role::attention},
    {"sharedkv", Role::attention},
    {"hstu", Role::attention},
    {"flashattn", Role::attention},
    {"flash_attn", Role::attention},
    {"multilatent", Role::attention},
    {"unpadmla", Role::attention},
    {"ringmla", Role::attention},
    {"mlapa", Role::attention},
    {"reshapeandcache", Role::cache_write},
    {"reshape_and_cache", Role::cache_write},
    {"kvcache", Role::cache_write},
    {"kv_cache", Role::cache_write},
    {"scatterpakv", Role::cache_write},
    {"ropequantkv", Role::cache_write},
    {"dispatchffncombine", Role::grouped_matmul},
    {"dispatchgmmcombine", Role::grouped_matmul},
    {"moedistributedispatch", Role::dispatch},
    {"moedistributecombine", Role::combine},
    {"moeinitrouting", Role::dispatch},
    {"moefinalizerouting", Role::combine},
    {"moererouting", Role::dispatch},
    {"moetokenpermute", Role::dispatch},
    {"moetokenunpermute", Role::combine},
    {"moecomputeexpert", Role::dispatch},
    {"dispatch", Role::dispatch},
    {"combine", Role::combine},
    {"groupedmatmul", Role::grouped_matmul},
    {"groupmatmul", Role::grouped_matmul},
    {"grouped_matmul", Role::grouped_matmul},
    {"moegating", Role::gate},
    {"gatingtopk", Role::gate},
    {"topktopp", Role::sampling},
    {"topkv", Role::gate},
    {"topk", Role::gate},
    {"argmax", Role::sampling},
    {"multinomial", Role::sampling},
    {"sampling", Role::sampling},
    {"rotary", Role::rope},
    {"rope", Role::rope},
    {"qkvrmsnorm", Role::prolog},
    {"qkvnorm", Role::prolog},
    {"normrope", Role::rope},
    {"rmsnorm", Role::norm},
    {"rms_norm", Role::norm},
    {"layernorm", Role::norm},
    {"layer_norm", Role::norm},
    {"addnorm", Role::norm},
    {"groupnorm", Role::norm},
    {"l2norm", Role::norm},
    {"matmul", Role::matmul},
    {"linear", Role::matmul},
    {"gemm", Role::matmul},
    {"swiglu", Role::activation},
    {"swish", Role::activation},
    {"silu", Role::activation},
    {"gelu", Role::activation},
    {"geglu", Role::activation},
    {"relu", Role::activation},
    {"sigmoid", Role::activation},
    {"dynamicquant", Role::quant},
    {"ascendquant", Role::quant},
    {"antiquant", Role::quant},
    {"dequant", Role::quant},
    {"quant", Role::quant},
    {"hcom", Role::communication},
    {"hccl", Role::communication},
    {"allreduce", Role::communication},
    {"allgather", Role::communication},
    {"reducescatter", Role::communication},
    {"alltoall", Role::communication},
    {"softmax", Role::elementwise},
    {"attn", Role::attention},  // kernels of a project's own: flex_flash_attn, PagedAttnFwd
};

struct Family {
  std::string_view part, family, kind;
};
constexpr Family families[] = {
    {"transdata", "transdata", "layout"},
    {"transpose", "transpose", "layout"},
    {"permute", "transpose", "layout"},
    {"formatcast", "transdata", "layout"},
    {"cast", "cast", "layout"},
    {"scatterpakv", "cache_write", "cache_update"},
    {"reshapeandcache", "cache_write", "cache_update"},
    {"kvcache", "cache_write", "cache_update"},
    {"scatter", "scatter", "cache_update"},
    {"slice", "slice", "shape"},
    {"split", "split", "shape"},
    {"concat", "concat", "shape"},
    {"pack", "concat", "shape"},
    {"gather", "gather", "indexing"},
    {"index", "gather", "indexing"},
    {"embedding", "gather", "indexing"},
    {"broadcast", "broadcast", "shape"},
    {"expand", "broadcast", "shape"},
    {"tile", "broadcast", "shape"},
    {"fill", "fill", "shape"},
    {"zeroslike", "fill", "shape"},
    {"oneslike", "fill", "shape"},
    {"memset", "fill", "shape"},
    {"reshape", "reshape", "shape"},
    {"squeeze", "reshape", "shape"},
    {"view", "copy", "layout"},
    {"contiguous", "copy", "layout"},
    {"tensormove", "copy", "layout"},
    {"copy", "copy", "layout"},
    {"identity", "copy", "layout"},
    {"asstrided", "copy", "layout"},
    {"pad", "pad", "shape"},
    {"repeat", "broadcast", "shape"},
};

constexpr std::string_view names[] = {
    "attention", "linear attention", "indexer", "qkv prolog",     "cache write", "rope",  "norm",
    "gate",      "dispatch",         "combine", "grouped matmul", "activation",  "quant", "matmul",
    "comm",      "sampling",         "move",    "elementwise",    "other"};
constexpr std::string_view texts[] = {"attention over the cache or the sequence",
                                      "recurrent or convolutional mixing of tokens",
                                      "choice of the keys that sparse attention reads",
                                      "fused projections, norm and rope before attention",
                                      "write of keys and values (or the latent) to the cache",
                                      "rotary position embedding",
                                      "RMSNorm or LayerNorm, with what is fused into it",
                                      "expert choice",
                                      "tokens to experts",
                                      "experts' results back to tokens",
                                      "matrix multiplications of all experts",
                                      "activation, with what is fused into it",
                                      "quantisation or dequantisation on its own",
                                      "matrix multiplication",
                                      "collective communication",
                                      "choice of the next token",
                                      "data movement: cast, transpose, slice, copy",
                                      "element by element",
                                      "anything else"};

}  // namespace

std::string_view role_name(Role role) { return names[static_cast<std::size_t>(role)]; }
std::string_view role_text(Role role) { return texts[static_cast<std::size_t>(role)]; }

bool is_backward(std::string_view type) {
  const std::string t = lower(type);
  return t.find("grad") != t.npos || t.find("backprop") != t.npos ||
         t.find("applyadam") != t.npos || t.find("backward") != t.npos ||
         t.find("optimizer") != t.npos;
}

std::string_view movement_family(std::string_view type) {
  const std::string t = lower(type);
  if (t.find("matmul") != t.npos || t.find("norm") != t.npos || t.find("quant") != t.npos)
    return {};
  for (const Family& f : families)
    if (t.find(f.part) != t.npos) return f.family;
  return {};
}

std::string_view movement_kind(std::string_view family) {
  for (const Family& f : families)
    if (f.family == family) return f.kind;
  return "unknown";
}

Role role_of(std::string_view type, std::string_view name, Core core) {
  if (core == Core::communication) return Role::communication;
  std::string t = lower(type);
  if (t == "automaticbufferfusionop" || t.starts_with("superkernel") || t.starts_with("aivkernel"))
    t = lower(name);
  for (const Pattern& p : patterns)
    if (t.find(p.part) != t.npos) return p.role;
  if (!movement_family(t).empty()) return Role::move;
  constexpr std::string_view elementwise[] = {
      "add",   "sub",     "mul",  "div",    "exp",    "log",   "sqrt",    "pow",   "neg",
      "abs",   "greater", "less", "equal",  "select", "where", "logical", "clamp", "min",
      "max",   "cos",     "sin",  "reduce", "mean",   "sum",   "square",  "tanh",  "erf",
      "round", "floor",   "mask", "cumsum", "sort",   "range", "arange"};
  for (std::string_view e : elementwise)
    if (t.find(e) != t.npos) return Role::elementwise;
  return Role::other;
}

std::vector<Role> roles_of(const Timeline& t) {
  std::vector<Role> out(t.strings.size(), Role::other);
  std::vector<bool> done(t.strings.size());
  for (const Kernel& k : t.kernels) {
    if (done[k.type]) continue;
    done[k.type] = true;
    out[k.type] = role_of(t.text(k.type), t.text(k.name), k.core);
  }
  return out;
}

}  // namespace tk

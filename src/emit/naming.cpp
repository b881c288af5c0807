#include "emit/naming.h"

#include <map>

#include "emit/shape_up.h"

namespace tk::emit {
namespace {

// Results by operator, in the order of the outputs.
const std::map<std::string_view, std::vector<std::string>>& results() {
  static const std::map<std::string_view, std::vector<std::string>> all = {
      {"emit.residual_norm", {"hidden_states", "residual"}},
      {"emit.none", {"residual"}},
      {"aten.cos", {"cos"}},
      {"aten.sin", {"sin"}},
      {"aten.topk", {"topk_weights", "topk_ids"}},
      {"aten.sort", {"sorted_ids", "order"}},
      {"aten.triu", {"attention_mask"}},
      {"tk.paged_attention", {"attn_output"}},
      {"tk.mla_paged_attention", {"attn_output"}},
      {"npu.npu_fused_infer_attention_score", {"attn_output", "softmax_lse"}},
      {"npu.npu_fused_infer_attention_score_v2", {"attn_output", "softmax_lse"}},
      {"npu.npu_apply_rotary_pos_emb", {"query", "key"}},
      {"npu.npu_mla_prolog_v3", {"query", "query_rope"}},
      {"npu.npu_kv_rmsnorm_rope_cache", {"x", "x", "key_rope", "latent"}},
      {"npu.npu_moe_gating_top_k", {"topk_weights", "topk_ids", "gate_output"}},
      {"npu.npu_moe_gating_top_k_softmax", {"topk_weights", "topk_ids", "row_ids"}},
      {"npu.npu_moe_gating_top_k_softmax_v2", {"topk_weights", "topk_ids", "row_ids"}},
      {"npu.npu_moe_init_routing", {"expanded_x", "expanded_row_idx", "expanded_expert_idx"}},
      {"npu.npu_moe_init_routing_v2",
       {"expanded_x", "expanded_row_idx", "expert_tokens", "expanded_scale"}},
      {"npu.npu_grouped_matmul", {"expert_output"}},
      {"npu.npu_dynamic_quant", {"quantized", "scale"}},
  };
  return all;
}

// Names that a reader gives to what it takes.
std::string name_from_use(const Value& v) {
  static const std::map<std::pair<std::string_view, int>, std::string> all = {
      {{"emit.residual_norm", 1}, "residual"},     {{"npu.npu_rotary_mul", 1}, "cos"},
      {{"npu.npu_rotary_mul", 2}, "sin"},          {{"npu.npu_interleave_rope", 1}, "cos"},
      {{"npu.npu_interleave_rope", 2}, "sin"},     {{"npu.npu_apply_rotary_pos_emb", 2}, "cos"},
      {{"npu.npu_apply_rotary_pos_emb", 3}, "sin"}};
  for (const Use& use : v.uses) {
    if (use.node == nullptr) continue;
    const auto it = all.find({use.node->op->name, use.index});
    if (it != all.end()) return it->second;
  }
  return "";
}

// "query" of "model.layers.0.self_attn.q_proj"; "" when the module says nothing.
std::string name_from_module(const std::string& module) {
  std::string leaf = module.substr(module.rfind('.') + 1);
  if (leaf.ends_with("_proj")) leaf.resize(leaf.size() - 5);
  if (leaf == "q") return "query";
  if (leaf == "k") return "key";
  if (leaf == "v") return "value";
  if (leaf == "o" || leaf == "down") return "";
  if (leaf == "gate" || leaf == "up" || leaf == "router" || leaf == "qkv" || leaf == "gate_up")
    return leaf;
  if (leaf.starts_with("q_norm") || leaf.starts_with("q_b")) return "query";
  if (leaf.starts_with("k_norm")) return "key";
  if (leaf.starts_with("q_a")) return "q_latent";
  if (leaf.starts_with("kv_a_proj")) return "latent_kv";
  if (leaf.starts_with("kv_a")) return "latent";
  if (leaf == "lm_head") return "logits";
  return "";
}

bool is_stream(const Phase& phase, const Value& v) {
  return v.type.rank() == 2 && is_float(v.type.dtype) && v.type.dim(1) == phase.hidden_size &&
         !v.type.dim(0).is_const();
}

std::string name_of(const Phase& phase, const Value& v, int depth) {
  if (v.kind == ValueKind::input) return v.name;
  if (v.kind != ValueKind::node) return "weight";
  const Node& n = *v.node;
  const auto known = results().find(n.op->name);
  if (known != results().end() && static_cast<std::size_t>(v.index) < known->second.size()) {
    const std::string used = name_from_use(v);
    return used == "residual" ? used : known->second[static_cast<std::size_t>(v.index)];
  }
  if (const std::string used = name_from_use(v); !used.empty()) return used;
  if (n.is("aten.split") && depth < 16) {  // a part has the module that it was made for
    const std::string named = name_from_module(v.name);
    return named.empty() ? name_of(phase, *n.in(0), depth + 1) : named;
  }
  if (n.is("aten.linear") && phase.regions.role(n.in(1)) == Role::folded)
    if (const auto it = phase.folded.find(n.in(1)); it != phase.folded.end()) {
      const std::size_t end = it->second.find("_proj_weight");
      if (end != std::string::npos) return it->second.substr(0, end);
    }
  if (n.loc != nullptr)
    if (const std::string named = name_from_module(n.loc->module); !named.empty()) return named;
  if (is_stream(phase, v)) return "hidden_states";
  for (const Value* in : n.inputs)  // "slot_mapping" in another type
    if (in != nullptr && in->kind == ValueKind::input && phase.regions.role(in) == Role::step)
      return in->name;
  const bool passes_on = is_plain_view(n) || is_light(n) || n.is("aten.cat") || n.is("aten.split");
  if ((passes_on || n.op->name.starts_with("npu.")) && depth < 16)
    for (const Value* in : n.inputs)
      if (in != nullptr && phase.regions.role(in) == Role::plain) {
        std::string name = name_of(phase, *in, depth + 1);
        if (name == "position_ids" || name == "input_ids") return "x";
        return name;
      }
  return "x";
}

}  // namespace

std::string name_of_value(const Phase& phase, const Value& v) { return name_of(phase, v, 0); }

}  // namespace tk::emit

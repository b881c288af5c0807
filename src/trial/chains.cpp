#include "trial/chains.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_set>

#include "graph/rewrite.h"

namespace tk {
namespace {

bool is_any(const Node& n, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), n.op->name) != names.end();
}

bool is_core(const Node& n) {
  return is_any(n, {"tk.paged_attention", "tk.mla_paged_attention", "tk.attention",
                    "npu.npu_fused_infer_attention_score_v2"});
}
bool is_write(const Node& n) {
  return is_any(n, {"tk.cache_write", "npu.npu_scatter_nd_update_", "npu.npu_scatter_pa_kv_cache"});
}
bool is_product(const Node& n) {
  return is_any(n, {"aten.linear", "aten.matmul", "aten.mm", "aten.bmm", "aten.addmm"});
}
bool is_norm(const Node& n) {
  return is_any(n, {"npu.npu_rms_norm", "npu.npu_add_rms_norm", "npu.npu_gemma_rms_norm",
                    "npu.npu_layer_norm_eval", "aten.rms_norm", "aten.layer_norm", "aten.rsqrt"});
}
bool is_experts(const Node& n) {
  return is_any(n, {"npu.npu_grouped_matmul", "aten._grouped_mm", "tk.grouped_linear_glu",
                    "transformers.grouped_mm_fallback", "npu.npu_moe_init_routing_v2",
                    "npu.npu_moe_finalize_routing"});
}

// "model.layers.3.self_attn.q_proj" -> "model.layers.3.self_attn": the part of its block.
std::string part_of_block(const std::string& module) {
  std::size_t start = 0;
  while (start < module.size()) {
    const std::size_t end = std::min(module.find('.', start), module.size());
    const std::string_view piece = std::string_view(module).substr(start, end - start);
    const bool number =
        !piece.empty() && piece.find_first_not_of("0123456789") == std::string_view::npos;
    if (number) {
      const std::size_t next = end < module.size() ? module.find('.', end + 1) : end;
      return module.substr(0, std::min(next, module.size()));
    }
    start = end + 1;
  }
  return module.substr(0, module.find('.', module.find('.') + 1));
}

std::string module_of(const Node& n) { return n.loc != nullptr ? n.loc->module : ""; }

struct Part {
  bool core = false, experts = false, product = false, norm = false, embedding = false;
};

std::string component_of(const Part& p) {
  if (p.core) return "attention";
  if (p.experts) return "moe";
  if (p.embedding) return "embedding";
  if (p.product) return "ffn";
  if (p.norm) return "norm";
  return "other";
}

class Decomposition {
 public:
  explicit Decomposition(const Graph& graph) : graph_(graph) { find_parts(); }

  std::unordered_map<const Node*, ChainOf> run() {
    std::unordered_map<const Node*, ChainOf> chains;
    for (const Node* n : compute_) chains.emplace(n, chain(*n));
    return chains;
  }

 private:
  void find_parts() {
    std::unordered_set<const Value*> once;
    for (const auto& w : graph_.weights()) once.insert(w.get());
    for (const Node* n : nodes(graph_)) {
      const bool known = n->op->updates.empty() &&
                         std::all_of(n->inputs.begin(), n->inputs.end(),
                                     [&](Value* v) { return v == nullptr || once.count(v) != 0; });
      if (known)
        for (const auto& v : n->outputs) once.insert(v.get());
      if (known || n->op->view != nullptr) continue;
      compute_.push_back(n);
      Part& p = parts_[part_of_block(module_of(*n))];
      p.core |= is_core(*n);
      p.experts |= is_experts(*n);
      p.product |= is_product(*n);
      p.norm |= is_norm(*n);
      p.embedding |= n->is("aten.embedding");
      if (is_core(*n)) after(n, &behind_core_);
      if (n->is("npu.npu_moe_init_routing_v2") || n->is("aten.sort")) after(n, &behind_routing_);
    }
    for (const auto& v : graph_.inputs())
      if (v->name == "position_ids") positions(v.get());
  }

  // Everything that depends on a result of the node, in its part of the block.
  void after(const Node* n, std::unordered_set<const Node*>* set) const {
    const std::string part = part_of_block(module_of(*n));
    std::vector<const Node*> open{n};
    while (!open.empty()) {
      const Node* m = open.back();
      open.pop_back();
      for (const auto& v : m->outputs)
        for (const Use& u : v->uses)
          if (u.node != nullptr && part_of_block(module_of(*u.node)) == part &&
              set->insert(u.node).second)
            open.push_back(u.node);
    }
  }

  // What positions alone decide: the tables of the rotary embedding.
  void positions(const Value* input) {
    std::unordered_set<const Value*> known{input};
    for (const Node* n : nodes(graph_)) {
      bool any = false;
      bool all = true;
      for (const Value* v : n->inputs) {
        if (v == nullptr) continue;
        any |= known.count(v) != 0;
        all &= known.count(v) != 0 || v->kind == ValueKind::weight ||
               (v->node != nullptr && v->node->inputs.empty());
      }
      if (!any || !all) continue;
      tables_.insert(n);
      for (const auto& v : n->outputs) known.insert(v.get());
    }
  }

  bool is_table(const Value* v) const {
    while (v != nullptr && v->node != nullptr) {
      if (tables_.count(v->node) != 0) return true;
      if (v->node->op->view == nullptr && !v->node->is("aten.to")) return false;
      v = v->node->in(0);
    }
    return false;
  }

  ChainOf chain(const Node& n) const {
    const std::string module = module_of(n);
    const std::string part = part_of_block(module);
    if (tables_.count(&n) != 0) return {"attention", "rope table"};
    if (module.empty() || parts_.count(part) == 0) return {"other", "unassigned"};
    const std::string component = component_of(parts_.at(part));
    if (component == "attention") return {component, attention_role(n)};
    if (component == "moe") return {component, moe_role(n)};
    if (component == "ffn") return head_or_ffn(n);
    if (component == "norm" || component == "other")
      if (is_add(n)) return {"norm", "residual"};
    if (component == "norm") return {component, "norm"};
    return {component, component == "other" ? std::string("unassigned") : component};
  }

  static bool is_add(const Node& n) { return n.is("aten.add") && n.in(1) != nullptr; }

  std::string attention_role(const Node& n) const {
    if (is_core(n)) return "core";
    if (is_write(n)) return "cache write";
    if (n.is("npu.npu_transpose_batchmatmul")) return "absorb";
    if (is_product(n)) return behind_core_.count(&n) != 0 ? "output projection" : "projection";
    if (is_norm(n)) return "head norm";
    const bool rotary = n.op->name.find("rotary") != std::string_view::npos ||
                        n.op->name.find("rope") != std::string_view::npos;
    if (rotary) return "rope";
    for (const Value* v : n.inputs)
      if (is_table(v)) return "rope";
    for (const auto& v : n.outputs)  // the halves that a rotation swaps
      for (const Use& u : v->uses)
        if (u.node != nullptr && u.node->is("aten.mul") &&
            (is_table(u.node->in(0)) || is_table(u.node->in(1))))
          return "rope";
    return behind_core_.count(&n) != 0 ? "output projection" : "projection";
  }

  std::string moe_role(const Node& n) const {
    if (n.is("npu.npu_moe_init_routing_v2")) return "routing";
    if (n.is("npu.npu_moe_finalize_routing")) return "combine";
    if (is_experts(n)) return "experts";
    if (n.op->name.find("gating") != std::string_view::npos) return "gate";
    if (behind_routing_.count(&n) != 0) return "experts";
    const bool gate = is_any(n, {"aten.softmax", "aten.topk", "aten.sigmoid"}) ||
                      class_of_module(module_of(n)).find("gate") != std::string::npos ||
                      class_of_module(module_of(n)).find("router") != std::string::npos;
    return gate ? "gate" : "shared expert";
  }

  ChainOf head_or_ffn(const Node& n) const {
    const std::string module = module_of(n);
    if (module == class_of_module(module)) return {"head", "head"};  // outside of the blocks
    if (is_product(n)) return {"ffn", "projection"};
    return {"ffn", is_add(n) ? "residual" : "activation"};
  }

  const Graph& graph_;
  std::vector<const Node*> compute_;
  std::map<std::string, Part> parts_;
  std::unordered_set<const Node*> behind_core_, behind_routing_, tables_;
};

struct SiteRoles {
  std::string_view id;
  std::array<std::string_view, 4> roles;
};
// What the sites replace that a decomposition can show.
constexpr SiteRoles site_roles[] = {
    {"FS-N01", {"norm", "head norm"}},
    {"FS-N02", {"norm", "residual"}},
    {"FS-N06", {"norm"}},
    {"FS-N09", {"norm"}},
    {"FS-R01", {"rope"}},
    {"FS-R02", {"rope"}},
    {"FS-R03", {"rope"}},
    {"FS-C01", {"cache write"}},
    {"FS-C02", {"cache write"}},
    {"FS-C04", {"head norm", "rope", "cache write"}},
    {"FS-A01", {"core"}},
    {"FS-A02", {"core"}},
    {"FS-A05", {"core", "absorb"}},
    {"FS-A06", {"core"}},
    {"FS-A07", {"projection", "head norm", "rope", "cache write"}},
    {"FS-A08", {"absorb"}},
    {"FS-M01", {"gate"}},
    {"FS-M02", {"gate"}},
    {"FS-M04", {"routing", "experts", "combine"}},
    {"FS-M05", {"routing", "experts", "combine"}},
    {"FS-M06", {"routing", "experts", "combine"}},
    {"FS-F01", {"activation"}},
    {"FS-F05", {"activation"}},
    {"FS-F06", {"activation"}},
    {"FS-L07", {"projection"}},
};

}  // namespace

std::unordered_map<const Node*, ChainOf> chains_of(const Graph& graph) {
  return Decomposition(graph).run();
}

std::vector<std::string> roles_of_site(std::string_view id) {
  std::vector<std::string> roles;
  for (const SiteRoles& s : site_roles)
    if (s.id == id)
      for (const std::string_view r : s.roles)
        if (!r.empty()) roles.emplace_back(r);
  return roles;
}

}  // namespace tk

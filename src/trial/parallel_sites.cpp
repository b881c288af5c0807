#include "trial/parallel_sites.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "graph/limits.h"
#include "graph/rewrite.h"
#include "moves/fuse/sites.h"

namespace tk {
namespace {

struct Routed {
  std::string place;
  std::int64_t sites = 0, experts = 0, per_token = 0;
  Sym hidden;
  DType dtype = DType::bf16;
};

// The experts of the model, those of one place in the block together.
std::vector<Routed> routed_of(const Graph& graph) {
  std::vector<Routed> all;
  for (const Node* n : nodes(graph)) {
    if (!n->is("npu.npu_moe_init_routing_v2")) continue;
    const std::string place = class_of_module(n->loc != nullptr ? n->loc->module : "");
    auto it =
        std::find_if(all.begin(), all.end(), [&](const Routed& r) { return r.place == place; });
    if (it == all.end()) {
      const Args a = n->args();
      const Sym k = a.in(1).dim(1);
      all.push_back({place, 0, a.i64("expert_num"), k.is_const() ? k.value() : 0, a.in(0).dim(1),
                     a.in(0).dtype});
      it = all.end() - 1;
    }
    ++it->sites;
  }
  return all;
}

// How the ranks are used by a call: what its limits call phase and world.
using Facts = std::map<std::string, Attr, std::less<>>;
Facts facts_of(const std::string& phase, std::int64_t world) {
  return {{"phase", phase}, {"world", Sym(world)}};
}

// The verdict of one call that is made up for it.
Verdict judge_call(std::string_view op_name,
                   const std::vector<std::pair<std::string, Type>>& inputs, Attrs attrs,
                   std::string_view site, Target target, const Facts& facts) {
  const OpDef* op = find_op(op_name);
  if (op == nullptr)
    return {VerdictKind::pending, cat("unknown operator ", op_name), "undocumented", {}};
  Graph graph;
  std::vector<Value*> values(op->parsed().tensors.size(), nullptr);
  for (const auto& [name, type] : inputs) {
    const int i = op->parsed().tensor_index(name);
    TK_CHECK(i >= 0, op_name, " has no tensor ", name);
    values[static_cast<std::size_t>(i)] = graph.add_input(name, type);
  }
  Verdict verdict;
  try {
    judge_limits(*graph.insert(nullptr, *op, values, std::move(attrs), nullptr), target, &verdict,
                 facts);
  } catch (const UserError& e) {
    return {VerdictKind::not_adaptable, e.message(), "types", {}};
  }
  const FusionSite* tree = find_fusion_site(site);
  if (tree != nullptr) settle(*tree, target, &verdict);
  if (verdict.ok()) {
    verdict.kind = VerdictKind::adaptable_after;
    verdict.constraint =
        tree != nullptr && has_word(tree->needs, "P-TP-GROUP") ? "P-TP-GROUP" : "P-EP-GROUP";
    verdict.reason = "needs the group and the sharded weights first";
  }
  return verdict;
}

SiteVerdict site(std::string id, std::string op, const std::string& phase, const Routed& r,
                 Verdict verdict) {
  SiteVerdict s;
  s.id = std::move(id);
  s.operators = std::move(op);
  s.phase = phase;
  s.place = r.place;
  s.sites = r.sites;
  s.verdict = std::move(verdict);
  return s;
}

void expert_parallel(const Routed& r, const std::string& phase, const Scenario& sc,
                     std::vector<SiteVerdict>* out) {
  const bool decode = phase == "decode";
  const Sym tokens = decode ? Sym(sc.batch) : Sym::symbol("T");
  const std::string re_routing = "npu.npu_moe_re_routing";
  // The exchange whose lengths the host reads: in prefill, and where decode has no better.
  const auto double_routing = [&](std::string id) {
    Verdict v =
        judge_call(re_routing,
                   {{"tokens", {r.dtype, {Sym::symbol("A"), r.hidden}}},
                    {"expert_token_num_per_rank", {DType::i32, {sc.ep, Sym(r.experts / sc.ep)}}}},
                   {{"expert_token_num_type", Sym(1)}}, id, sc.target, facts_of(phase, sc.ep));
    if (r.experts % sc.ep != 0)
      v = {VerdictKind::not_adaptable,
           cat("moe_re_routing needs whole experts per rank: experts = ", r.experts,
               ", ep = ", sc.ep),
           "ep.divisible",
           {}};
    return site(std::move(id), re_routing, phase, r, std::move(v));
  };
  if (!decode) {
    out->push_back(double_routing("FS-M05"));
    return;
  }
  const std::string dispatch = "npu.npu_moe_distribute_dispatch_v2";
  Verdict v = judge_call(
      dispatch,
      {{"x", {r.dtype, {tokens, r.hidden}}}, {"expert_ids", {DType::i32, {tokens, r.per_token}}}},
      {{"group_ep", std::string("ep")},
       {"ep_world_size", Sym(sc.ep)},
       {"ep_rank_id", Sym(0)},
       {"moe_expert_num", Sym(r.experts)}},
      "FS-M06", sc.target, facts_of(phase, sc.ep));
  const bool fits = v.kind != VerdictKind::not_adaptable;
  out->push_back(site("FS-M06", dispatch, phase, r, std::move(v)));
  if (fits) return;
  out->push_back(double_routing("FS-M07"));
}

void tensor_parallel(const Graph& graph, const std::string& phase, const Scenario& sc,
                     std::vector<SiteVerdict>* out) {
  // The products whose results are summed over the ranks: those that end attention and FFN.
  std::map<std::string, SiteVerdict> rows;
  for (const Node* n : nodes(graph)) {
    if (!n->is("aten.linear") || n->in(1)->type.rank() != 2) continue;
    const bool summed = std::any_of(n->out()->uses.begin(), n->out()->uses.end(), [](const Use& u) {
      return u.node != nullptr && (u.node->is("npu.npu_add_rms_norm") || u.node->is("aten.add"));
    });
    if (!summed) continue;
    const std::string place = class_of_module(n->loc != nullptr ? n->loc->module : "");
    SiteVerdict& s = rows[place];
    ++s.sites;
    if (s.sites > 1) continue;
    s.id = "FS-L03";
    s.operators = "npu.npu_mm_all_reduce_base";
    s.phase = phase;
    s.place = place;
    const Type& x = n->in(0)->type;
    const Sym k = n->in(1)->type.dim(1);
    const Sym share = k.is_const() ? Sym(k.value() / sc.tp) : k;
    Attrs attrs{{"hcom", std::string("tp")}};
    s.verdict = judge_call(
        s.operators,
        {{"x1", {x.dtype, {x.shape[0], share}}}, {"x2", {x.dtype, {share, n->in(1)->type.dim(0)}}}},
        attrs, s.id, sc.target, facts_of(phase, sc.tp));
    if (k.is_const() && k.value() % sc.tp != 0)
      s.verdict = {VerdictKind::not_adaptable,
                   cat("the input of ", k.value(), " is not divisible by tp = ", sc.tp),
                   "tp.divisible",
                   {}};
  }
  for (auto& [place, s] : rows) out->push_back(std::move(s));
}

}  // namespace

std::vector<SiteVerdict> parallel_sites(const Graph& graph, const std::string& phase,
                                        const Scenario& scenario) {
  std::vector<SiteVerdict> out;
  if (scenario.ep > 1)
    for (const Routed& r : routed_of(graph)) expert_parallel(r, phase, scenario, &out);
  if (scenario.tp > 1) tensor_parallel(graph, phase, scenario, &out);
  return out;
}

}  // namespace tk

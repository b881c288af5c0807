// Logits of chosen tokens only. What feeds nothing but the logits, token by token, works on the
// rows that are asked for: the head, the final norm, and the last layer back to its attention.
#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/row_wise.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {
namespace {

constexpr std::string_view name = "move_logit_rows";
constexpr std::string_view rows_input = "logit_rows";

bool is_symbol(const Sym& s) {
  std::set<std::string, std::less<>> symbols;
  s.collect_symbols(&symbols);
  return symbols.size() == 1 && s == Sym::symbol(*symbols.begin());
}

// The nodes that work row by row towards the logits and feed nothing else, in the graph's order.
std::vector<Node*> region_of(const Graph& graph) {
  const Value* logits = graph.outputs()[0];
  const Sym tokens = logits->type.dim(0);
  std::unordered_map<const Value*, bool> constant;  // comes from weights alone
  for (Node* n : nodes(graph)) {
    bool all = true;
    for (const Value* v : n->inputs)
      all = all && (v == nullptr || v->kind == ValueKind::weight ||
                    (v->kind == ValueKind::node && constant.at(v)));
    for (const auto& v : n->outputs) constant[v.get()] = all;
  }
  auto is_rows = [&](const Value* v) {
    if (v->kind == ValueKind::weight || (v->kind == ValueKind::node && constant.at(v)))
      return false;
    return v->type.rank() >= 1 && v->type.dim(0) == tokens;
  };
  std::unordered_set<const Node*> in_region;
  std::vector<Node*> region;
  for (Node* n = graph.last(); n != nullptr; n = n->prev) {
    bool used = false;
    bool only_here = true;
    for (const auto& v : n->outputs)
      for (const Use& use : v->uses) {
        used = true;
        only_here =
            only_here && (use.node == nullptr ? use.index == 0 : in_region.count(use.node) != 0);
      }
    if (!used || !only_here || !is_row_wise(*n, is_rows)) continue;
    if (!std::all_of(n->outputs.begin(), n->outputs.end(),
                     [&](const auto& v) { return v->uses.empty() || is_rows(v.get()); }))
      continue;
    in_region.insert(n);
    region.push_back(n);
  }
  std::reverse(region.begin(), region.end());
  return region;
}

std::vector<Site> find(const Graph& graph, Target) {
  if (graph.outputs().empty() || graph.outputs()[0]->node == nullptr ||
      graph.find_input(rows_input) != nullptr)
    return {};
  const Value* logits = graph.outputs()[0];
  const std::vector<Node*> order = nodes_in_order(graph);
  Site site = site_at(name, *logits->node, {}, order);
  if (logits->type.rank() != 2 || !is_symbol(logits->type.dim(0))) {
    site.verdict = {VerdictKind::adaptable_after,
                    cat("logits are ", logits->type.str(), ", not one row per token"),
                    "P-PACKED",
                    {}};
    return {site};
  }
  const std::vector<Node*> region = region_of(graph);
  if (region.empty()) {
    site.verdict = {VerdictKind::pending,
                    cat(logits->node->op->name, " is not known to work row by row"),
                    "",
                    {}};
    return {site};
  }
  site = site_at(name, *logits->node, region, order);
  return {site};
}

std::size_t apply(Graph& graph, std::span<const Site> sites) {
  const std::vector<Node*> region = region_of(graph);
  if (sites.empty() || !sites[0].verdict.ok() || region.empty()) return 0;
  const Sym tokens = graph.outputs()[0]->type.dim(0);
  const std::string symbol = tokens.str();
  const std::map<std::string, Sym, std::less<>> rename{{symbol, Sym::symbol("R")}};
  graph.ranges["R"] = {1, INT64_MAX};
  Value* rows = graph.add_input(rows_input, {DType::i64, {Sym::symbol("R")}});
  const std::unordered_set<const Node*> inside(region.begin(), region.end());

  // Values from outside the region that have a row per token, before any type changes.
  std::unordered_map<const Value*, Value*> chosen;
  for (Node* n : region) {
    for (std::size_t i = 0; i < n->inputs.size(); ++i) {
      Value* v = n->inputs[i];
      if (v == nullptr || inside.count(v->node) != 0 || v->type.rank() < 1 ||
          !(v->type.dim(0) == tokens) || from_weights_only(v))
        continue;
      Value*& row = chosen[v];
      if (row == nullptr)
        row = Builder{graph, n, n->loc}.op("aten.index_select", {v, rows}, {{"dim", Sym(0)}});
      graph.set_input(n, static_cast<int>(i), row);
    }
  }
  for (Node* n : region) {
    for (const auto& [key, value] : Attrs(n->attrs)) {
      if (const auto* dims = std::get_if<SymDims>(&value)) {
        SymDims renamed;
        for (const Sym& d : *dims) renamed.push_back(d.subst(rename));
        n->attrs.set(key, renamed);
      }
    }
    const std::vector<Type> types = n->op->infer(n->args());
    for (std::size_t i = 0; i < types.size(); ++i) n->outputs[i]->type = types[i];
  }
  return 1;
}

}  // namespace

Move move_logit_rows() {
  Move move;
  move.name = name;
  move.doc = "logits of the tokens named by the input logit_rows i64 [R] only";
  move.target_op = "aten.index_select";
  move.find = find;
  move.apply = apply;
  move.changes_results = true;
  return move;
}

}  // namespace tk::fuse

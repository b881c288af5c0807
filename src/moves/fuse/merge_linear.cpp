// Linears of one input become one: their weights are put together once, at load; the results are
// slices of the one product. Query, key and value projections, or the two down-projections of MLA.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {
namespace {

constexpr std::string_view name = "merge_linear";

std::string parent_module(const Node& n) {
  const std::string module = n.loc != nullptr ? n.loc->module : "";
  const std::size_t dot = module.rfind('.');
  return dot == std::string::npos ? "" : module.substr(0, dot);
}

// Not those that have been merged for a purpose of their own, as gate and up: a third one beside
// them would stand in the way of what comes after the product.
bool can_be_merged(const Node& n) {
  const bool merged =
      n.is("aten.linear") && n.inputs[1]->node != nullptr && n.inputs[1]->node->is("aten.cat");
  return n.is("aten.linear") && !merged && n.inputs[1]->type.rank() == 2 &&
         from_weights_only(n.inputs[1]) && (n.in(2) == nullptr || from_weights_only(n.inputs[2]));
}

// What linears must share: the input, the module that they belong to (a router beside the experts
// is another thing), the weights' dtype, and whether there is a bias.
struct Key {
  const Value* x;
  std::string module;
  DType dtype;
  bool bias;
  auto operator<=>(const Key&) const = default;
};

std::vector<std::vector<Node*>> groups(const Graph& graph) {
  std::map<Key, std::vector<Node*>> by_key;
  for (Node* n : nodes(graph)) {
    if (!can_be_merged(*n)) continue;
    by_key[{n->inputs[0], parent_module(*n), n->inputs[1]->type.dtype, n->in(2) != nullptr}]
        .push_back(n);
  }
  std::vector<std::vector<Node*>> out;
  for (auto& [key, list] : by_key)
    if (list.size() > 1) out.push_back(std::move(list));
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return a[0]->order < b[0]->order; });
  return out;
}

std::vector<Site> find(const Graph& graph, Target) {
  const std::vector<Node*> order = nodes_in_order(graph);
  std::vector<Site> sites;
  for (const std::vector<Node*>& group : groups(graph)) {
    Site site = site_at(name, *group[0], group, order);
    site.module = parent_module(*group[0]);
    site.class_key = cat(name, " ", class_of_module(site.module));
    sites.push_back(std::move(site));
  }
  return sites;
}

void merge(Graph& graph, const std::vector<Node*>& group) {
  Node* first = group[0];
  std::vector<Value*> weights;
  std::vector<Value*> biases;
  for (Node* n : group) {
    weights.push_back(n->inputs[1]);
    if (n->in(2) != nullptr) biases.push_back(n->inputs[2]);
  }
  std::vector<Value*> needed = weights;
  needed.insert(needed.end(), biases.begin(), biases.end());
  TK_CHECK(hoist_before(graph, needed, first, group), "weights that depend on a linear");
  Builder b{graph, first, first->loc};
  Value* w = b.op("aten.cat", weights, {{"dim", Sym(0)}});
  Value* c = biases.empty() ? nullptr : b.op("aten.cat", biases, {{"dim", Sym(0)}});
  Value* all = b.op("aten.linear", {first->inputs[0], w, c});
  Sym start = 0;
  for (Node* n : group) {
    const Sym end = start + n->out()->type.shape.back();
    b.loc = n->loc;
    Value* part = b.op("aten.slice", {all},
                       {{"dim", Sym(all->type.rank() - 1)}, {"start", start}, {"end", end}});
    graph.replace_uses(n->out(), part);
    start = end;
  }
  erase_unused(graph, group);
}

std::size_t apply(Graph& graph, std::span<const Site> sites) {
  const std::vector<Node*> order = nodes_in_order(graph);
  std::vector<std::vector<Node*>> chosen;
  for (const Site& s : sites) {
    if (!s.verdict.ok()) continue;
    std::vector<Node*> group;
    group.reserve(s.nodes.size());
    for (std::int64_t i : s.nodes) group.push_back(order.at(static_cast<std::size_t>(i)));
    chosen.push_back(std::move(group));
  }
  for (const std::vector<Node*>& group : chosen) merge(graph, group);
  return chosen.size();
}

}  // namespace

Move merge_linear() {
  Move move;
  move.name = name;
  move.doc = "linear(x, a), linear(x, b), ... -> slices of linear(x, cat(a, b, ...))";
  move.find = find;
  move.apply = apply;
  return move;
}

}  // namespace tk::fuse

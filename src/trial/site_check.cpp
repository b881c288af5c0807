#include "trial/site_check.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "graph/rewrite.h"
#include "ops/interpret.h"

namespace tk {

SiteGraph cut_out(const Graph& graph, const Site& site) {
  const std::vector<Node*> order = nodes_in_order(graph);
  std::set<std::int64_t> positions(site.nodes.begin(), site.nodes.end());
  SiteGraph cut;
  cut.graph.ranges = graph.ranges;
  std::unordered_map<const Value*, Value*> to;
  std::set<const Node*> inside;
  for (std::int64_t p : positions) inside.insert(order.at(static_cast<std::size_t>(p)));
  const auto take = [&](Value* v) -> Value* {
    if (v == nullptr) return nullptr;
    auto it = to.find(v);
    if (it != to.end()) return it->second;
    Value* mine = nullptr;
    if (v->kind == ValueKind::weight) {
      mine = cut.graph.add_weight(v->name, v->type);
    } else {
      mine = cut.graph.add_input(cat("x", cut.boundary.size()), v->type);
      cut.boundary.push_back(v);
    }
    return to[v] = mine;
  };
  for (std::int64_t p : positions) {
    const Node* n = order[static_cast<std::size_t>(p)];
    std::vector<Value*> inputs;
    inputs.reserve(n->inputs.size());
    for (Value* v : n->inputs) inputs.push_back(take(v));
    Node* copy = cut.graph.insert(nullptr, *n->op, std::move(inputs), n->attrs,
                                  n->loc != nullptr ? cut.graph.loc(*n->loc) : nullptr);
    for (std::size_t i = 0; i < n->outputs.size(); ++i)
      to[n->outputs[i].get()] = copy->out(static_cast<int>(i));
  }
  for (std::int64_t p : positions) {
    const Node* n = order[static_cast<std::size_t>(p)];
    for (const auto& v : n->outputs) {
      const bool leaves = std::any_of(v->uses.begin(), v->uses.end(), [&](const Use& use) {
        return use.node == nullptr || inside.count(use.node) == 0;
      });
      if (leaves) cut.graph.add_output(to.at(v.get()));
    }
  }
  return cut;
}

NumericCheck check_site(const Move& move, const SiteGraph& cut, const std::vector<Tensor>& recorded,
                        const Weights& weights) {
  NumericCheck check;
  Graph after = cut.graph.clone();
  const std::vector<Site> sites = move.find(after, Target::cpu);
  if (move.apply(after, sites) == 0) {
    check.detail = "the site needs its surroundings; judged by the whole model";
    return check;
  }
  if (after.inputs().size() != cut.graph.inputs().size()) {
    check.detail = "the move changes the graph's inputs; judged by the whole model";
    return check;
  }
  const auto run = [&](const Graph& g) { return interpret(g, recorded, weights); };
  const std::vector<Tensor> x = run(cut.graph);
  const std::vector<Tensor> y = run(after);
  TK_CHECK(x.size() == y.size(), "outputs of a site");
  check.done = true;
  check.passed = true;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!(x[i].shape == y[i].shape)) {
      check.passed = false;
      check.detail = cat("shape ", y[i].shape.str(), " instead of ", x[i].shape.str());
      return check;
    }
    const ErrorStats e = compare(y[i], x[i]);
    const Tolerance t = site_tolerance(x[i].dtype);
    check.allowed = std::max(check.allowed, t.relative);
    if (e.not_finite > 0 || e.relative() > t.relative) {
      check.passed = false;
      check.detail = e.not_finite > 0
                         ? cat(e.not_finite, " elements are NaN or infinite on one side only")
                         : cat("error ", e.relative(), " of the largest value, at most ",
                               t.relative, " (", t.why, "); worst at element ", e.worst);
    }
    check.error.merge(e);
  }
  return check;
}

}  // namespace tk

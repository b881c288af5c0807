#include <algorithm>

#include "base/error.h"
#include "graph/graph.h"

namespace tk {
namespace {

void verify_node(const Graph& graph, const Node& n, std::string_view pass) {
  const std::string after = pass.empty() ? "" : cat(" after pass '", pass, "'");
  auto broken = [&](const std::string& what) {
    TK_CHECK(false, "verifier", after, ": ", what, " in ", print(n));
  };
  const Schema& schema = n.op->parsed();
  if (!schema.variadic() && n.inputs.size() > schema.tensors.size()) broken("too many inputs");
  for (std::size_t i = 0; i < schema.tensors.size(); ++i) {
    const Schema::Arg& arg = schema.tensors[i];
    const bool there = i < n.inputs.size() && n.inputs[i] != nullptr;
    if (!there && !arg.optional && !arg.list) broken(cat("input '", arg.name, "' is missing"));
  }
  for (const auto& [key, value] : n.attrs)
    if (schema.find_attr(key) == nullptr) broken(cat("unknown attribute '", key, "'"));
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    const Value* v = n.inputs[i];
    if (v == nullptr) continue;
    const Use use{const_cast<Node*>(&n), static_cast<int>(i)};
    if (std::count(v->uses.begin(), v->uses.end(), use) != 1) broken("a use list is wrong");
    if (v->node != nullptr && v->node->order >= n.order)
      broken("a value is used before it is defined");
  }
  const std::vector<Type> types = n.op->infer(n.args());
  if (types.size() != n.outputs.size()) broken("the number of results is wrong");
  for (std::size_t i = 0; i < types.size(); ++i)
    if (!(types[i] == n.outputs[i]->type))
      broken(cat("result ", i, " has type ", n.outputs[i]->type.str(), ", inference says ",
                 types[i].str()));
  (void)graph;
}

}  // namespace

void verify(const Graph& graph, std::string_view pass) {
  std::size_t count = 0;
  for (Node* n : nodes(graph)) {
    verify_node(graph, *n, pass);
    ++count;
    TK_CHECK(n->next == nullptr || n->next->order > n->order, "order of nodes after ", pass);
  }
  TK_CHECK(count == graph.n_nodes(), "number of nodes after ", pass);
  for (std::size_t i = 0; i < graph.outputs().size(); ++i) {
    const Use use{nullptr, static_cast<int>(i)};
    const auto& uses = graph.outputs()[i]->uses;
    TK_CHECK(std::count(uses.begin(), uses.end(), use) == 1, "output use list after ", pass);
  }
}

}  // namespace tk

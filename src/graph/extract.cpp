#include "graph/extract.h"

#include <algorithm>
#include <unordered_set>

namespace tk {

Graph extract(const Graph& graph, std::span<Value* const> outputs,
              std::unordered_map<const Value*, Value*>* map) {
  std::unordered_set<const Value*> needed;
  std::vector<Node*> found;
  std::vector<Value*> todo(outputs.begin(), outputs.end());
  std::unordered_set<const Node*> seen;
  while (!todo.empty()) {
    Value* v = todo.back();
    todo.pop_back();
    if (v == nullptr || !needed.insert(v).second) continue;
    if (v->node == nullptr || !seen.insert(v->node).second) continue;
    found.push_back(v->node);
    todo.insert(todo.end(), v->node->inputs.begin(), v->node->inputs.end());
  }
  std::sort(found.begin(), found.end(),
            [](const Node* a, const Node* b) { return a->order < b->order; });
  Graph out;
  out.name = graph.name;
  out.ranges = graph.ranges;
  std::unordered_map<const Value*, Value*> local;
  auto& to = map != nullptr ? *map : local;
  for (const auto& v : graph.inputs())
    if (needed.count(v.get()) != 0) to[v.get()] = out.add_input(v->name, v->type);
  for (const auto& v : graph.weights())
    if (needed.count(v.get()) != 0) to[v.get()] = out.add_weight(v->name, v->type);
  for (const auto& v : graph.states())
    if (needed.count(v.get()) != 0) to[v.get()] = out.add_state(v->name, v->type);
  for (Node* n : found) {
    std::vector<Value*> inputs;
    for (Value* v : n->inputs) inputs.push_back(v == nullptr ? nullptr : to.at(v));
    Node* copy = out.insert(nullptr, *n->op, std::move(inputs), n->attrs,
                            n->loc != nullptr ? out.loc(*n->loc) : nullptr);
    for (std::size_t i = 0; i < n->outputs.size(); ++i)
      to[n->outputs[i].get()] = copy->outputs[i].get();
  }
  for (Value* v : outputs) out.add_output(to.at(v));
  return out;
}

}  // namespace tk

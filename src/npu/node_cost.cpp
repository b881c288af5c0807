#include "npu/node_cost.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ops/cost.h"

namespace tk {
namespace {

using ops::bytes_of;

Type concrete_type(const Type& t, const SymEnv& env) {
  Type c{t.dtype, {}};
  for (const Sym& s : t.shape) c.shape.emplace_back(s.eval(env));
  return c;
}

Attr concrete_attr(const Attr& a, const SymEnv& env) {
  if (const auto* s = std::get_if<Sym>(&a)) return Sym(s->eval(env));
  if (const auto* l = std::get_if<SymDims>(&a)) {
    SymDims dims;
    for (const Sym& s : *l) dims.emplace_back(s.eval(env));
    return dims;
  }
  return a;
}

}  // namespace

Cost cost_of(const Node& node, const SymEnv& env, const Load& load) {
  std::vector<Value> values(node.inputs.size());
  std::vector<Value*> inputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == nullptr) {
      inputs.push_back(nullptr);
      continue;
    }
    values[i].type = concrete_type(node.inputs[i]->type, env);
    // A value that is there twice stays one: a latent that is key and value is read once.
    const auto first = static_cast<std::size_t>(
        std::find(node.inputs.begin(), node.inputs.end(), node.inputs[i]) - node.inputs.begin());
    inputs.push_back(&values[first]);
  }
  Attrs attrs;
  for (const auto& [name, attr] : node.attrs) attrs.set(name, concrete_attr(attr, env));
  if (node.op->cost != nullptr) return node.op->cost(Args(*node.op, inputs, attrs), load);
  Cost cost;
  for (const Value* v : inputs)
    if (v != nullptr) cost.read += bytes_of(v->type);
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    // What is changed in place is written as far as the other inputs reach.
    if (i < node.op->updates.size() && node.op->updates[i] >= 0) {
      cost.read -= bytes_of(inputs[static_cast<std::size_t>(node.op->updates[i])]->type);
      continue;
    }
    const Type t = concrete_type(node.outputs[i]->type, env);
    cost.written += bytes_of(t);
    cost.vector += static_cast<double>(t.numel().value());
  }
  if (!node.op->updates.empty()) cost.written += cost.read;
  return cost;
}

std::unordered_set<const Value*> known_at_load(const Graph& graph) {
  std::unordered_set<const Value*> known;
  for (const auto& w : graph.weights()) known.insert(w.get());
  for (const Node* n : nodes(graph)) {
    const bool fixed =
        std::all_of(n->inputs.begin(), n->inputs.end(),
                    [&](const Value* v) { return v == nullptr || known.count(v) != 0; }) &&
        n->op->updates.empty();
    bool sized = false;
    for (const auto& v : n->outputs) {
      std::set<std::string, std::less<>> symbols;
      for (const Sym& s : v->type.shape) s.collect_symbols(&symbols);
      sized |= !symbols.empty();
    }
    if (!fixed || sized) continue;
    for (const auto& v : n->outputs) known.insert(v.get());
  }
  return known;
}

}  // namespace tk

#include "plan/plan.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ops/interpret.h"

namespace tk {
namespace {

using Ids = std::unordered_map<const Value*, int>;

bool has_symbols(const Type& type) {
  return std::any_of(type.shape.begin(), type.shape.end(),
                     [](const Sym& d) { return !d.is_const(); });
}

bool has_symbols(const Attrs& attrs) {
  return std::any_of(attrs.begin(), attrs.end(), [](const auto& item) {
    if (const auto* s = std::get_if<Sym>(&item.second)) return !s->is_const();
    const auto* list = std::get_if<SymDims>(&item.second);
    return list != nullptr &&
           std::any_of(list->begin(), list->end(), [](const Sym& d) { return !d.is_const(); });
  });
}

// What a value computed once was made of; equal keys mean equal tensors.
std::string key_of(const Node& node, const Ids& ids, const std::vector<std::string>& keys) {
  std::string key = cat(node.op->name, "(");
  for (const Value* v : node.inputs)
    key += cat(v == nullptr ? "none" : keys[static_cast<std::size_t>(ids.at(v))], ",");
  key += ")";
  std::set<std::string> attrs;  // in an order of their own
  for (const auto& [name, value] : node.attrs) attrs.insert(cat(name, "=", str(value)));
  for (const auto& a : attrs) key += cat(a, ";");
  return key;
}

}  // namespace

const std::vector<Tensor>* ConstantPool::find(const std::string& key) const {
  const auto it = results_.find(key);
  return it == results_.end() ? nullptr : &it->second;
}

void ConstantPool::add(std::string key, std::vector<Tensor> results) {
  results_.emplace(std::move(key), std::move(results));
}

int Plan::input_id(std::string_view name) const {
  for (int id : inputs)
    if (values[static_cast<std::size_t>(id)]->name == name) return id;
  return -1;
}

Plan make_plan(Graph graph, const Weights& weights, ConstantPool* pool) {
  Plan plan;
  plan.graph = std::move(graph);
  const Graph& g = plan.graph;
  Ids ids;
  const auto number = [&](const Value* v) {
    ids.emplace(v, static_cast<int>(plan.values.size()));
    plan.values.push_back(v);
    return static_cast<int>(plan.values.size()) - 1;
  };
  for (const auto& v : g.inputs()) plan.inputs.push_back(number(v.get()));
  std::vector<int> weight_ids;
  for (const auto& v : g.weights()) weight_ids.push_back(number(v.get()));
  for (const auto& v : g.states()) plan.states.push_back(number(v.get()));
  for (Node* n : nodes(g))
    for (const auto& v : n->outputs) number(v.get());
  plan.constants.resize(plan.values.size());
  for (int id : weight_ids) {
    const auto i = static_cast<std::size_t>(id);
    if (!plan.values[i]->uses.empty()) plan.constants[i] = find_weight(weights, *plan.values[i]);
  }

  ConstantPool own;
  if (pool == nullptr) pool = &own;
  // Keys grow with the depth of the once part; what is computed gets a short name instead.
  std::vector<std::string> keys(plan.values.size());
  for (int id : weight_ids)
    keys[static_cast<std::size_t>(id)] =
        cat("\"", plan.values[static_cast<std::size_t>(id)]->name, "\"");
  std::set<const void*> weight_memory;
  for (const Tensor& t : plan.constants) weight_memory.insert(t.owner.get());

  for (Node* n : nodes(g)) {
    PlanStep step;
    step.node = n;
    bool once = n->op->updates_input < 0 && !has_symbols(n->attrs);
    std::vector<Tensor> inputs;
    for (const Value* v : n->inputs) {
      const int id = v == nullptr ? -1 : ids.at(v);
      step.inputs.push_back(id);
      inputs.push_back(id < 0 ? Tensor() : plan.constants[static_cast<std::size_t>(id)]);
      once &= id < 0 || inputs.back().data != nullptr;
    }
    for (const auto& v : n->outputs) {
      step.outputs.push_back(ids.at(v.get()));
      once &= !has_symbols(v->type);
    }
    if (!once) {
      plan.steps.push_back(std::move(step));
      continue;
    }
    ++plan.n_once;
    std::string key = key_of(*n, ids, keys);
    const std::vector<Tensor>* results = pool->find(key);
    if (results == nullptr) {
      try {
        pool->add(key, evaluate(*n->op, inputs, n->attrs));
      } catch (UserError& e) {
        if (n->loc == nullptr) throw;
        throw std::move(e).in_module(n->loc->module);
      }
      results = pool->find(key);
    }
    for (std::size_t i = 0; i < step.outputs.size(); ++i) {
      const auto id = static_cast<std::size_t>(step.outputs[i]);
      plan.constants[id] = (*results)[i];
      keys[id] = cat("#", (*results)[i].data, "+", (*results)[i].shape.str(),
                     (*results)[i].strides.str(), static_cast<int>((*results)[i].dtype));
    }
  }

  const int end = static_cast<int>(plan.steps.size());
  plan.last_use.assign(plan.values.size(), -1);
  for (int s = 0; s < end; ++s)
    for (int id : plan.steps[static_cast<std::size_t>(s)].inputs)
      if (id >= 0) plan.last_use[static_cast<std::size_t>(id)] = s;
  for (const Value* v : g.outputs()) {
    plan.outputs.push_back(ids.at(v));
    plan.last_use[static_cast<std::size_t>(ids.at(v))] = end;
  }
  // What only the once part read is not kept by this plan (the pool may keep it for another).
  std::set<const void*> counted;
  for (std::size_t id = 0; id < plan.values.size(); ++id) {
    Tensor& t = plan.constants[id];
    if (t.data == nullptr) continue;
    if (plan.last_use[id] < 0) {
      t = {};
    } else if (!weight_memory.contains(t.owner.get()) && counted.insert(t.owner.get()).second) {
      plan.once_bytes += t.bytes();
    }
  }
  return plan;
}

}  // namespace tk

#include "plan/plan.h"

#include <algorithm>
#include <set>

#include "base/error.h"

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

Tensor weight_of(const Value& v, const Weights& weights) {
  const auto it = weights.find(v.name);
  if (it == weights.end())
    throw UserError("TK0503", cat("the model has no weight '", v.name, "'"))
        .note("the graph uses it, the checkpoint does not hold it");
  const Tensor& t = it->second;
  if (t.dtype != v.type.dtype || !(t.shape == concrete(v.type.shape, {})))
    throw UserError("TK0504", cat("weight '", v.name, "' is ", name_of(t.dtype), t.shape.str(),
                                  ", the graph says ", v.type.str()));
  return t;
}

// The results of a node on constant inputs: views of input 0 where the operator allows it.
std::vector<Tensor> evaluate(const Node& node, const std::vector<const Tensor*>& inputs) {
  const SymEnv env;
  std::vector<TensorView> in, out;
  for (const Tensor* t : inputs)
    in.push_back(t == nullptr ? TensorView() : static_cast<const TensorView&>(*t));
  for (const auto& v : node.outputs) {
    TensorView view;
    view.dtype = v->type.dtype;
    view.shape = concrete(v->type.shape, env);
    view.strides = contiguous_strides(view.shape);
    out.push_back(view);
  }
  std::vector<Tensor> results(out.size());
  if (node.op->view != nullptr && !inputs.empty() && inputs[0] != nullptr) {
    std::vector<TensorView> views = out;
    if (node.op->view(EvalArgs(*node.op, in, out, node.attrs, env), views)) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        static_cast<TensorView&>(results[i]) = views[i];
        results[i].owner = inputs[0]->owner;
      }
      return results;
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    results[i] = Tensor::empty(out[i].dtype, out[i].shape);
    out[i] = results[i];
  }
  TK_CHECK(node.op->eval != nullptr, node.op->name, " has no reference");
  node.op->eval(EvalArgs(*node.op, in, out, node.attrs, env));
  return results;
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
    if (!plan.values[i]->uses.empty()) plan.constants[i] = weight_of(*plan.values[i], weights);
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
    std::vector<const Tensor*> inputs;
    for (const Value* v : n->inputs) {
      const int id = v == nullptr ? -1 : ids.at(v);
      step.inputs.push_back(id);
      const Tensor* t = id < 0 ? nullptr : &plan.constants[static_cast<std::size_t>(id)];
      inputs.push_back(t);
      once &= id < 0 || t->data != nullptr;
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
        pool->add(key, evaluate(*n, inputs));
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

SymEnv infer_sizes(const Graph& graph, const std::vector<Dims>& shapes) {
  TK_CHECK(shapes.size() == graph.inputs().size(), "one shape per input");
  SymEnv env;
  const auto fail = [&](const Value& v, const Dims& shape) {
    std::string known;
    for (const auto& [symbol, value] : env)
      known += cat(known.empty() ? "" : ", ", symbol, "=", value);
    UserError e("TK0502",
                cat("input '", v.name, "' is ", v.type.str(), ", got the shape ", shape.str()));
    if (!known.empty()) throw std::move(e).note(cat("with ", known));
    throw e;
  };
  // Symbols that stand alone first, then everything is checked.
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Value& v = *graph.inputs()[i];
    if (v.type.rank() != shapes[i].size()) fail(v, shapes[i]);
    for (int d = 0; d < v.type.rank(); ++d) {
      std::set<std::string, std::less<>> symbols;
      v.type.dim(d).collect_symbols(&symbols);
      if (symbols.size() != 1 || !(v.type.dim(d) == Sym::symbol(*symbols.begin()))) continue;
      if (shapes[i][d] < 0) fail(v, shapes[i]);
      env.emplace(*symbols.begin(), shapes[i][d]);
    }
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Value& v = *graph.inputs()[i];
    if (!(concrete(v.type.shape, env) == shapes[i])) fail(v, shapes[i]);
  }
  for (const auto& [symbol, range] : graph.ranges) {
    const auto it = env.find(symbol);
    if (it != env.end() && (it->second < range.min || it->second > range.max))
      throw UserError("TK0502", cat("the size ", symbol, " is ", it->second, "; the model was ",
                                    "captured for ", range.min, " to ", range.max));
  }
  return env;
}

}  // namespace tk

#include "plan/plan.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
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
  key += ')';
  std::set<std::string> attrs;  // in an order of their own
  for (const auto& [name, value] : node.attrs) attrs.insert(cat(name, "=", str(value)));
  for (const auto& a : attrs) key += cat(a, ";");
  return key;
}

// A short name of a long key, 128 bits of it: equal for equal keys, in every process.
std::string digest(std::string_view key) {
  std::uint64_t a = 14695981039346656037ULL;
  std::uint64_t b = 0x9e3779b97f4a7c15ULL;
  for (const char c : key) {
    a = (a ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    b = (b + static_cast<unsigned char>(c)) * 0xff51afd7ed558ccdULL;
    b ^= b >> 32;
  }
  return cat(a, ".", b);
}

class Planner {
 public:
  Planner(Plan* plan, ConstantPool* pool) : plan_(*plan), pool_(*pool) {}

  void run(const Weights& weights, const PackConstant& pack) {
    number_values();
    take_weights(weights);
    for (Node* n : nodes(plan_.graph)) place(n);
    if (pack != nullptr) pack_inputs(pack);
    for (const PlanStep& step : plan_.steps)
      for (int id : step.inputs) compute(id);
    for (int id : plan_.outputs) compute(id);
    plan_.packed.resize(plan_.values.size());
    find_last_uses();
    drop_constants();
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  int number(const Value* v) {
    const int id = static_cast<int>(plan_.values.size());
    ids_.emplace(v, id);
    plan_.values.push_back(v);
    return id;
  }

  void number_values() {
    const Graph& g = plan_.graph;
    for (const auto& v : g.inputs()) plan_.inputs.push_back(number(v.get()));
    for (const auto& v : g.weights()) number(v.get());
    for (const auto& v : g.states()) plan_.states.push_back(number(v.get()));
    for (Node* n : nodes(g))
      for (const auto& v : n->outputs) number(v.get());
    for (const Value* v : g.outputs()) plan_.outputs.push_back(ids_.at(v));
    plan_.constants.resize(plan_.values.size());
    // Keys grow with the depth of the once part; what is computed gets a short name instead.
    keys_.resize(plan_.values.size());
    once_.resize(plan_.values.size(), -1);
  }

  void take_weights(const Weights& weights) {
    for (const auto& v : plan_.graph.weights()) {
      if (v->uses.empty()) continue;
      const auto id = at(ids_.at(v.get()));
      plan_.constants[id] = find_weight(weights, *v);
      keys_[id] = cat("\"", v->name, "\"");
      weight_memory_.insert(plan_.constants[id].owner.get());
    }
  }

  bool constant(int id) const {
    return plan_.constants[at(id)].data != nullptr || once_[at(id)] >= 0;
  }

  // Into the once part or among the steps.
  void place(const Node* n) {
    PlanStep step;
    step.node = n;
    bool once = n->op->updates.empty() && !has_symbols(n->attrs);
    for (const Value* v : n->inputs) {
      step.inputs.push_back(v == nullptr ? -1 : ids_.at(v));
      once &= v == nullptr || constant(step.inputs.back());
    }
    for (const auto& v : n->outputs) {
      step.outputs.push_back(ids_.at(v.get()));
      once &= !has_symbols(v->type);
    }
    if (!once) {
      plan_.steps.push_back(std::move(step));
      return;
    }
    ++plan_.n_once;
    const std::string name = digest(key_of(*n, ids_, keys_));
    for (std::size_t i = 0; i < step.outputs.size(); ++i) {
      once_[at(step.outputs[i])] = static_cast<int>(once_steps_.size());
      keys_[at(step.outputs[i])] = cat("#", name, ":", i);
    }
    once_steps_.push_back(std::move(step));
  }

  // Offers the constants that steps read. What is taken becomes a value of its own, so that other
  // readers have the constant as it is, which isn't even computed when there are none.
  void pack_inputs(const PackConstant& pack) {
    plan_.packed.resize(plan_.values.size());
    for (PlanStep& step : plan_.steps)
      for (std::size_t i = 0; i < step.inputs.size(); ++i) {
        const int id = step.inputs[i];
        if (id < 0 || plan_.packed[at(id)] || !constant(id)) continue;
        Tensor t =
            pack({*step.node, static_cast<int>(i), keys_[at(id)], [&] { return value(id); }});
        if (t.data == nullptr) continue;
        step.inputs[i] = static_cast<int>(plan_.values.size());
        plan_.values.push_back(plan_.values[at(id)]);
        plan_.constants.push_back(std::move(t));
        plan_.packed.push_back(true);
        once_.push_back(-1);
        keys_.emplace_back();
      }
  }

  // A constant, computed when it isn't there and not kept.
  Tensor value(int id) const {
    if (id < 0) return {};
    if (plan_.constants[at(id)].data != nullptr) return plan_.constants[at(id)];
    const PlanStep& step = once_steps_[at(once_[at(id)])];
    const auto i = std::find(step.outputs.begin(), step.outputs.end(), id) - step.outputs.begin();
    if (const auto* kept = pool_.find(key_of(*step.node, ids_, keys_)))
      return (*kept)[static_cast<std::size_t>(i)];
    std::vector<Tensor> inputs;
    inputs.reserve(step.inputs.size());
    for (int input : step.inputs) inputs.push_back(value(input));
    return evaluated(step, inputs)[static_cast<std::size_t>(i)];
  }

  // Keeps a constant, and what it is computed from.
  void compute(int id) {
    if (id < 0 || once_[at(id)] < 0 || plan_.constants[at(id)].data != nullptr) return;
    const PlanStep& step = once_steps_[at(once_[at(id)])];
    const std::string key = key_of(*step.node, ids_, keys_);
    const std::vector<Tensor>* results = pool_.find(key);
    if (results == nullptr) {
      std::vector<Tensor> inputs;
      inputs.reserve(step.inputs.size());
      for (int input : step.inputs) {
        compute(input);
        inputs.push_back(value(input));
      }
      pool_.add(key, evaluated(step, inputs));
      results = pool_.find(key);
    }
    for (std::size_t i = 0; i < step.outputs.size(); ++i)
      plan_.constants[at(step.outputs[i])] = (*results)[i];
  }

  std::vector<Tensor> evaluated(const PlanStep& step, const std::vector<Tensor>& inputs) const {
    std::vector<Tensor> results;
    try {
      results = evaluate(*step.node->op, inputs, step.node->attrs);
    } catch (UserError& e) {
      if (step.node->loc == nullptr) throw;
      throw std::move(e).in_module(step.node->loc->module);
    }
    for (const Tensor& t : inputs)
      if (t.data != nullptr && t.contiguous() && results[0].owner != t.owner)
        release_pages(t.data, static_cast<std::size_t>(t.bytes()));
    return results;
  }

  void find_last_uses() {
    const int end = static_cast<int>(plan_.steps.size());
    plan_.last_use.assign(plan_.values.size(), -1);
    for (int s = 0; s < end; ++s)
      for (int id : plan_.steps[at(s)].inputs)
        if (id >= 0) plan_.last_use[at(id)] = s;
    for (int id : plan_.outputs) plan_.last_use[at(id)] = end;
  }

  // What only the once part read is not kept by this plan (the pool may keep it for another).
  void drop_constants() {
    std::set<const void*> counted;
    for (std::size_t id = 0; id < plan_.values.size(); ++id) {
      Tensor& t = plan_.constants[id];
      if (t.data == nullptr) continue;
      if (plan_.last_use[id] < 0) {
        t = {};
      } else if (!weight_memory_.contains(t.owner.get()) && counted.insert(t.owner.get()).second) {
        plan_.once_bytes += t.bytes();
      }
    }
  }

  Plan& plan_;
  ConstantPool& pool_;
  Ids ids_;
  std::vector<std::string> keys_;
  std::vector<PlanStep> once_steps_;
  std::vector<int> once_;  // by id: the step of the once part that makes it, or -1
  std::set<const void*> weight_memory_;
};

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

Plan make_plan(Graph graph, const Weights& weights, ConstantPool* pool, const PackConstant& pack) {
  Plan plan;
  plan.graph = std::move(graph);
  ConstantPool own;
  Planner(&plan, pool != nullptr ? pool : &own).run(weights, pack);
  return plan;
}

}  // namespace tk

#include "plan/plan.h"

#include <sys/mman.h>

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
  key += ')';
  std::set<std::string> attrs;  // in an order of their own
  for (const auto& [name, value] : node.attrs) attrs.insert(cat(name, "=", str(value)));
  for (const auto& a : attrs) key += cat(a, ";");
  return key;
}

// Pages of a weight that has been computed with and is perhaps not needed again: the mapped file
// has them still. Advice; where it is not taken, more memory stays in use and nothing else changes.
void page_out(const TensorView& t) {
#ifdef MADV_PAGEOUT
  constexpr std::uintptr_t page = 4096;
  // Whole pages within the tensor.
  const std::size_t skip = (page - reinterpret_cast<std::uintptr_t>(t.data) % page) % page;
  const auto bytes = static_cast<std::size_t>(t.bytes());
  if (t.contiguous() && bytes >= skip + page)
    madvise(static_cast<std::byte*>(t.data) + skip, (bytes - skip) / page * page, MADV_PAGEOUT);
#else
  (void)t;
#endif
}

class Planner {
 public:
  Planner(Plan* plan, ConstantPool* pool) : plan_(*plan), pool_(*pool) {}

  void run(const Weights& weights) {
    number_values();
    take_weights(weights);
    for (Node* n : nodes(plan_.graph)) place(n);
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

  // Into the once part, where it is evaluated, or among the steps.
  void place(const Node* n) {
    PlanStep step;
    step.node = n;
    bool once = n->op->updates.empty() && !has_symbols(n->attrs);
    for (const Value* v : n->inputs) {
      step.inputs.push_back(v == nullptr ? -1 : ids_.at(v));
      once &= v == nullptr || plan_.constants[at(step.inputs.back())].data != nullptr;
    }
    for (const auto& v : n->outputs) {
      step.outputs.push_back(ids_.at(v.get()));
      once &= !has_symbols(v->type);
    }
    if (once)
      compute(step);
    else
      plan_.steps.push_back(std::move(step));
  }

  void compute(const PlanStep& step) {
    ++plan_.n_once;
    const std::string key = key_of(*step.node, ids_, keys_);
    const std::vector<Tensor>* results = pool_.find(key);
    if (results == nullptr) {
      pool_.add(key, evaluated(step));
      results = pool_.find(key);
    }
    for (std::size_t i = 0; i < step.outputs.size(); ++i) {
      const Tensor& t = (*results)[i];
      const auto id = at(step.outputs[i]);
      plan_.constants[id] = t;
      keys_[id] = cat("#", t.data, "+", t.shape.str(), t.strides.str(), static_cast<int>(t.dtype));
    }
  }

  std::vector<Tensor> evaluated(const PlanStep& step) const {
    std::vector<Tensor> inputs;
    inputs.reserve(step.inputs.size());
    for (int id : step.inputs) inputs.push_back(id < 0 ? Tensor() : plan_.constants[at(id)]);
    std::vector<Tensor> results;
    try {
      results = evaluate(*step.node->op, inputs, step.node->attrs);
    } catch (UserError& e) {
      if (step.node->loc == nullptr) throw;
      throw std::move(e).in_module(step.node->loc->module);
    }
    for (const Tensor& t : inputs)
      if (t.data != nullptr && weight_memory_.contains(t.owner.get()) &&
          results[0].owner != t.owner)
        page_out(t);
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

Plan make_plan(Graph graph, const Weights& weights, ConstantPool* pool) {
  Plan plan;
  plan.graph = std::move(graph);
  ConstantPool own;
  Planner(&plan, pool != nullptr ? pool : &own).run(weights);
  return plan;
}

}  // namespace tk

#include "ops/interpret.h"

#include <algorithm>
#include <memory>
#include <set>
#include <unordered_map>

#include "base/error.h"

namespace tk {
namespace {

// Results as metadata: what they will be, without memory.
TensorView described(const Type& type, const SymEnv& env, const OpDef& op) {
  TensorView v;
  v.dtype = type.dtype;
  v.shape = concrete(type.shape, env);
  if (std::any_of(v.shape.begin(), v.shape.end(), [](auto d) { return d < 0; }))
    throw UserError("TK0505", cat(op.name, " would make a result of shape ", v.shape.str()))
        .note(cat("its type in the graph is ", type.str()));
  v.strides = contiguous_strides(v.shape);
  return v;
}

// Runs one operator. One that changes an input in place does so when `in_place`, or on a copy.
std::vector<Tensor> run(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs,
                        const std::vector<Type>& types, const SymEnv& env, bool in_place) {
  const std::vector<TensorView> in(inputs.begin(), inputs.end());
  std::vector<TensorView> out;
  out.reserve(types.size());
  for (const Type& t : types) out.push_back(described(t, env, op));
  std::vector<Tensor> results;
  if (op.view != nullptr) {
    std::vector<TensorView> views = out;
    if (op.view(EvalArgs(op, in, out, attrs, env), views)) {
      for (const TensorView& v : views) results.push_back({v, inputs[0].owner});
      return results;
    }
  }
  TK_CHECK(op.eval != nullptr, op.name, " has no reference");
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Tensor* update = i < op.updates.size() && op.updates[i] >= 0
                               ? &inputs[static_cast<std::size_t>(op.updates[i])]
                               : nullptr;
    if (update != nullptr && update->data != nullptr) {
      const Tensor& changed = *update;
      TK_CHECK(changed.shape == out[i].shape, op.name, " changes a tensor of ",
               changed.shape.str());
      results.push_back(in_place ? changed : Tensor::empty(out[i].dtype, out[i].shape));
    } else {
      results.push_back(Tensor::empty(out[i].dtype, out[i].shape));
    }
    out[i] = results.back();
  }
  op.eval(EvalArgs(op, in, out, attrs, env));
  return results;
}

std::string found(const Tensor& t) { return cat(name_of(t.dtype), t.shape.str()); }

// Checks one tensor against its type, taking the values of symbols that stand alone.
void bind_dims(const Value& value, std::string_view what, const Tensor& t, SymEnv* env) {
  const auto wrong = [&](const std::string& why) {
    throw UserError("TK0502", cat("the ", what, " '", value.name, "' is ", found(t), ", expected ",
                                  value.type.str(), why));
  };
  if (t.data == nullptr)
    throw UserError(
        "TK0502", cat("the ", what, " '", value.name, "' is missing, expected ", value.type.str()));
  if (t.dtype != value.type.dtype || t.rank() != value.type.rank()) wrong("");
  for (int i = 0; i < t.rank(); ++i) {
    const Sym& dim = value.type.dim(i);
    std::set<std::string, std::less<>> symbols;
    dim.collect_symbols(&symbols);
    if (symbols.size() == 1 && dim == Sym::symbol(*symbols.begin())) {
      const auto [it, is_new] = env->emplace(*symbols.begin(), t.shape[i]);
      if (!is_new && it->second != t.shape[i]) wrong(cat(" with ", it->first, " = ", it->second));
    } else if (dim.is_const() && dim.value() != t.shape[i]) {
      wrong("");
    }
  }
}

// What symbols standing alone leave open, from multiples of one: 2 * T is 10, so T is 5. A part of
// a graph can have no more than that.
void solve_multiples(const Value& value, const Tensor& t, SymEnv* env) {
  for (int i = 0; i < t.rank() && i < value.type.rank(); ++i) {
    std::set<std::string, std::less<>> symbols;
    value.type.dim(i).collect_symbols(&symbols);
    if (symbols.size() != 1 || env->count(*symbols.begin()) != 0) continue;
    const auto times = exact_div(value.type.dim(i), Sym::symbol(*symbols.begin()));
    if (times && times->is_const() && times->value() > 0 && t.shape[i] % times->value() == 0)
      env->emplace(*symbols.begin(), t.shape[i] / times->value());
  }
}

// Sizes that are formulas, once all symbols are known.
void check_formulas(const Value& value, std::string_view what, const Tensor& t, const SymEnv& env) {
  const Dims expected = concrete(value.type.shape, env);
  if (!(expected == t.shape))
    throw UserError("TK0502", cat("the ", what, " '", value.name, "' is ", found(t), ", expected ",
                                  value.type.str(), ", which is ", expected.str(), " here"));
}

const Tensor& state_of(const States* states, const Value& value) {
  static const Tensor none;
  if (states == nullptr) return none;
  auto it = states->find(value.name);
  return it == states->end() ? none : it->second;
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, const InterpretOptions& options)
      : graph_(graph), options_(options) {}

  std::vector<Tensor> run_all(std::span<const Tensor> inputs, const Weights& weights,
                              const States* states) {
    env_ = bind_symbols(graph_, inputs, states);
    for (const auto& v : graph_.inputs()) hold(*v, inputs[static_cast<std::size_t>(v->index)]);
    for (const auto& v : graph_.states()) {
      hold(*v, state_of(states, *v));
      changeable_.insert(v.get());
    }
    for (const auto& v : graph_.weights())
      if (!v->uses.empty()) hold(*v, find_weight(weights, *v));
    for (const Node* n : nodes(graph_)) step(*n);
    std::vector<Tensor> out;
    for (const Value* v : graph_.outputs()) out.push_back(values_.at(v));
    return out;
  }

 private:
  void hold(const Value& v, const Tensor& t) {
    if (v.uses.empty()) return;
    values_[&v] = t;
    left_[&v] = v.uses.size();
  }

  void release(const Value* v) {
    if (--left_.at(v) == 0) values_.erase(v);
  }

  void step(const Node& n) {
    std::vector<Tensor> in;
    for (const Value* v : n.inputs) in.push_back(v == nullptr ? Tensor() : values_.at(v));
    std::vector<Type> types;
    for (const auto& v : n.outputs) types.push_back(v->type);
    const bool in_place = !n.op->updates.empty() &&
                          std::all_of(n.op->updates.begin(), n.op->updates.end(), [&](int i) {
                            return i < 0 || n.in(i) == nullptr || changeable_.count(n.in(i)) != 0;
                          });
    std::vector<Tensor> out;
    try {
      out = run(*n.op, in, n.attrs, types, env_, in_place);
    } catch (UserError& e) {
      if (n.loc == nullptr) throw;
      throw std::move(e).at(n.loc->file, n.loc->line).in_module(n.loc->module);
    }
    in.clear();
    if (in_place)
      for (std::size_t i = 0; i < n.op->updates.size(); ++i)
        if (n.op->updates[i] >= 0) changeable_.insert(n.outputs[i].get());
    for (std::size_t i = 0; i < out.size(); ++i) hold(*n.outputs[i], out[i]);
    if (options_.on_node) {
      const std::vector<TensorView> views(out.begin(), out.end());
      options_.on_node(n, views);
    }
    for (const Value* v : n.inputs)
      if (v != nullptr) release(v);
  }

  const Graph& graph_;
  const InterpretOptions& options_;
  SymEnv env_;
  std::unordered_map<const Value*, Tensor> values_;
  std::unordered_map<const Value*, std::size_t> left_;  // uses still to come, outputs among them
  std::set<const Value*> changeable_;                   // states, and what they became
};

}  // namespace

SymEnv bind_symbols(const Graph& graph, std::span<const Tensor> inputs, const States* states) {
  if (inputs.size() != graph.inputs().size()) {
    std::string names;
    for (const auto& v : graph.inputs()) names += cat(names.empty() ? "" : ", ", v->name);
    throw UserError("TK0502", cat("the graph has ", graph.inputs().size(), " inputs (", names,
                                  "), got ", inputs.size()));
  }
  SymEnv env;
  for (const auto& v : graph.inputs())
    bind_dims(*v, "input", inputs[static_cast<std::size_t>(v->index)], &env);
  for (const auto& v : graph.states()) bind_dims(*v, "state", state_of(states, *v), &env);
  for (const auto& v : graph.inputs())
    solve_multiples(*v, inputs[static_cast<std::size_t>(v->index)], &env);
  for (const auto& v : graph.inputs())
    check_formulas(*v, "input", inputs[static_cast<std::size_t>(v->index)], env);
  for (const auto& v : graph.states()) check_formulas(*v, "state", state_of(states, *v), env);
  return env;
}

const Tensor& find_weight(const Weights& weights, const Value& weight) {
  const auto it = weights.find(weight.name);
  if (it == weights.end())
    throw UserError("TK0503", cat("the weight '", weight.name, "' is missing"))
        .note(cat("the graph needs it as ", weight.type.str(), "; the checkpoint has ",
                  weights.size(), " weights"));
  const Tensor& t = it->second;
  bool fits = t.dtype == weight.type.dtype && t.rank() == weight.type.rank();
  for (int i = 0; fits && i < t.rank(); ++i)
    fits = !weight.type.dim(i).is_const() || weight.type.dim(i).value() == t.shape[i];
  if (!fits)
    throw UserError("TK0504", cat("the weight '", weight.name, "' is ", found(t), ", expected ",
                                  weight.type.str()));
  return t;
}

std::vector<Tensor> interpret(const Graph& graph, std::span<const Tensor> inputs,
                              const Weights& weights, States* states,
                              const InterpretOptions& options) {
  return Interpreter(graph, options).run_all(inputs, weights, states);
}

std::vector<Tensor> evaluate(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs,
                             const SymEnv& env) {
  std::vector<std::unique_ptr<Value>> values;
  std::vector<Value*> pointers;
  for (const Tensor& t : inputs) {
    if (t.data == nullptr) {
      pointers.push_back(nullptr);
      continue;
    }
    values.push_back(std::make_unique<Value>());
    values.back()->type.dtype = t.dtype;
    for (std::int64_t d : t.shape) values.back()->type.shape.push_back(d);
    pointers.push_back(values.back().get());
  }
  const Schema& schema = op.parsed();
  const std::size_t n_tensors = schema.tensors.size();
  if (!schema.variadic() && inputs.size() > n_tensors)
    throw UserError("TK0312", cat(op.name, " takes ", n_tensors, " tensors, got ", inputs.size()));
  for (std::size_t i = 0; i < n_tensors; ++i) {
    const bool there = i < pointers.size() && pointers[i] != nullptr;
    if (!there && !schema.tensors[i].optional && !schema.tensors[i].list)
      throw UserError("TK0312", cat(op.name, " needs a tensor for '", schema.tensors[i].name, "'"));
  }
  std::map<std::string, Sym, std::less<>> numbers;
  for (const auto& [name, v] : env) numbers[name] = v;
  Attrs known;
  for (const auto& [key, value] : attrs) {
    if (schema.find_attr(key) == nullptr)
      throw UserError("TK0312", cat(op.name, " has no attribute '", key, "'"));
    if (const Sym* s = std::get_if<Sym>(&value)) {
      known.set(key, s->subst(numbers));
    } else if (const SymDims* dims = std::get_if<SymDims>(&value)) {
      SymDims copy;
      for (const Sym& d : *dims) copy.push_back(d.subst(numbers));
      known.set(key, copy);
    } else {
      known.set(key, value);
    }
  }
  const std::vector<Type> types = op.infer(Args(op, pointers, known));
  return run(op, inputs, known, types, env, /*in_place=*/false);
}

}  // namespace tk

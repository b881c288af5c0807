#include "npu/estimate.h"

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

// What has no operator of torch_npu there is several kernels of aten: blocks gathered, products,
// softmax; what was gathered is written and read again.
int kernels_of(const Node& n) {
  if (n.is("tk.paged_attention")) return 6;
  if (n.is("tk.mla_paged_attention")) return 8;
  if (n.is("tk.cache_write")) return 2;
  return 1;
}

double seconds_of(const Node& n, Cost c, const Device& d) {
  const int kernels = kernels_of(n);
  if (kernels > 1) c.read *= 3;
  return kernel_seconds(c, d) + (kernels - 1) * d.vector_floor_s;
}

}  // namespace

double kernel_seconds(const Cost& c, const Device& d) {
  const double floor = c.cube > 0 ? d.cube_floor_s : d.vector_floor_s;
  return std::max({c.cube / d.cube_flops, c.vector / d.vector_flops,
                   (c.read + c.written) / d.memory_rate, floor});
}

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

Estimate estimate(const Graph& graph, const Device& device, const SymEnv& env, const Load& load) {
  Estimate e;
  const std::unordered_set<const Value*> known = known_at_load(graph);
  for (const Node* n : nodes(graph)) {
    if (known.count(n->out()) != 0) continue;
    if (n->op->view != nullptr) continue;
    KernelEstimate k{n, cost_of(*n, env, load), 0, kernels_of(*n)};
    k.seconds = seconds_of(*n, k.cost, device);
    e.seconds += k.seconds;
    e.kernels.push_back(k);
  }
  return e;
}

SymEnv symbols_of(const StepSize& size) {
  const std::int64_t blocks = (size.kv_len + size.block_size - 1) / size.block_size;
  return {{"T", size.tokens},
          {"B", size.sequences},
          {"R", size.sequences},
          {"MB", blocks},
          {"NB", blocks * size.sequences + 1}};
}

Estimate estimate_step(const Graph& graph, const Device& device, const StepSize& size) {
  return estimate(graph, device, symbols_of(size), {static_cast<double>(size.kv_len)});
}

}  // namespace tk

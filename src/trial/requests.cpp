#include "trial/requests.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "graph/rewrite.h"
#include "npu/node_cost.h"
#include "trial/site_check.h"

namespace tk {
namespace {

std::string module_of(const Node& n) { return n.loc != nullptr ? n.loc->module : ""; }

// "model.layers.3.mlp.act" -> "model.layers.3": chains don't reach over blocks.
std::string block_of(const std::string& module) {
  const std::size_t digit = module.find_first_of("0123456789");
  if (digit == std::string::npos) return "";
  return module.substr(0, module.find('.', digit));
}

// The kernels that a node is launched as.
struct Kernels {
  const Node* node = nullptr;
  Cost cost;
  double seconds = 0;
  int launches = 0;  // more than one: torch_npu has no operator for it
  std::vector<const KernelWork*> works;
};

double seconds_of(const sim::Span& s) { return static_cast<double>(s.end - s.start) / 1e12; }

// In the graph's order, with the times of a simulated step.
std::vector<Kernels> kernels_of(const Step& step, const Simulation& simulated, const SymEnv& env,
                                const Load& load) {
  std::vector<double> seconds(step.kernels().size());
  for (const sim::Span& s : simulated.spans)
    seconds.at(static_cast<std::size_t>(s.launch)) += seconds_of(s);
  std::vector<Kernels> all;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const KernelWork& work = step.kernels()[i];
    if (all.empty() || all.back().node != work.node)
      all.push_back({work.node, cost_of(*work.node, env, load), 0, 0, {}});
    all.back().seconds += seconds[i];
    ++all.back().launches;
    all.back().works.push_back(&work);
  }
  return all;
}

// What one kernel could do with its neighbours.
bool fusable(const Kernels& k) {
  return k.launches == 1 && k.cost.cube == 0 && k.node->op->updates.empty() &&
         !k.node->op->name.starts_with("npu.");
}

// All that the kernels compute, in one. What only they read of each other stays inside.
KernelWork in_one(const std::vector<const KernelWork*>& works,
                  const std::unordered_map<int, int>& readers) {
  KernelWork one = *works.front();
  one.type = "Fused";
  one.family = Family::pointwise;
  one.vector_bytes = 0;
  one.parts = 0;
  one.products.clear();
  std::map<int, int> read_here;
  std::set<int> written_here;
  std::map<std::pair<int, bool>, std::int64_t> bytes;
  for (const KernelWork* w : works) {
    one.vector_bytes += w->vector_bytes;
    one.products.insert(one.products.end(), w->products.begin(), w->products.end());
    for (const Operand& o : w->operands) {
      if (o.write)
        written_here.insert(o.tensor);
      else
        ++read_here[o.tensor];
      std::int64_t& most = bytes[{o.tensor, o.write}];
      most = std::max(most, o.bytes);
    }
  }
  if (!one.products.empty()) one.family = Family::attention;
  one.operands.clear();
  for (const auto& [of, size] : bytes) {
    const auto& [tensor, write] = of;
    const auto all = readers.find(tensor);
    const bool inside =
        written_here.count(tensor) != 0 && all != readers.end() && all->second == read_here[tensor];
    if (!inside) one.operands.push_back({tensor, size, write});
  }
  return one;
}

// Time of the chains in a step that has each of them as one kernel.
double seconds_as_one(const Step& step, const std::vector<std::vector<const Kernels*>>& chains,
                      const NpuClock& clock, const StepShape& shape) {
  std::unordered_map<int, int> readers;
  for (const KernelWork& w : step.kernels())
    for (const Operand& o : w.operands) readers[o.tensor] += o.write ? 0 : 1;
  // A chain's kernel stands where its last did: all that it reads is there by then.
  std::unordered_map<const KernelWork*, const std::vector<const Kernels*>*> last;
  std::set<const KernelWork*> gone;
  for (const auto& chain : chains) {
    for (const Kernels* k : chain) gone.insert(k->works.begin(), k->works.end());
    last[chain.back()->works.back()] = &chain;
  }
  std::vector<KernelWork> kernels;
  std::vector<bool> fused;
  for (const KernelWork& w : step.kernels()) {
    if (const auto it = last.find(&w); it != last.end()) {
      std::vector<const KernelWork*> works;
      for (const Kernels* k : *it->second)
        works.insert(works.end(), k->works.begin(), k->works.end());
      kernels.push_back(in_one(works, readers));
      fused.push_back(true);
    } else if (gone.count(&w) == 0) {
      kernels.push_back(w);
      fused.push_back(false);
    }
  }
  Step with = step;
  with.set_kernels(std::move(kernels));
  double seconds = 0;
  for (const sim::Span& s : clock.step(with, shape).spans)
    if (fused.at(static_cast<std::size_t>(s.launch))) seconds += seconds_of(s);
  return seconds;
}

// Chains of kernels, by number. A node joins the chains of its inputs, and makes them one, unless a
// path from one of them leads through a node outside.
class Chains {
 public:
  explicit Chains(const std::vector<Kernels>& kernels) {
    for (const Kernels& k : kernels) kernels_[k.node] = &k;
  }

  std::vector<std::vector<const Node*>> run(const Graph& graph) {
    for (const Node* n : nodes(graph)) visit(n);
    std::map<int, std::vector<const Node*>> found;
    for (const Node* n : nodes(graph))
      if (const auto it = chain_.find(n); it != chain_.end()) found[root(it->second)].push_back(n);
    std::vector<std::vector<const Node*>> out;
    out.reserve(found.size());
    for (auto& [number, chain] : found) out.push_back(std::move(chain));
    return out;
  }

 private:
  struct Chain {
    int parent;
    std::string block;
    std::set<int> behind;  // chains from which a path leads out and to here
    bool open;             // others may join
  };

  int root(int c) const {
    while (chains_[static_cast<std::size_t>(c)].parent != c)
      c = chains_[static_cast<std::size_t>(c)].parent;
    return c;
  }
  Chain& chain(int c) { return chains_[static_cast<std::size_t>(c)]; }
  bool has(const std::set<int>& set, int c) const {
    return std::any_of(set.begin(), set.end(), [&](int x) { return root(x) == c; });
  }

  void visit(const Node* n) {
    std::set<int> left;  // chains from which a path leads out and to here
    std::set<int> near;  // chains of the inputs
    for (const Value* v : n->inputs) {
      if (v == nullptr || v->node == nullptr) continue;
      for (const int c : left_[v->node]) left.insert(root(c));
      if (const auto it = chain_.find(v->node); it != chain_.end()) near.insert(root(it->second));
    }
    const std::string block = block_of(module_of(*n));
    const auto it = kernels_.find(n);
    const bool view = n->op->view != nullptr;
    const bool real = it != kernels_.end() && !view;
    int own = -1;
    if (view || (real && fusable(*it->second)))
      for (const int c : near) {
        if (has(left, c) || !chain(c).open || chain(c).block != block) continue;
        if (own < 0) {
          own = c;
        } else if (!has(chain(own).behind, c) && !has(chain(c).behind, own)) {
          chain(c).parent = own;
          chain(own).behind.insert(chain(c).behind.begin(), chain(c).behind.end());
        }
      }
    if (own < 0 && real && (fusable(*it->second) || it->second->launches > 1)) {
      own = static_cast<int>(chains_.size());
      chains_.push_back({own, block, {}, it->second->launches == 1});
    }
    for (const int c : near)
      if (root(c) != own) left.insert(c);
    if (own >= 0) {
      chain_[n] = own;
      chain(own).behind.insert(left.begin(), left.end());
    }
    left_[n] = std::move(left);
  }

  std::unordered_map<const Node*, const Kernels*> kernels_;
  std::unordered_map<const Node*, std::set<int>> left_;
  std::unordered_map<const Node*, int> chain_;
  std::vector<Chain> chains_;
};

Site site_of(const std::vector<const Node*>& chain,
             const std::unordered_map<const Node*, std::int64_t>& position) {
  Site site;
  for (const Node* n : chain) site.nodes.push_back(position.at(n));
  return site;
}

double bytes_of(const Type& t, const SymEnv& env) {
  return static_cast<double>(t.numel().eval(env)) * static_cast<double>(size_of(t.dtype));
}

// The graph of one place as that of all: without lines, and weights by the class of their module.
std::string text_of(Graph graph) {
  graph.name = "chain";
  graph.ranges.clear();
  for (const auto& w : graph.weights()) w->name = class_of_module(w->name);
  for (Node* n : nodes(graph)) n->loc = nullptr;
  return print(graph);
}

std::string name_of_chain(const std::vector<const Node*>& kernels) {
  std::string name;
  std::string last;
  for (const Node* n : kernels) {
    const std::string op(n->op->name.substr(n->op->name.find('.') + 1));
    if (op != last) name += cat(name.empty() ? "" : "_", op);
    last = op;
  }
  return name;
}

}  // namespace

std::vector<OperatorRequest> operator_requests(const Graph& graph, const std::string& phase,
                                               const NpuClock& clock, const StepShape& shape) {
  const Step step = lower_graph(graph, shape, {});
  const Simulation simulated = clock.step(step, shape);
  const double step_s = simulated.step_ms() / 1e3;
  const SymEnv env = symbols_of(shape);
  const std::vector<Kernels> all_kernels =
      kernels_of(step, simulated, env, {static_cast<double>(shape.kv_len)});
  std::unordered_map<const Node*, const Kernels*> kernels;
  for (const Kernels& k : all_kernels) kernels[k.node] = &k;
  std::unordered_map<const Node*, std::int64_t> position;
  for (const Node* n : nodes(graph))
    position.emplace(n, static_cast<std::int64_t>(position.size()));

  // Chains of one kind, which all layers have.
  std::map<std::string, std::vector<std::vector<const Node*>>> kinds;
  for (std::vector<const Node*>& chain : Chains(all_kernels).run(graph)) {
    std::string kind = class_of_module(module_of(*chain.front()));
    for (const Node* n : chain) {
      kind += cat(" ", n->op->name);
      for (const auto& v : n->outputs) kind += cat(" ", v->type.str());
    }
    kinds[kind].push_back(std::move(chain));
  }
  std::vector<OperatorRequest> found;
  for (const auto& [kind, chains] : kinds) {
    const auto places = static_cast<std::int64_t>(chains.size());
    std::vector<std::vector<const Kernels*>> parts;
    double before = 0;
    for (const std::vector<const Node*>& chain : chains) {
      parts.emplace_back();
      for (const Node* n : chain)
        if (const auto it = kernels.find(n); it != kernels.end()) {
          parts.back().push_back(it->second);
          before += it->second->seconds;
        }
    }
    std::vector<const Node*> real;
    Cost all;
    int launches = 0;
    for (const Kernels* k : parts.front()) {
      real.push_back(k->node);
      all.read += k->cost.read;
      all.written += k->cost.written;
      launches += k->launches;
    }
    // What takes no longer than a clear gain has none, and need not be simulated.
    if (launches < 2 || (before < clear_seconds && before < clear_part * step_s)) continue;
    const SiteGraph cut = cut_out(graph, site_of(chains.front(), position));
    Cost one = all;
    if (real.size() > 1) {  // what passes between the kernels stays inside
      one.read = one.written = 0;
      for (const auto& v : cut.graph.inputs()) one.read += bytes_of(v->type, env);
      for (const auto& v : cut.graph.weights()) one.read += bytes_of(v->type, env);
      for (const Value* v : cut.graph.outputs()) one.written += bytes_of(v->type, env);
    }
    const double after = seconds_as_one(step, parts, clock, shape);
    if (after >= before) continue;
    const Node& first = *real.front();
    OperatorRequest r;
    r.name = name_of_chain(real);
    r.phase = phase;
    r.module = class_of_module(module_of(first));
    if (first.loc != nullptr && !first.loc->file.empty())
      r.where = cat(first.loc->file, ":", first.loc->line);
    r.chain = text_of(cut.graph.clone());
    r.places = places;
    r.tokens = shape.tokens;
    r.kernels = launches;
    r.bytes = all.read + all.written - one.read - one.written;
    r.before_s = before;
    r.after_s = after;
    r.step_s = step_s;
    found.push_back(std::move(r));
  }
  std::vector<OperatorRequest> out;
  for (OperatorRequest& r : found)
    if (r.gain_s() >= clear_seconds || r.gain_s() >= clear_part * r.step_s)
      out.push_back(std::move(r));
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.gain_s() > b.gain_s(); });
  return out;
}

}  // namespace tk

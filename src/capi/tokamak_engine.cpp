#include "capi/tokamak_engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "cpu/engine.h"
#include "cpu/plan_cache.h"
#include "moves/canonical/canonical.h"
#include "moves/flatten/attention.h"
#include "moves/fuse/move.h"
#include "plan/bind.h"

namespace {

using json = nlohmann::ordered_json;
using tk::cat;

thread_local std::string text;

// Runs `body`, whose result becomes the text; nothing is thrown across the C interface.
int guarded(const std::function<std::string()>& body) {
  try {
    text = body();
    return 0;
  } catch (const tk::UserError& e) {
    text = e.what();
    return 1;
  } catch (const std::exception& e) {
    text = e.what();
    return 2;
  }
}

// Engines run one at a time, so that intermediate results of all graphs share one arena, and teams
// of threads are shared by those that ask for the same number.
std::mutex running;

std::shared_ptr<tk::EngineMemory> shared_memory() {
  static const auto memory = std::make_shared<tk::EngineMemory>();
  return memory;
}

std::shared_ptr<tk::Team> shared_team(int threads) {
  static std::map<int, std::weak_ptr<tk::Team>> teams;
  std::shared_ptr<tk::Team> team = teams[threads].lock();
  if (team == nullptr) teams[threads] = team = std::make_shared<tk::Team>(threads);
  return team;
}

tk::TensorView view_of(const tk_engine_tensor& t) {
  tk::TensorView view;
  TK_CHECK(tk::parse_dtype(t.dtype, &view.dtype), "dtype ", t.dtype);
  if (t.rank > tk::max_rank)
    throw tk::UserError("TK0502", cat("a tensor of ", t.rank, " axes: at most ", tk::max_rank,
                                      " are possible here"));
  for (int i = 0; i < t.rank; ++i) {
    view.shape.push_back(t.shape[i]);
    view.strides.push_back(t.strides[i]);
  }
  static std::int64_t nothing;  // libraries give a tensor of no elements no address
  view.data = t.data == nullptr ? &nothing : t.data;
  return view;
}

// A plan for one set of sizes and one set of states.
struct Bound {
  tk::Bound bound;
  std::vector<tk::TensorView> states;  // in the plan's order
  std::vector<std::int64_t> symbols;
};

bool same_memory(const tk::TensorView& a, const tk::TensorView& b) {
  return a.data == b.data && a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides;
}

void check_number(const char* what, std::size_t want, int got) {
  if (want != static_cast<std::size_t>(got))
    throw tk::UserError("TK0502", cat(what, ": the graph has ", want, ", got ", got));
}

// An input's memory is read as the plan's type says, so it has to be of that type.
void check_input(const tk::BoundPlan& plan, int i, const tk::TensorView& got) {
  const tk::TensorView& want = plan.input(i);
  if (got.dtype == want.dtype && got.shape == want.shape && got.contiguous()) return;
  const int id = plan.plan->inputs[static_cast<std::size_t>(i)];
  throw tk::UserError(
      "TK0502", cat("input '", plan.plan->values[static_cast<std::size_t>(id)]->name, "' is ",
                    tk::name_of(want.dtype), want.shape.str(), " and contiguous, got ",
                    tk::name_of(got.dtype), got.shape.str(), " with strides ", got.strides.str()));
}

constexpr std::size_t max_bound = 16;

std::string operators() {
  json all = json::array();
  std::set<std::string_view> with_kernel;
  for (const tk::KernelEntry& e : tk::kernel_table()) with_kernel.insert(e.op);
  for (const tk::OpDef* op : tk::all_ops()) {
    if (op->name.starts_with("npu.")) continue;
    json j{{"name", op->name},
           {"kernel", with_kernel.contains(op->name)},
           {"view", op->view != nullptr}};
    for (const auto& t : op->parsed().tensors)
      j["tensors"].push_back({{"name", t.name}, {"optional", t.optional}, {"list", t.list}});
    for (const auto& a : op->parsed().attrs)
      j["attrs"].push_back({{"name", a.name}, {"kind", a.kind}, {"list", a.list}});
    all.push_back(std::move(j));
  }
  return all.dump();
}

// AOT autograd writes a linear layer over [B, S, K] as a product of matrices [B*S, K] between two
// reshapes. The moves look for layers, so the reshape goes behind the product, where it meets the
// other one and both go.
void restore_linear(tk::Graph* graph) {
  for (tk::Node* n : tk::nodes(*graph)) {
    if (!n->is("aten.linear")) continue;
    const tk::Value* x = n->in(0);
    if (x->node == nullptr || !x->node->is("aten.reshape") || x->type.rank() != 2) continue;
    tk::Value* wide = x->node->in(0);
    if (wide->type.rank() < 2 || !(wide->type.dim(-1) == x->type.dim(-1))) continue;
    tk::Builder builder{*graph, n, n->loc};
    std::vector<tk::Value*> inputs = n->inputs;
    inputs[0] = wide;
    tk::Value* layer = builder.op("aten.linear", std::move(inputs), n->attrs);
    tk::Value* flat = builder.op("aten.reshape", {layer}, {{"shape", n->out()->type.shape}});
    graph->replace_uses(n->out(), flat);
  }
  graph->erase_dead();
}

// What a value is a view of.
tk::Value* root_of(tk::Value* v) {
  while (v->node != nullptr && v->node->op->view != nullptr && v->node->in(0) != nullptr)
    v = v->node->in(0);
  return v;
}

// A state is assigned at the end of the graph. What is still to be read of its old contents then,
// as a result or by another assignment, is copied before; rewrites make views out of much.
void keep_old_contents(tk::Graph* graph) {
  std::set<const tk::Value*> assigned;
  tk::Node* first = nullptr;
  for (tk::Node* n : tk::nodes(*graph)) {
    if (!n->is("tk.assign")) continue;
    if (first == nullptr) first = n;
    assigned.insert(root_of(n->in(0)));
  }
  if (first == nullptr) return;
  const auto is_old = [&](tk::Value* v) { return assigned.contains(root_of(v)); };
  tk::Builder builder{*graph, first, first->loc};
  for (tk::Node* n : tk::nodes(*graph))
    if (n->is("tk.assign") && is_old(n->in(1)))
      graph->set_input(n, 1, builder.op("aten.clone", {n->in(1)}));
  for (std::size_t i = 0; i < graph->outputs().size(); ++i)
    if (tk::Value* v = graph->outputs()[i]; is_old(v))
      graph->set_output(static_cast<int>(i), builder.op("aten.clone", {v}));
}

void rewrite(tk::Graph* graph, bool fuse) {
  tk::canonicalize(*graph);
  restore_linear(graph);
  tk::canonicalize(*graph);
  tk::recognise_attention(*graph);
  if (fuse)
    for (const tk::Move& move : tk::all_moves())
      if (move.where != tk::Where::npu && !move.changes_results) tk::apply_move(move, *graph);
  keep_old_contents(graph);
  graph->erase_dead();
  graph->erase_unused_weights();
  tk::verify(*graph, "the moves");
}

// What decides how a graph is rewritten. Names of weights are not among it, addresses of another
// process that they are.
std::string plan_key(const tk::Graph& graph, const tk_engine_tensor* weights, int n_weights,
                     int threads, int fuse) {
  std::string key = tk::plan_key_of_this_machine();
  key += cat("threads ", threads, "\nfuse ", fuse != 0, "\n");
  for (int i = 0; i < n_weights; ++i) {
    const tk::TensorView w = view_of(weights[i]);
    key += cat("weight ", tk::name_of(w.dtype), w.shape.str(), w.strides.str(), "\n");
  }
  return key + tk::print(graph);
}

// `rewrite`, or its result from the folder, when one is given. Gives a warning, or "".
std::string rewrite_or_find(tk::Graph* graph, const tk_engine_tensor* weights, int n_weights,
                            int threads, int fuse, const char* folder) {
  if (folder == nullptr) {
    rewrite(graph, fuse != 0);
    return "";
  }
  std::map<std::string, std::string> names;  // for the time being a weight's name is its number
  for (const auto& v : graph->weights()) {
    std::string number = cat("w", names.size());
    v->name.swap(number);
    names[v->name] = std::move(number);
  }
  tk::PlanCache cache(folder);
  const std::string key = plan_key(*graph, weights, n_weights, threads, fuse);
  if (auto found = cache.find(key)) {
    *graph = std::move(found->at(0));
  } else {
    rewrite(graph, fuse != 0);
    const tk::Graph* const plan = graph;
    cache.store(key, {&plan, 1});
  }
  for (const auto& v : graph->weights()) v->name = names.at(v->name);
  return cache.warning();
}

}  // namespace

struct tk_engine {
  tk::Plan plan;
  std::vector<std::string> symbols;  // in the order of the ranges
  std::size_t n_states = 0;          // that are given
  std::vector<int> state_of;         // the plan's states among those given
  std::shared_ptr<tk::Team> team;
  std::shared_ptr<tk::EngineMemory> memory;
  std::unique_ptr<tk::Replay> replay;
  std::list<Bound> bound;  // most recently used first

  Bound& bind(const std::int64_t* sizes, const tk_engine_tensor* given);
  void make_ready(Bound* b);
};

Bound& tk_engine::bind(const std::int64_t* sizes, const tk_engine_tensor* given) {
  std::vector<tk::TensorView> states;
  states.reserve(state_of.size());
  for (const int k : state_of) states.push_back(view_of(given[k]));
  const auto same = [&](const Bound& b) {
    return std::equal(b.symbols.begin(), b.symbols.end(), sizes) &&
           std::equal(b.states.begin(), b.states.end(), states.begin(), same_memory);
  };
  const auto it = std::find_if(bound.begin(), bound.end(), same);
  if (it != bound.end()) {
    bound.splice(bound.begin(), bound, it);
  } else {
    Bound b;
    b.symbols.assign(sizes, sizes + symbols.size());
    tk::SymEnv env;
    for (std::size_t i = 0; i < symbols.size(); ++i) env[symbols[i]] = sizes[i];
    b.bound.plan = tk::bind_plan(plan, env, states);  // checks their dtypes and shapes
    b.states = std::move(states);
    bound.push_front(std::move(b));
    if (bound.size() > max_bound) bound.pop_back();
  }
  make_ready(&bound.front());
  return bound.front();
}

void tk_engine::make_ready(Bound* b) {
  tk::Bound& x = b->bound;
  std::byte* arena = memory->arena.reserve(x.plan.arena_bytes);
  if (x.arena_generation != memory->arena.generation()) {
    tk::place(&x.plan, arena);
    x.list = {};
    tk::prepare(x.plan, team->size(), {}, &x.list);
    x.arena_generation = memory->arena.generation();
    x.scratch_generation = 0;
  }
  std::byte* scratch = memory->scratch.reserve(x.list.scratch_bytes);
  if (x.scratch_generation != memory->scratch.generation()) {
    x.list.set_scratch(scratch);
    x.scratch_generation = memory->scratch.generation();
  }
}

struct tk_engine_pool {
  tk::ConstantPool constants;
};

tk_engine_pool* tk_engine_pool_new(void) { return new tk_engine_pool; }

void tk_engine_pool_delete(tk_engine_pool* pool) {
  const std::lock_guard lock(running);
  delete pool;
}

const char* tk_engine_text(void) { return text.c_str(); }

int tk_engine_operators(void) { return guarded(operators); }

int tk_engine_check(const char* graph) {
  return guarded([&] {
    tk::parse_graph(graph);
    return std::string();
  });
}

tk_engine* tk_engine_new(const char* graph, const tk_engine_tensor* weights, int n_weights,
                         const tk_engine_tensor* states, int n_states, int threads, int fuse,
                         tk_engine_pool* pool, const char* plan_cache) {
  auto e = std::make_unique<tk_engine>();
  const int failed = guarded([&] {
    const std::lock_guard lock(running);
    tk::Graph g = tk::parse_graph(graph);
    for (const auto& [name, range] : g.ranges) e->symbols.push_back(name);
    std::map<std::string_view, int> by_name;
    for (int i = 0; i < n_states; ++i) by_name[states[i].name] = i;
    e->n_states = by_name.size();
    std::string warning = rewrite_or_find(&g, weights, n_weights, threads, fuse, plan_cache);
    tk::Weights named;
    for (int i = 0; i < n_weights; ++i) {
      tk::Tensor t;
      static_cast<tk::TensorView&>(t) = view_of(weights[i]);
      t.owner = std::shared_ptr<void>(t.data, [](void*) {});  // the caller's
      named.emplace(weights[i].name, std::move(t));
    }
    e->plan = tk::make_plan(std::move(g), named, &pool->constants);
    for (const auto& v : e->plan.graph.states()) e->state_of.push_back(by_name.at(v->name));
    e->team = shared_team(threads);
    e->memory = shared_memory();
    e->replay = std::make_unique<tk::Replay>(e->team.get());
    return warning;
  });
  return failed == 0 ? e.release() : nullptr;
}

void tk_engine_delete(tk_engine* engine) {
  const std::lock_guard lock(running);
  delete engine;
}

int tk_engine_run(tk_engine* engine, const int64_t* symbols, int n_symbols,
                  const tk_engine_tensor* states, int n_states, const tk_engine_tensor* inputs,
                  int n_inputs, const tk_engine_tensor* outputs, int n_outputs) {
  return guarded([&] {
    const std::lock_guard lock(running);
    check_number("symbols", engine->symbols.size(), n_symbols);
    check_number("states", engine->n_states, n_states);
    check_number("inputs", engine->plan.inputs.size(), n_inputs);
    const tk::Bound& b = engine->bind(symbols, states).bound;
    const tk::BoundPlan& plan = b.plan;
    for (int i = 0; i < n_inputs; ++i) {
      const tk::TensorView from = view_of(inputs[i]);
      check_input(plan, i, from);
      const tk::TensorView& to = plan.input(i);
      if (to.numel() > 0) std::memcpy(to.data, from.data, static_cast<std::size_t>(to.bytes()));
    }
    engine->replay->run(b.list.launches);
    TK_CHECK(n_outputs == static_cast<int>(plan.plan->outputs.size()), "outputs: ", n_outputs);
    for (int i = 0; i < n_outputs; ++i) {
      const tk::TensorView to = view_of(outputs[i]);
      const tk::TensorView& from = plan.output(i);
      TK_CHECK(to.shape == from.shape && to.dtype == from.dtype, "output ", i, " is ",
               from.shape.str(), ", wanted ", to.shape.str());
      if (to.contiguous() && from.contiguous())
        std::memcpy(to.data, from.data, static_cast<std::size_t>(from.bytes()));
      else
        tk::copy_into(to, from);
    }
    return std::string();
  });
}

int tk_engine_describe(tk_engine* engine) {
  return guarded([&] {
    const std::lock_guard lock(running);
    const tk::Plan& plan = engine->plan;
    json j{{"nodes", plan.graph.n_nodes()}, {"once", plan.n_once}, {"once_bytes", plan.once_bytes}};
    if (engine->bound.empty()) return j.dump();
    Bound& b = engine->bound.front();
    engine->make_ready(&b);
    tk::PrepareOptions options;
    std::vector<std::string> passed_over;
    options.passed_over = &passed_over;
    tk::LaunchList again;  // asked once more, this time for reasons
    tk::prepare(b.bound.plan, engine->team->size(), options, &again);
    j["launches"] = b.bound.list.launches.size();
    j["arena_bytes"] = b.bound.plan.arena_bytes;
    j["kernels"] = json::array();
    for (const tk::KernelUse& u : tk::kernel_use(b.bound))
      j["kernels"].push_back(
          {{"op", u.op}, {"kernel", u.kernel}, {"launches", u.launches}, {"bytes", u.bytes}});
    j["passed_over"] = passed_over;
    return j.dump();
  });
}

int tk_engine_graph(tk_engine* engine) {
  return guarded([&] { return tk::print(engine->plan.graph); });
}

int tk_engine_profile(tk_engine* engine) {
  return guarded([&] {
    const std::lock_guard lock(running);
    TK_CHECK(!engine->bound.empty(), "nothing has run yet");
    Bound& b = engine->bound.front();
    engine->make_ready(&b);
    const auto& launches = b.bound.list.launches;
    tk::LaunchTimes times{std::vector<std::int64_t>(launches.size()),
                          std::vector<std::int64_t>(launches.size())};
    const auto start = std::chrono::steady_clock::now();
    engine->replay->run(launches, &times);
    const std::chrono::nanoseconds wall = std::chrono::steady_clock::now() - start;
    json all = json::array();
    for (std::size_t i = 0; i < launches.size(); ++i)
      all.push_back({{"op", launches[i].node->op->name},
                     {"kernel", launches[i].kernel},
                     {"ns", times.end[i] - times.start[i]}});
    return json{{"wall_ns", wall.count()}, {"launches", std::move(all)}}.dump();
  });
}

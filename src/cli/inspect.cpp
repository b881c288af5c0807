#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "cli/capture_view.h"
#include "cli/cli.h"
#include "cli/npu_view.h"
#include "graph/rewrite.h"
#include "trial/optimize.h"

namespace tk::cli {
namespace {

struct Flags {
  std::string model, stage = "captured", target;
  std::int64_t tp = 1, ep = 1;
  bool graph = false, ops = false, json = false, graph_mode = false;
  std::string backend = "npugraph_ex";
};

// Modules by the class of their path: the same place in all layers is one line.
struct ModuleRow {
  std::string type;
  std::set<std::string> paths;
  std::int64_t nodes = 0, parameters = 0;
};

std::int64_t elements(const Type& t) {
  const Sym n = t.numel();
  return n.is_const() ? n.value() : 0;
}

std::map<std::string, ModuleRow> modules_of(const Graph& graph) {
  std::map<std::string, ModuleRow> rows;
  std::set<const Value*> counted;
  for (Node* n : nodes(graph)) {
    if (n->loc == nullptr || n->loc->module.empty()) continue;
    ModuleRow& row = rows[class_of_module(n->loc->module)];
    row.paths.insert(n->loc->module);
    if (!n->loc->module_type.empty()) row.type = n->loc->module_type;
    ++row.nodes;
    for (const Value* v : n->inputs)
      if (v != nullptr && v->kind == ValueKind::weight && counted.insert(v).second)
        row.parameters += elements(v->type);
  }
  return rows;
}

struct Experts {
  std::int64_t sites = 0, experts = 0, per_token = 0;
};

// Routed experts as the captured graph shows them: grouped products over [E, K, N] weights, and
// the k of the routing's last top-k before them.
std::optional<Experts> experts_of(const Graph& graph) {
  Experts e;
  std::int64_t k = 0;
  std::set<std::string> seen;
  for (Node* n : nodes(graph)) {
    if (n->is("aten.topk"))
      k = n->out()->type.shape.back().is_const() ? n->out()->type.shape.back().value() : k;
    const bool product = n->is("aten._grouped_mm") || n->is("aten.bmm") || n->is("aten.matmul") ||
                         n->is("npu.npu_grouped_matmul");
    if (!product || k == 0) continue;
    for (Value* v : n->inputs) {
      if (v == nullptr) continue;
      const Value* w = v;
      while (w->node != nullptr && w->node->in(0) != nullptr) w = w->node->in(0);
      if (w->kind != ValueKind::weight || w->type.rank() != 3) continue;
      e.experts = w->type.dim(0).is_const() ? w->type.dim(0).value() : 0;
      e.per_token = k;
      seen.insert(n->loc != nullptr ? n->loc->module : "");
    }
  }
  e.sites = static_cast<std::int64_t>(seen.size());
  if (e.sites == 0) return std::nullopt;
  return e;
}

struct Summary {
  CapturedModel model;
  std::optional<Prepared> prepared;
  std::string problem;  // why there is no cached form
  std::int64_t parameters = 0, weight_bytes = 0;
};

Summary summarise(const Flags& f) {
  Summary s;
  ImportOptions options;
  options.allow_unknown = true;
  s.model = load_model(f.model, options);
  for (const auto& w : s.model.graph.weights()) {
    s.parameters += elements(w->type);
    s.weight_bytes += elements(w->type) * static_cast<std::int64_t>(size_of(w->type.dtype));
  }
  try {
    s.prepared = prepare(s.model, 128);
  } catch (const UserError& e) {
    s.problem = e.what();  // shown as part of the answer
  }
  return s;
}

// Attention layers that are alike, with how many there are.
std::vector<std::pair<CacheLayer, int>> kinds_of(const CacheSpec& cache) {
  std::vector<std::pair<CacheLayer, int>> kinds;
  for (const CacheLayer& l : cache.layers) {
    bool found = false;
    for (auto& [k, n] : kinds)
      if (k.kind == l.kind && k.mask == l.mask && k.query_heads == l.query_heads &&
          k.kv_heads == l.kv_heads && k.head_dim == l.head_dim && k.sinks == l.sinks &&
          k.softcap == l.softcap) {
        ++n;
        found = true;
      }
    if (!found) kinds.emplace_back(l, 1);
  }
  return kinds;
}

std::string describe(const CacheLayer& l) {
  std::string s = fmt::format("{}, {} query heads, {} key heads, head dim {}", l.kind,
                              l.query_heads, l.kv_heads, l.head_dim);
  s += l.mask.window > 0 ? fmt::format(", {} {}", l.mask.kind, l.mask.window)
                         : fmt::format(", {}", l.mask.kind);
  if (l.sinks) s += ", sinks";
  if (l.softcap > 0) s += fmt::format(", soft-cap {}", l.softcap);
  return s;
}

void print_json(const Summary& s) {
  nlohmann::ordered_json out{
      {"model_type", s.model.config.model_type}, {"parameters", s.parameters},
      {"weight_bytes", s.weight_bytes},          {"has_weights", s.model.has_weights},
      {"nodes", s.model.graph.n_nodes()},        {"max_positions", s.model.config.max_positions}};
  if (s.prepared) {
    const CacheSpec& cache = s.prepared->cached.cache;
    out["layers"] = cache.layers.size();
    out["cache_bytes_per_token"] = cache.bytes_per_token();
    for (const CacheLayer& l : cache.layers)
      out["attention"].push_back({{"module", l.module},
                                  {"kind", l.kind},
                                  {"mask", l.mask.kind},
                                  {"window", l.mask.window},
                                  {"query_heads", l.query_heads},
                                  {"kv_heads", l.kv_heads},
                                  {"head_dim", l.head_dim},
                                  {"sinks", l.sinks},
                                  {"softcap", l.softcap}});
  } else {
    out["problem"] = s.problem;
  }
  if (const auto e = experts_of(s.model.graph))
    out["experts"] = {{"layers", e->sites}, {"experts", e->experts}, {"per_token", e->per_token}};
  for (const auto& [path, row] : modules_of(s.model.graph))
    out["modules"].push_back({{"path", path},
                              {"type", row.type},
                              {"count", row.paths.size()},
                              {"nodes", row.nodes},
                              {"parameters", row.parameters}});
  fmt::print("{}\n", out.dump(1));
}

void print_ops(const Graph& g) {
  std::map<std::string_view, int> counts;
  for (Node* n : nodes(g)) ++counts[n->op->name];
  std::vector<std::pair<int, std::string_view>> sorted;
  sorted.reserve(counts.size());
  for (const auto& [name, n] : counts) sorted.emplace_back(-n, name);
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [n, name] : sorted) fmt::print("{:>6}  {}\n", -n, name);
}

// What the fusion tree of an NPU makes of it.
int run_npu(const Flags& f) {
  Scenario scenario{Target::a2, f.tp, f.ep, 1};
  if (!parse_target(f.target, &scenario.target) || scenario.target == Target::cpu)
    throw UserError("TK0703", cat("there is no NPU target '", f.target, "'")).help("a2 and a3 are");
  const Blueprint b = blueprint(load_model(f.model), {}, scenario);
  if (f.json)
    fmt::print("{}", to_json(b));
  else
    print_chains(b);
  return b.gate.empty() ? 0 : 1;
}

int run_graph_mode(const Flags& f) {
  Target target = Target::cpu;
  if (!f.target.empty() && !parse_target(f.target, &target))
    throw UserError("TK0703", cat("there is no target '", f.target, "'"))
        .help("cpu, a2 and a3 are");
  ImportOptions options;
  options.allow_unknown = true;
  return show_capturability(capturability_of(load_model(f.model, options), target,
                                             f.backend == "ge_graph" ? CaptureBackend::ge_graph
                                                                     : CaptureBackend::npugraph_ex),
                            f.json);
}

int run(const Flags& f) {
  if (f.graph_mode) return run_graph_mode(f);
  if (!f.target.empty()) return run_npu(f);
  Summary s = summarise(f);
  if (f.graph || f.ops) {
    const Graph* g = &s.model.graph;
    Graph decode;
    if (f.stage != "captured") {
      if (!s.prepared)
        throw UserError("TK0709", cat("there is no stage '", f.stage, "' of this model"))
            .note(s.problem);
      g = f.stage == "canonical" ? &s.prepared->captured : &s.prepared->cached.graph;
    }
    if (f.stage == "optimized") {
      Graph prefill = g->clone();
      decode = g->clone();
      apply_all_moves(&prefill, &decode, {});
      g = &decode;
    }
    if (f.ops) {
      print_ops(*g);
    } else {
      fmt::print("{}", print(*g));
    }
    return 0;
  }
  if (f.json) {
    print_json(s);
    return 0;
  }
  fmt::print("model        {} {}\n", display_name(s.model),
             s.model.config.model_type.empty() ? "" : cat("(", s.model.config.model_type, ")"));
  fmt::print("parameters   {} ({}{})\n", human_count(static_cast<double>(s.parameters)),
             human_bytes(static_cast<double>(s.weight_bytes)),
             s.model.has_weights ? "" : ", no weights here");
  fmt::print("graph        {} nodes captured", s.model.graph.n_nodes());
  if (s.prepared)
    fmt::print(", {} canonical, {} cached", s.prepared->captured.n_nodes(),
               s.prepared->cached.graph.n_nodes());
  fmt::print("\n");
  if (s.prepared) {
    for (const auto& [layer, n] : kinds_of(s.prepared->cached.cache))
      fmt::print("attention    {} x {}\n", n, describe(layer));
    fmt::print("cache        {} per token\n",
               human_bytes(static_cast<double>(s.prepared->cached.cache.bytes_per_token())));
  }
  if (const auto e = experts_of(s.model.graph))
    fmt::print("experts      {} layers of {}, {} for each token\n", e->sites, e->experts,
               e->per_token);
  fmt::print("\n{:<52} {:<28} {:>5} {:>7} {:>10}\n", "module", "type", "count", "nodes",
             "parameters");
  for (const auto& [path, row] : modules_of(s.model.graph))
    fmt::print("{:<52} {:<28} {:>5} {:>7} {:>10}\n", path, row.type, row.paths.size(), row.nodes,
               row.parameters > 0 ? human_count(static_cast<double>(row.parameters)) : "");
  if (!s.prepared) {
    fmt::print("\nThere is no cached form of this model:\n{}\n", s.problem);
    return 1;
  }
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand(
      "inspect", "What a captured model is: layers, attention, experts, parameters, cache");
  c->add_option("model", flags->model, "A .pt2, or a folder that holds one")->required();
  c->add_flag("--graph", flags->graph, "The graph as text");
  c->add_flag("--ops", flags->ops, "Operators with their counts");
  c->add_option("--stage", flags->stage, "Which graph for --graph and --ops")
      ->check(CLI::IsMember({"captured", "canonical", "cached", "optimized"}))
      ->capture_default_str();
  c->add_option("--target", flags->target,
                "a2 or a3: for each chain the site that matches, its operator, what decided");
  c->add_option("--tp", flags->tp, "Tensor-parallel degree that --target assumes")
      ->check(CLI::Range(1, 4096));
  c->add_option("--ep", flags->ep, "Expert-parallel degree that --target assumes")
      ->check(CLI::Range(1, 4096));
  c->add_flag("--graph-mode", flags->graph_mode,
              "What stands against capturing and replaying a decode step");
  c->add_option("--backend", flags->backend, "For --graph-mode: what captures")
      ->check(CLI::IsMember({"npugraph_ex", "ge_graph"}))
      ->capture_default_str();
  c->add_flag("--json", flags->json, "The same as JSON");
  c->footer("Example: tokamak inspect examples/stories260k");
  c->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace tk::cli

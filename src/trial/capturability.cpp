#include "trial/capturability.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include "base/error.h"
#include "graph/rewrite.h"

namespace tk {
namespace {

struct Forbidden {
  std::string_view op;  // without "aten." and the overload
  std::string_view cause, found, rewrite;
};

// GM-11. By PyTorch's own tags: nondeterministic_seeded, data_dependent_output,
// dynamic_output_shape.
constexpr std::string_view outside = "sample outside the region; model.eval() switches dropout off";
constexpr std::string_view keep = "keep a tensor, or make the value an input of the region";
constexpr std::string_view mask_it = "torch.where or a multiplication with the mask";
constexpr std::array forbidden = {
    Forbidden{"rand", "random", "a random operator", outside},
    Forbidden{"rand_like", "random", "a random operator", outside},
    Forbidden{"randn", "random", "a random operator", outside},
    Forbidden{"randn_like", "random", "a random operator", outside},
    Forbidden{"randint", "random", "a random operator", outside},
    Forbidden{"randint_like", "random", "a random operator", outside},
    Forbidden{"randperm", "random", "a random operator", outside},
    Forbidden{"normal", "random", "a random operator", outside},
    Forbidden{"uniform", "random", "a random operator", outside},
    Forbidden{"exponential", "random", "a random operator", outside},
    Forbidden{"bernoulli", "random", "a random operator", outside},
    Forbidden{"multinomial", "random", "a random operator", outside},
    Forbidden{"native_dropout", "random", "a random operator", outside},
    Forbidden{"item", "value", "a value read by the host", keep},
    Forbidden{"_local_scalar_dense", "value", "a value read by the host", keep},
    Forbidden{"equal", "value", "a value read by the host", keep},
    Forbidden{"is_nonzero", "value", "a value read by the host", keep},
    Forbidden{"nonzero", "shape", "a shape that depends on data", mask_it},
    Forbidden{"argwhere", "shape", "a shape that depends on data", mask_it},
    Forbidden{"masked_select", "shape", "a shape that depends on data", mask_it},
    Forbidden{"unique_consecutive", "shape", "a shape that depends on data", mask_it},
    Forbidden{"_unique", "shape", "a shape that depends on data", mask_it},
    Forbidden{"_unique2", "shape", "a shape that depends on data", mask_it},
    Forbidden{"unique_dim", "shape", "a shape that depends on data", mask_it},
    Forbidden{"bincount", "shape", "a shape that depends on data",
              "a one-hot sum over a fixed number of classes"},
    Forbidden{"repeat_interleave", "shape", "a shape that depends on data", "give output_size"},
};

// As the capture calls it, also of operators that are not known here.
std::string_view op_name(const Node& n) {
  return n.is("tk.opaque") ? std::string_view(n.args().text("target")) : n.op->name;
}

// "rand" of "aten.rand.default", "aten.rand_"; empty when the operator is not PyTorch's.
std::string_view stem(std::string_view op) {
  if (!op.starts_with("aten.")) return {};
  op.remove_prefix(5);
  op = op.substr(0, op.find('.'));
  while (op.size() > 1 && op.ends_with('_')) op.remove_suffix(1);
  return op;
}

const Forbidden* forbidden_of(const Node& n) {
  const std::string_view name = stem(op_name(n));
  if (name.empty()) return nullptr;
  if (name == "dropout" || name == "feature_dropout" || name == "alpha_dropout") {
    static constexpr Forbidden dropout{"dropout", "random", "dropout in training mode", outside};
    return n.is("tk.opaque") ? &dropout : nullptr;  // the operator known here is that for inference
  }
  if (name == "index" || name == "index_put") {
    static constexpr Forbidden by_mask{"index", "shape", "an index that is a boolean mask",
                                       mask_it};
    for (std::size_t i = 1; i < n.inputs.size(); ++i)
      if (n.inputs[i] != nullptr && n.inputs[i]->type.dtype == DType::boolean &&
          !(name == "index_put" && i + 1 == n.inputs.size()))
        return &by_mask;
    return nullptr;
  }
  if (name == "repeat_interleave" &&
      (n.inputs.size() < 2 || n.inputs[1] == nullptr || n.attrs.find("output_size") != nullptr))
    return nullptr;
  const auto* found = std::find_if(forbidden.begin(), forbidden.end(),
                                   [name](const Forbidden& f) { return f.op == name; });
  return found == forbidden.end() ? nullptr : found;
}

// The symbols that grow with each token of a request: of the capture's S, not of a flat graph's T,
// which a bucket fixes.
std::set<std::string, std::less<>> growing(const Graph& g) {
  std::set<std::string, std::less<>> symbols;
  if (!g.states().empty()) return symbols;
  for (const auto& v : g.inputs())
    if (v->type.rank() >= 2) v->type.shape.back().collect_symbols(&symbols);
  return symbols;
}

bool mentions(const Sym& s, const std::set<std::string, std::less<>>& symbols) {
  return std::any_of(symbols.begin(), symbols.end(),
                     [&s](const std::string& name) { return s.mentions(name); });
}

int growing_dims(const Type& t, const std::set<std::string, std::less<>>& symbols) {
  return static_cast<int>(std::count_if(t.shape.begin(), t.shape.end(),
                                        [&](const Sym& s) { return mentions(s, symbols); }));
}

class Finder {
 public:
  Finder(const Graph& graph, CaptureBackend backend)
      : graph_(graph), backend_(backend), growing_(growing(graph)) {}

  std::vector<CaptureFactor> run() {
    if (!growing_.empty())
      factors_.push_back({"GM-10", "shape",
                          cat("sizes that differ from call to call: ",
                              fmt::format("{}", fmt::join(growing_, ", "))),
                          "inputs", "", "token-flat: a decode step has one token for each sequence",
                          0, true});
    for (Node* n : nodes(graph_)) {
      visit(*n);
      if (depends_on_step(*n)) per_step_.insert(n);
    }
    return std::move(factors_);
  }

 private:
  // Computed from inputs, so anew in each step; of weights alone it is a constant.
  bool depends_on_step(const Node& n) const {
    if (n.inputs.empty()) return growing_dims(n.out()->type, growing_) > 0;
    return std::any_of(n.inputs.begin(), n.inputs.end(), [this](const Value* v) {
      return v != nullptr &&
             (v->kind == ValueKind::input || (v->node != nullptr && per_step_.contains(v->node)));
    });
  }

  void visit(const Node& n) {
    if (const Forbidden* f = forbidden_of(n))
      add(n, "GM-11", f->cause, cat(f->found, ": ", op_name(n)), f->rewrite, true);
    if (n.op->npu != nullptr) visit_facts(n);
    if (growing_.empty()) return visit_flat(n);
    const std::string_view name = stem(op_name(n));
    const Type& t = n.out()->type;
    if (name == "arange")
      add(n, "GM-12", "shape", cat("a range over ", t.str(), " made inside"),
          "positions are inputs of the flat graph, and a bucket fixes its sizes", false);
    else if (n.is("aten.scaled_dot_product_attention"))
      add(n, "GM-15", "no cache", "attention over keys and values of this call alone",
          "a paged cache, written in place, read with lengths", true);
    else if (t.dtype == DType::boolean && growing_dims(t, growing_) >= 2 && t.rank() >= 3)
      add(n, "GM-14", "mask", cat("a mask ", t.str(), " computed in each step"),
          "attention takes lengths, and no mask", false);
    visit_flat(n);
  }

  // cos and sin once for each step are cheap; once for each layer is a table that was not shared.
  void visit_flat(const Node& n) {
    const std::string_view name = stem(op_name(n));
    if (name != "cos" && name != "sin") return;
    if (!std::any_of(n.inputs.begin(), n.inputs.end(), [this](const Value* v) {
          return v != nullptr && v->node != nullptr && per_step_.contains(v->node);
        }))
      return;
    add(n, "GM-16", "rope", cat(n.op->name, " of positions in each step"),
        "one lookup per step in a table made at load", false);
  }

  void visit_facts(const Node& n) {
    const std::string_view mode = n.op->npu->graph_mode;
    if (mode.find("no shape function") != mode.npos)
      add(n, "GM-11", "operator", cat(n.op->name, " has no shape function for capture"),
          "the unfused form", true);
    else if (backend_ == CaptureBackend::ge_graph && mode.find("no GE converter") != mode.npos)
      add(n, "GM-11", "operator", cat(n.op->name, " has no GE converter"),
          "npugraph_ex, or the unfused form", true);
  }

  void add(const Node& n, std::string_view rule, std::string_view cause, std::string found,
           std::string_view rewrite, bool blocks) {
    const std::string module = n.loc == nullptr ? "" : class_of_module(n.loc->module);
    const std::string place =
        n.loc == nullptr || n.loc->file.empty() ? "" : cat(n.loc->file, ":", n.loc->line);
    const auto key = std::tuple(std::string(rule), std::string(cause), module, place);
    const auto [at, fresh] = rows_.try_emplace(key, factors_.size());
    if (fresh)
      factors_.push_back({std::string(rule), std::string(cause), std::move(found), module, place,
                          std::string(rewrite), 0, blocks});
    ++factors_[at->second].nodes;
  }

  const Graph& graph_;
  CaptureBackend backend_;
  std::set<std::string, std::less<>> growing_;
  std::unordered_set<const Node*> per_step_;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, std::size_t> rows_;
  std::vector<CaptureFactor> factors_;
};

std::string described(const Value& v) { return cat(v.name, ": ", v.type.str()); }

// Leads to a state through views and in-place writes.
const Value* state_behind(const Value* v) {
  while (v != nullptr && v->kind == ValueKind::node) {
    const auto updates = v->node->op->updates;
    const auto i = static_cast<std::size_t>(v->index);
    const int updated = i < updates.size() ? updates[i] : -1;
    if (updated < 0) return nullptr;
    v = v->node->in(updated);
  }
  return v != nullptr && v->kind == ValueKind::state ? v : nullptr;
}

}  // namespace

std::vector<CaptureFactor> capture_factors(const Graph& graph, CaptureBackend backend) {
  std::vector<CaptureFactor> factors = Finder(graph, backend).run();
  std::stable_sort(
      factors.begin(), factors.end(),
      [](const CaptureFactor& a, const CaptureFactor& b) { return a.blocks > b.blocks; });
  return factors;
}

CaptureRegion capture_region(const Graph& graph) {
  CaptureRegion r;
  std::set<std::string, std::less<>> symbols;
  std::set<std::string_view> names;
  for (const auto& v : graph.inputs()) {
    r.inputs.push_back(described(*v));
    names.insert(v->name);
    for (const Sym& s : v->type.shape) s.collect_symbols(&symbols);
  }
  r.fixed.assign(symbols.begin(), symbols.end());
  for (const auto& v : graph.states()) r.states.push_back(described(*v));
  for (std::string_view needed :
       {"input_ids", "position_ids", "slot_mapping", "block_table", "kv_lens"})
    if (!names.contains(needed)) r.missing.emplace_back(needed);
  for (const Value* v : graph.outputs()) {
    r.outputs.push_back(v->type.str());
    if (const Value* s = state_behind(v)) r.returned.push_back(s->name);
  }
  return r;
}

Verdict capture_verdict(const Graph& graph, std::optional<Phase> phase, CaptureBackend backend) {
  if (!phase)
    return {
        VerdictKind::pending,
        "specialise first: the graph serves prefill and decode alike, so a step's sizes and its "
        "path are open",
        "GM-02",
        {}};
  if (*phase == Phase::prefill)
    return {VerdictKind::not_adaptable,
            "length changes per request, first-token path differs",
            "GM-02",
            {}};
  for (const CaptureFactor& f : capture_factors(graph, backend))
    if (f.blocks)
      return {VerdictKind::not_adaptable,
              cat(f.found, " at ", f.place.empty() ? f.module : f.place),
              f.rule,
              {}};
  const CaptureRegion region = capture_region(graph);
  if (!region.missing.empty())
    return {VerdictKind::not_adaptable,
            cat("a step needs ", fmt::format("{}", fmt::join(region.missing, ", ")),
                ", and the region does not take it"),
            "GM-12",
            {}};
  return {};
}

}  // namespace tk

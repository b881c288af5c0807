// Rewrites: a pattern, guards, and what is built instead. The driver lists the sites of a rewrite
// with a verdict each, and applies chosen ones.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/pattern.h"
#include "graph/verdict.h"

namespace tk {

// For whom a rewrite is considered. On `cpu` every operator runs (its reference at least): limits
// of torch_npu are notes there. On an NPU a limit that is violated forbids the site, and a device
// that the operator's document does not name leaves it pending.
enum class Target : std::uint8_t { cpu, a2, a3 };
std::string_view name_of(Target target);  // "cpu", "a2", "a3"
bool parse_target(std::string_view name, Target* out);
// The constraint of a verdict that is pending because a document does not name the target:
// "soc.a3". Of one that has no document it is "undocumented".
std::string not_named_id(Target target);

// A match with means to build: op(...) makes nodes at the place of the match, with its location.
struct Build : Match, Builder {
  Build(const Match& match, const Builder& at) : Match(match), Builder(at) {}
  using Builder::node;
  Node* matched(const Pat& p) const { return Match::node(p); }
};

struct Rewrite {
  std::string name;    // "fuse_rms_norm"
  std::string doc;     // "w * x * rsqrt(mean(x^2) + eps) -> npu.npu_rms_norm(x, w, eps)"
  std::string target;  // the operator that is built
  std::vector<Pat> roots;
  std::vector<Guard> guards;
  // Values for the roots, in order; null: this form has no fused operator.
  std::function<std::vector<Value*>(Build&)> builder;
  bool reports_only = false;  // its sites are for the reader: nothing is built
  // Not empty: on an NPU a site is pending at best. {id of a rule, what must be measured}
  std::pair<std::string, std::string> pending_because;
  // Types of the pattern's inputs by name, for the self-test; one list per check.
  std::vector<std::vector<std::pair<std::string, Type>>> checks;

  // The chain in which rewrites are written.
  template <typename... Roots>
  Rewrite& match(const Roots&... r) {
    roots = {r...};
    return *this;
  }
  Rewrite& when(std::string text, std::function<bool(const Match&)> holds) {
    guards.push_back({std::move(text), std::move(holds)});
    return *this;
  }
  Rewrite& build(std::function<std::vector<Value*>(Build&)> b) {
    builder = std::move(b);
    return *this;
  }
  Rewrite& pending(std::string id, std::string reason) {
    pending_because = {std::move(id), std::move(reason)};
    return *this;
  }
  Rewrite& report() {
    reports_only = true;
    return build([](Build&) { return std::vector<Value*>{nullptr}; });
  }
  Rewrite& check(std::vector<std::pair<std::string, Type>> types) {
    checks.push_back(std::move(types));
    return *this;
  }
};

// One place where a change applies, addressed by positions of nodes in the graph (0 is first), so
// that it holds for clones of the graph too.
struct Site {
  std::string move;                 // the name of the move
  int variant = 0;                  // which of the move's rewrites
  std::vector<std::int64_t> nodes;  // positions; nodes[0] is the node of the first root
  std::string module;               // module path of the first root, e.g. "model.layers.3.mlp"
  std::string class_key;  // the same for the same site in all layers: "model.layers.*.mlp"
  std::string place;      // file:line of the user's source, or empty
  Verdict verdict;
};

// The sites of the rewrites (spellings of one thing, `Site::variant` being their number). A node
// belongs to one site at most: earlier rewrites first, then the graph's order. Verdicts come from
// a trial on a copy: escapes, the type of the result, the limits of the operators built.
std::vector<Site> find_sites(std::string_view move, std::span<const Rewrite> rewrites,
                             const Graph& graph, Target target);

// Applies the rewrites at the sites (found in this very graph or one that it was cloned from).
// Sites whose nodes an earlier one has consumed are skipped. Returns how many were applied.
std::size_t apply_sites(std::span<const Rewrite> rewrites, Graph& graph,
                        std::span<const Site> sites);

// Everywhere it is adaptable; returns how often. Internal error when the rewrite feeds itself
// without end.
std::size_t apply_everywhere(const Rewrite& rewrite, Graph& graph, Target target = Target::cpu);

// Why the rewrite applies nowhere: the deepest reason over all values; "" when it does apply.
std::string why_not(const Rewrite& rewrite, const Graph& graph);

// "model.layers.3.mlp.experts.7" -> "model.layers.*.mlp.experts.*"
std::string class_of_module(std::string_view module);

// Helpers for moves that are plain functions.
std::vector<Node*> nodes_in_order(const Graph& graph);
// Makes `before` a place where all of `values` are defined, by moving the nodes they need up.
// False, and nothing moved, when one of them needs a node of `not_moved`.
bool hoist_before(Graph& graph, std::span<Value* const> values, Node* before,
                  std::span<Node* const> not_moved);
// Erases those of the nodes whose results are unused, users first; returns which (dangling).
std::vector<const Node*> erase_unused(Graph& graph, std::vector<Node*> nodes);
// The verdict of one node from what is known of its operator: limits, devices, documents. `facts`
// are those of LimitScope (graph/limits.h): what is known beyond the call, as phase and world.
void judge_limits(const Node& node, Target target, Verdict* verdict,
                  const std::map<std::string, Attr, std::less<>>& facts = {});
Site site_at(std::string_view move, const Node& root, std::span<Node* const> nodes,
             const std::vector<Node*>& order);

}  // namespace tk

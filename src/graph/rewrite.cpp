#include "graph/rewrite.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "graph/effects.h"
#include "graph/limits.h"

namespace tk {

std::string class_of_module(std::string_view module) {
  std::string key;
  for (std::size_t i = 0; i < module.size();) {
    const std::size_t end = std::min(module.find('.', i), module.size());
    const std::string_view part = module.substr(i, end - i);
    const bool number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    key += number ? std::string_view("*") : part;
    if (end < module.size()) key += '.';
    i = end + 1;
  }
  return key;
}

std::vector<Node*> nodes_in_order(const Graph& graph) {
  std::vector<Node*> list;
  list.reserve(graph.n_nodes());
  for (Node* n : nodes(graph)) list.push_back(n);
  return list;
}

Site site_at(std::string_view move, const Node& root, std::span<Node* const> matched,
             const std::vector<Node*>& order) {
  auto position = [&](const Node* n) {
    const auto it = std::lower_bound(order.begin(), order.end(), n->order,
                                     [](const Node* a, std::int64_t o) { return a->order < o; });
    TK_CHECK(it != order.end() && *it == n, "node of another graph");
    return static_cast<std::int64_t>(it - order.begin());
  };
  Site site;
  site.move = move;
  site.nodes.push_back(position(&root));
  for (const Node* n : matched)
    if (n != &root) site.nodes.push_back(position(n));
  if (root.loc != nullptr) {
    site.module = root.loc->module;
    if (!root.loc->file.empty()) site.place = cat(root.loc->file, ":", root.loc->line);
  }
  site.class_key = cat(move, " ", class_of_module(site.module));
  return site;
}

bool hoist_before(Graph& graph, std::span<Value* const> values, Node* before,
                  std::span<Node* const> not_moved) {
  std::vector<Node*> open;
  std::unordered_set<Node*> seen;
  auto visit = [&](Value* v) {
    if (v != nullptr && v->node != nullptr && v->node->order >= before->order &&
        seen.insert(v->node).second)
      open.push_back(v->node);
  };
  for (Value* v : values) visit(v);
  std::vector<Node*> moved;
  while (!open.empty()) {
    Node* n = open.back();
    open.pop_back();
    if (n == before || std::find(not_moved.begin(), not_moved.end(), n) != not_moved.end())
      return false;
    moved.push_back(n);
    for (Value* v : n->inputs) visit(v);
  }
  std::sort(moved.begin(), moved.end(),
            [](const Node* a, const Node* b) { return a->order < b->order; });
  for (Node* n : moved) graph.move_before(n, before);
  return true;
}

std::vector<const Node*> erase_unused(Graph& graph, std::vector<Node*> list) {
  std::vector<const Node*> erased;
  std::sort(list.begin(), list.end(),
            [](const Node* a, const Node* b) { return a->order > b->order; });
  for (Node* n : list)
    if (std::all_of(n->outputs.begin(), n->outputs.end(),
                    [](const auto& v) { return v->uses.empty(); })) {
      erased.push_back(n);
      graph.erase(n);
    }
  return erased;
}

std::string_view name_of(Target target) {
  switch (target) {
    case Target::a2:
      return "a2";
    case Target::a3:
      return "a3";
    case Target::cpu:
      break;
  }
  return "cpu";
}

std::string not_named_id(Target target) { return cat("soc.", name_of(target)); }

bool parse_target(std::string_view name, Target* out) {
  for (const Target t : {Target::cpu, Target::a2, Target::a3})
    if (name == name_of(t)) {
      *out = t;
      return true;
    }
  return false;
}

namespace {

// Whether the operator is there, from what its document says.
Verdict availability(const OpDef& op, Target target) {
  const std::string_view soc = target == Target::a2 ? op.npu->a2 : op.npu->a3;
  const std::string name(op.name.substr(op.name.find('.') + 1));
  if (soc.starts_with("yes")) return {};
  if (soc == "no")
    return {VerdictKind::not_adaptable,
            cat(name, " is not there on ", name_of(target)),
            cat("soc.", name_of(target)),
            {}};
  if (soc == "unknown")
    return {VerdictKind::pending,
            cat(name, " has no document (", op.npu->source, ")"),
            "undocumented",
            {}};
  return {VerdictKind::pending,
          cat("the document of ", name, " does not name ", name_of(target)),
          not_named_id(target),
          {}};
}

}  // namespace

void judge_limits(const Node& node, Target target, Verdict* verdict,
                  const std::map<std::string, Attr, std::less<>>& facts) {
  const OpDef& op = *node.op;
  if (op.npu == nullptr) return;
  const Args args = node.args();
  const auto refuse = [&](VerdictKind kind, std::string_view constraint, const std::string& text) {
    // A hard no counts for more than a missing document, and that for more than its silence.
    const bool worse =
        verdict->ok() || (verdict->kind == VerdictKind::pending &&
                          (kind == VerdictKind::not_adaptable ||
                           (constraint == "undocumented" && verdict->constraint != constraint)));
    if (!worse) {
      verdict->notes.push_back(text);
      return;
    }
    if (!verdict->reason.empty()) verdict->notes.push_back(verdict->reason);
    verdict->kind = kind;
    verdict->constraint = constraint;
    verdict->reason = text;
  };
  const bool cpu = target == Target::cpu;
  for (const LimitResult& r : check_limits({args, cpu ? "" : name_of(target), {}, facts})) {
    if (r.state != LimitState::violated) continue;
    const std::string text = cat(r.limit->id, ": ", r.values, " (", r.limit->expr, ")");
    if (cpu)
      verdict->notes.push_back(cat("on an NPU not adaptable: ", text));
    else
      refuse(VerdictKind::not_adaptable, r.limit->id, text);
  }
  if (cpu) return;
  if (const Verdict v = availability(op, target); !v.ok()) refuse(v.kind, v.constraint, v.reason);
}

namespace {

std::string describe(const Value* v) {
  if (v->node == nullptr) return cat("'", v->name, "'");
  std::string s = cat("the ", v->node->op->name, " of type ", v->type.str());
  if (v->node->loc != nullptr && !v->node->loc->file.empty())
    s += cat(" (", v->node->loc->file, ":", v->node->loc->line, ")");
  return s;
}

std::string describe(const Use& use) {
  if (use.node == nullptr) return "the graph's output";
  std::string s(use.node->op->name);
  if (use.node->loc != nullptr) {
    if (!use.node->loc->module.empty()) s += cat(" in ", use.node->loc->module);
    if (!use.node->loc->file.empty())
      s += cat(" (", use.node->loc->file, ":", use.node->loc->line, ")");
  }
  return s;
}

Verdict no(std::string constraint, std::string reason) {
  return {VerdictKind::not_adaptable, std::move(reason), std::move(constraint), {}};
}

// Where the new nodes go: before the first outside use of a root, at the last root at the latest.
Node* place_of(const Match& match) {
  const std::unordered_set<const Node*> inside(match.nodes.begin(), match.nodes.end());
  Node* place = nullptr;
  for (const Value* root : match.roots)
    if (place == nullptr || root->node->order > place->order) place = root->node;
  for (const Value* root : match.roots)
    for (const Use& use : root->uses)
      if (use.node != nullptr && inside.count(use.node) == 0 && use.node->order < place->order)
        place = use.node;
  return place;
}

// Matches at the value and rewrites there. On "no" the graph is as before, but for nodes moved up.
bool rewrite_at(const Rewrite& rewrite, Graph& graph, Value* value, Verdict* verdict,
                std::vector<Node*>* matched, std::vector<Node*>* built,
                std::unordered_set<const Node*>* erased, Target target) {
  Match match;
  if (!match_pattern({rewrite.roots, rewrite.guards}, value, &match, nullptr)) return false;
  for (Node* n : match.nodes)  // not those that an earlier site has built
    if (erased->count(n) == 0) matched->push_back(n);
  for (const Value* root : match.roots) TK_CHECK(root->node != nullptr, rewrite.name);

  if (const Escape e = find_escape(rewrite.roots, match); e.value != nullptr) {
    *verdict = no("fuse.escape", cat(describe(e.value), " is also used outside the pattern, by ",
                                     describe(e.use)));
    return true;
  }
  Node* place = place_of(match);
  std::vector<Value*> leaves;
  const std::unordered_set<const Node*> inside(match.nodes.begin(), match.nodes.end());
  for (const Node* n : match.nodes)
    for (Value* v : n->inputs)
      if (v != nullptr && inside.count(v->node) == 0) leaves.push_back(v);
  std::vector<Node*> root_nodes;
  for (const Value* root : match.roots) root_nodes.push_back(root->node);
  if (!hoist_before(graph, leaves, place, root_nodes)) {
    *verdict = no("fuse.cycle", "an input of the fused operator depends on its result");
    return true;
  }

  // Nodes that the builder makes are those between `mark` and `place`.
  Node* mark = place->prev;
  Build build(match, Builder{graph, place, value->node->loc});
  std::vector<Value*> results;
  try {
    results = rewrite.builder(build);
  } catch (const UserError& e) {  // the operator refuses these types: a reason, not an end
    *verdict = no("fuse.types", e.message());
  }
  for (Node* n = mark != nullptr ? mark->next : graph.first(); n != place; n = n->next)
    built->push_back(n);
  if (verdict->ok()) {
    TK_CHECK(results.size() == match.roots.size(), rewrite.name, ": one value per root");
    for (std::size_t i = 0; i < results.size() && verdict->ok(); ++i) {
      if (results[i] == nullptr) {
        *verdict = no("fuse.form", "this form has no fused operator");
      } else if (!(results[i]->type == match.roots[i]->type)) {
        *verdict = no("fuse.type", cat("the fused operator gives ", results[i]->type.str(),
                                       " where ", match.roots[i]->type.str(), " is needed"));
      }
    }
  }
  if (verdict->ok())
    for (const Node* n : *built) judge_limits(*n, target, verdict);
  if (verdict->ok() && target != Target::cpu && !rewrite.pending_because.second.empty())
    *verdict = {
        VerdictKind::pending, rewrite.pending_because.second, rewrite.pending_because.first, {}};
  if (!verdict->ok()) {
    erase_unused(graph, *built);
    built->clear();
    return true;
  }
  for (std::size_t i = 0; i < results.size(); ++i) graph.replace_uses(match.roots[i], results[i]);
  std::vector<Node*> dead;
  // A cache that the pattern only looked through stays written; roots are what was replaced.
  for (Node* n : match.nodes)
    if (std::find(root_nodes.begin(), root_nodes.end(), n) != root_nodes.end() ||
        !changes_state(*n))
      dead.push_back(n);
  for (Node* n : *built)  // unused parts of what was built
    if (!changes_state(*n)) dead.push_back(n);
  for (const Node* n : erase_unused(graph, dead)) erased->insert(n);
  return true;
}

bool may_be_root(const Rewrite& rewrite, const Node& n) {
  const Pat& root = rewrite.roots[0];
  if (root->kind == PatNode::Kind::result) return n.op->name == root->call->op;
  return std::any_of(root->choices.begin(), root->choices.end(), [&](const Pat& p) {
    return p->kind != PatNode::Kind::result || n.op->name == p->call->op;
  });
}

// Whether the rewrite's pattern is there, as far as it can be told without a change to the graph.
bool may_match(const Rewrite& rewrite, const Node& n) {
  if (!may_be_root(rewrite, n)) return false;
  return std::any_of(n.outputs.begin(), n.outputs.end(), [&](const auto& v) {
    Match match;
    return match_pattern({rewrite.roots, rewrite.guards}, v.get(), &match, nullptr);
  });
}

// Tries the nodes, in order. `erased` gathers what has gone.
template <typename Visit>
void each_site(const Rewrite& rewrite, Graph& graph, const std::vector<Node*>& order, Target target,
               std::unordered_set<const Node*>* erased, const Visit& visit) {
  for (Node* n : order) {
    if (erased->count(n) != 0 || !may_be_root(rewrite, *n)) continue;
    for (std::size_t i = 0; i < n->outputs.size(); ++i) {
      Verdict verdict;
      std::vector<Node*> matched;
      std::vector<Node*> built;
      if (!rewrite_at(rewrite, graph, n->out(static_cast<int>(i)), &verdict, &matched, &built,
                      erased, target))
        continue;
      visit(n, matched, std::move(verdict));
      break;
    }
  }
}

}  // namespace

std::vector<Site> find_sites(std::string_view move, std::span<const Rewrite> rewrites,
                             const Graph& graph, Target target) {
  // Most moves have nothing to look at in most graphs: then no copy is worth its time.
  bool any = false;
  for (const Node* n = graph.first(); n != nullptr && !any; n = n->next)
    any = std::any_of(rewrites.begin(), rewrites.end(),
                      [&](const Rewrite& r) { return may_match(r, *n); });
  if (!any) return {};
  Graph copy = graph.clone();
  const std::vector<Node*> originals = nodes_in_order(graph);
  const std::vector<Node*> order = nodes_in_order(copy);
  std::unordered_map<const Node*, std::size_t> position;
  for (std::size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  std::unordered_set<const Node*> erased;
  std::unordered_set<const Node*> taken;  // roots of sites of earlier rewrites, refused ones too
  std::vector<Site> sites;
  for (std::size_t r = 0; r < rewrites.size(); ++r) {
    std::vector<const Node*> now;
    each_site(rewrites[r], copy, order, target, &erased,
              [&](const Node* root, const std::vector<Node*>& matched, Verdict verdict) {
                if (taken.count(root) != 0) return;
                std::vector<Node*> here;
                for (const Node* m : matched) {
                  now.push_back(m);
                  if (const auto it = position.find(m); it != position.end())
                    here.push_back(originals[it->second]);
                }
                Site site = site_at(move, *originals[position.at(root)], here, originals);
                site.variant = static_cast<int>(r);
                site.verdict = std::move(verdict);
                sites.push_back(std::move(site));
              });
    taken.insert(now.begin(), now.end());
  }
  // A part of an accepted site that was refused on its own is not worth a word.
  std::unordered_set<std::int64_t> covered;
  for (const Site& s : sites)
    if (s.verdict.ok()) covered.insert(s.nodes.begin(), s.nodes.end());
  std::erase_if(sites,
                [&](const Site& s) { return !s.verdict.ok() && covered.count(s.nodes[0]) != 0; });
  return sites;
}

std::size_t apply_sites(std::span<const Rewrite> rewrites, Graph& graph,
                        std::span<const Site> sites) {
  const std::vector<Node*> order = nodes_in_order(graph);
  std::unordered_set<const Node*> erased;
  std::size_t applied = 0;
  for (std::size_t r = 0; r < rewrites.size(); ++r) {
    std::vector<Node*> roots;
    for (const Site& s : sites) {
      TK_CHECK(s.nodes.at(0) >= 0 && s.nodes[0] < static_cast<std::int64_t>(order.size()),
               "site of another graph");
      if (s.variant == static_cast<int>(r))
        roots.push_back(order[static_cast<std::size_t>(s.nodes[0])]);
    }
    each_site(rewrites[r], graph, roots, Target::cpu, &erased,
              [&](const Node*, const std::vector<Node*>&, const Verdict& verdict) {
                applied += verdict.ok() ? 1 : 0;
              });
  }
  return applied;
}

std::size_t apply_everywhere(const Rewrite& rewrite, Graph& graph, Target target) {
  std::size_t total = 0;
  const std::size_t limit = graph.n_nodes() + 16;
  for (;;) {
    std::size_t applied = 0;
    std::unordered_set<const Node*> erased;
    each_site(rewrite, graph, nodes_in_order(graph), target, &erased,
              [&](const Node*, const std::vector<Node*>&, const Verdict& verdict) {
                applied += verdict.ok() ? 1 : 0;
              });
    if (applied == 0) return total;
    total += applied;
    TK_CHECK(total <= limit, "rewrite ", rewrite.name, " does not come to an end");
  }
}

std::string why_not(const Rewrite& rewrite, const Graph& graph) {
  const std::vector<Site> sites = find_sites(rewrite.name, {&rewrite, 1}, graph, Target::cpu);
  for (const Site& s : sites)
    if (s.verdict.ok()) return "";
  if (!sites.empty()) return sites[0].verdict.reason;
  Why deepest{cat("there is no ", print(rewrite.roots[0])), 0};
  for (Node* n : nodes(graph)) {
    if (!may_be_root(rewrite, *n)) continue;
    Match match;
    Why why;
    if (!match_pattern({rewrite.roots, rewrite.guards}, n->out(), &match, &why) &&
        why.depth >= deepest.depth)
      deepest = why;
  }
  return deepest.text;
}

}  // namespace tk

#include "moves/canonical/canonical.h"

#include <unordered_map>

#include "base/error.h"
#include "moves/canonical/rules.h"

namespace tk {
namespace canonical {

int axis(const Node& n, std::string_view name, int rank) {
  const std::int64_t d = n.args().i64(name);
  return static_cast<int>(d < 0 ? d + rank : d);
}

Value* reshape(Builder& b, Value* v, const SymDims& shape) {
  return v->type.shape == shape ? v : b.op("aten.reshape", {v}, {{"shape", shape}});
}

Value* slice(Builder& b, Value* v, int dim, const Sym& start, const Sym& end, const Sym& step) {
  return b.op("aten.slice", {v},
              {{"dim", Sym(dim)}, {"start", start}, {"end", end}, {"step", step}});
}

bool is_from_weights(const Value* v) {
  // Chains that only reorder a weight are short; activations lead to an input at once or are cut
  // off.
  constexpr int longest = 32;
  std::vector<const Value*> open{v};
  int steps = 0;
  bool found = false;
  while (!open.empty()) {
    const Value* at = open.back();
    open.pop_back();
    if (at == nullptr) continue;
    if (at->kind == ValueKind::weight) {
      found = true;
      continue;
    }
    if (at->kind != ValueKind::node || ++steps > longest) return false;
    open.insert(open.end(), at->node->inputs.begin(), at->node->inputs.end());
  }
  return found;
}

const Node* made_by(const Value* v, std::string_view op) {
  return v != nullptr && v->node != nullptr && v->node->is(op) ? v->node : nullptr;
}

namespace {

using Table = std::unordered_map<const OpDef*, std::vector<Rule>>;

Table build_table() {
  static const Rule rules[] = {
#define TK_RULE(op, function) {op, #function, function},
#include "moves/canonical/rules.def"
#undef TK_RULE
  };
  Table table;
  for (const Rule& rule : rules) {
    const OpDef* op = find_op(rule.op);
    TK_CHECK(op != nullptr, "rule ", rule.name, " is for the operator ", rule.op);
    table[op].push_back(rule);
  }
  return table;
}

bool is_used(const Node& n) {
  for (const auto& v : n.outputs)
    if (!v->uses.empty()) return true;
  return false;
}

// Puts the replacement in the place of the node's results. False when a type differs: another
// spelling that inference cannot show to be the same is not used.
bool replace(Graph& graph, Node* n, const Replacement& by, const Rule& rule) {
  if (by.empty()) return false;
  TK_CHECK(by.size() == n->outputs.size(), rule.name, " on ", print(*n));
  for (std::size_t i = 0; i < by.size(); ++i) {
    if (n->outputs[i]->uses.empty()) continue;
    TK_CHECK(by[i] != nullptr, rule.name, " on ", print(*n));
    if (!(by[i]->type == n->outputs[i]->type)) return false;
  }
  for (std::size_t i = 0; i < by.size(); ++i)
    if (by[i] != nullptr) graph.replace_uses(n->outputs[i].get(), by[i]);
  graph.erase(n);
  return true;
}

// Takes back what a rule built before `n` when it did not apply after all.
void erase_built(Graph& graph, const Node* n, const Node* last_before) {
  while (n->prev != last_before) graph.erase(n->prev);
}

bool apply_rules(Graph& graph, const Table& table) {
  bool changed = false;
  for (Node* n : nodes(graph)) {
    auto it = table.find(n->op);
    if (it == table.end() || !is_used(*n)) continue;
    for (const Rule& rule : it->second) {
      Builder b{graph, n, n->loc};
      const Node* last_before = n->prev;
      if (replace(graph, n, rule.apply(b, *n), rule)) {
        changed = true;
        break;
      }
      erase_built(graph, n, last_before);
    }
  }
  return changed;
}

}  // namespace
}  // namespace canonical

void canonicalize(Graph& graph) {
  static const canonical::Table table = canonical::build_table();
  // Each pass goes along the dataflow, so a few suffice whatever the length of a chain.
  constexpr int most_passes = 50;
  int passes = 0;
  while (true) {
    const bool rewritten = canonical::apply_rules(graph, table);
    const bool dropped = graph.erase_dead() != 0;
    const bool merged = canonical::dedup(graph) != 0;
    if (!rewritten && !merged && !dropped) break;
    TK_CHECK(++passes < most_passes, "the canonical form does not settle");
  }
  graph.erase_unused_weights();
#ifndef NDEBUG
  verify(graph, "canonical");
#endif
}

}  // namespace tk

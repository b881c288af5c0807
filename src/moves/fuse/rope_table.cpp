// Cosines and sines of all positions worked out once, when the model is loaded, and one lookup a
// step instead of the kernels that compute them (FU-24).
#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/row_wise.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {
namespace {

constexpr std::string_view name = "table_rotary";

// What positions alone decide, row by row.
struct Region {
  const Value* positions = nullptr;
  std::vector<Node*> nodes;                // in order
  std::unordered_set<const Node*> inside;  // the same
  std::unordered_set<const Node*> turned;  // those with a cos or sin before them, or being one
  std::vector<Value*> results;             // rows that are used outside, views not counted
  const Node* mixed = nullptr;             // what lets positions of a step decide together
};

bool is_angle(const Node& n) { return n.is("aten.cos") || n.is("aten.sin"); }

// A cast has a view too, where it is none.
bool is_view(const Node& n) {
  return n.op->view != nullptr && n.out()->type.dtype == n.inputs[0]->type.dtype;
}

bool leaves(const Region& r, const Value* v) {
  return std::any_of(v->uses.begin(), v->uses.end(), [&](const Use& use) {
    if (use.node == nullptr || r.inside.count(use.node) == 0) return true;
    return is_view(*use.node) && leaves(r, use.node->out());
  });
}

Region region_of(const Graph& graph) {
  Region r;
  r.positions = graph.find_input("position_ids");
  if (r.positions == nullptr || r.positions->type.rank() != 1) return r;
  std::unordered_map<const Value*, const Node*> blocked;  // depends on positions, but not by rows
  const auto is_rows = [&](const Value* v) {
    return v == r.positions || (v->node != nullptr && r.inside.count(v->node) != 0);
  };
  for (Node* n : nodes(graph)) {
    bool rows = false;
    bool others = true;
    const Node* why = nullptr;
    for (const Value* v : n->inputs) {
      if (v == nullptr) continue;
      rows |= is_rows(v);
      if (const auto it = blocked.find(v); it != blocked.end()) why = it->second;
      others &= is_rows(v) || from_weights_only(v);
    }
    if (rows && others && n->outputs.size() == 1 && n->op->updates.empty() &&
        is_row_wise(*n, is_rows)) {
      r.nodes.push_back(n);
      r.inside.insert(n);
      bool turned = is_angle(*n);
      for (const Value* v : n->inputs)
        turned |= v != nullptr && v->node != nullptr && r.turned.count(v->node) != 0;
      if (turned) r.turned.insert(n);
    } else if (others || why != nullptr) {  // of positions and weights, and of nothing else
      if (why == nullptr && rows) why = n;
      if (why == nullptr) continue;
      if (is_angle(*n) && r.mixed == nullptr) r.mixed = why;
      for (const auto& v : n->outputs) blocked.emplace(v.get(), why);
    }
  }
  for (Node* n : r.nodes)
    if (r.turned.count(n) != 0 && !is_view(*n) && leaves(r, n->out()))
      r.results.push_back(n->out());
  return r;
}

// The region's nodes that the results need.
std::vector<Node*> needed(const Region& r) {
  std::unordered_set<const Node*> wanted;
  for (const Value* v : r.results) wanted.insert(v->node);
  std::vector<Node*> found;
  for (auto it = r.nodes.rbegin(); it != r.nodes.rend(); ++it) {
    if (wanted.count(*it) == 0) continue;
    found.push_back(*it);
    for (const Value* v : (*it)->inputs)
      if (v != nullptr && v->node != nullptr && r.inside.count(v->node) != 0)
        wanted.insert(v->node);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

// One table, and one lookup, for all results of one type.
std::map<std::string, std::vector<Value*>> by_type(const Region& r) {
  std::map<std::string, std::vector<Value*>> groups;
  for (Value* v : r.results) groups[v->type.str()].push_back(v);
  return groups;
}

std::int64_t kernels(const std::vector<Node*>& nodes) {
  return std::count_if(nodes.begin(), nodes.end(), [](const Node* n) { return !is_view(*n); });
}

std::vector<Site> find(const Graph& graph, Target) {
  const Region r = region_of(graph);
  const std::vector<Node*> order = nodes_in_order(graph);
  if (r.mixed != nullptr) {
    Site site = site_at(name, *r.mixed, {}, order);
    site.verdict = {VerdictKind::not_adaptable,
                    cat("the frequencies depend on the length of a step: ", r.mixed->op->name,
                        " works on all positions together (rope_scaling of the configuration)"),
                    "rope_table.length",
                    {}};
    return {site};
  }
  const std::vector<Node*> chain = needed(r);
  if (kernels(chain) <= static_cast<std::int64_t>(by_type(r).size())) return {};
  Site site = site_at(name, *r.results.back()->node, chain, order);
  if (graph.ranges.find("positions") == graph.ranges.end())
    site.verdict = {VerdictKind::pending,
                    "the configuration does not say how many positions there are "
                    "(max_position_embeddings)",
                    "",
                    {}};
  return {site};
}

std::size_t apply(Graph& graph, std::span<const Site> sites) {
  const auto range = graph.ranges.find("positions");
  // A pending site may be taken all the same, but a table without a length is none.
  if (sites.empty() || !sites[0].verdict.ok() || range == graph.ranges.end()) return 0;
  const Region r = region_of(graph);
  const std::vector<Node*> chain = needed(r);
  const Sym tokens = r.positions->type.dim(0);
  const Sym length = range->second.max + 1;
  const std::map<std::string, Sym, std::less<>> rename{{tokens.str(), length}};
  Node* first = chain.front();

  // The chain once more, of all positions.
  std::unordered_map<const Value*, Value*> whole;
  Builder b{graph, first, first->loc};
  whole[r.positions] = b.op("aten.arange", {}, {{"end", length}});
  for (Node* n : chain) {
    b.loc = n->loc;
    std::vector<Value*> inputs;
    for (Value* v : n->inputs) {
      const auto it = v == nullptr ? whole.end() : whole.find(v);
      inputs.push_back(it == whole.end() ? v : it->second);
    }
    Attrs attrs;
    for (const auto& [key, value] : n->attrs) {
      if (const auto* s = std::get_if<Sym>(&value)) {
        attrs.set(key, s->subst(rename));
      } else if (const auto* dims = std::get_if<SymDims>(&value)) {
        SymDims renamed;
        for (const Sym& d : *dims) renamed.push_back(d.subst(rename));
        attrs.set(key, renamed);
      } else {
        attrs.set(key, value);
      }
    }
    whole[n->out()] = b.op(n->op->name, std::move(inputs), std::move(attrs));
  }
  Value* positions = graph.find_input("position_ids");
  for (const auto& [type, group] : by_type(r)) {
    std::vector<Value*> tables;
    for (Value* v : group) {
      Value* t = whole.at(v);
      SymDims shape{1};
      shape.insert(shape.end(), t->type.shape.begin(), t->type.shape.end());
      tables.push_back(b.op("aten.reshape", {t}, {{"shape", shape}}));
    }
    // [results, positions, ..]: the rows of each result lie together.
    Value* table = tables.size() == 1 ? tables[0] : b.op("aten.cat", tables, {{"dim", Sym(0)}});
    Value* rows = b.op("aten.index_select", {table, positions}, {{"dim", Sym(1)}});
    for (std::size_t i = 0; i < group.size(); ++i) {
      Value* one = rows;
      if (group.size() > 1)
        one = b.op("aten.slice", {rows},
                   {{"dim", Sym(0)},
                    {"start", Sym(static_cast<std::int64_t>(i))},
                    {"end", Sym(static_cast<std::int64_t>(i) + 1)}});
      graph.replace_uses(group[i], b.op("aten.reshape", {one}, {{"shape", group[i]->type.shape}}));
    }
  }
  erase_unused(graph, chain);
  return 1;
}

}  // namespace

Move table_rotary() {
  Move move;
  move.name = name;
  move.doc = "cos and sin of position_ids -> rows of a table of all positions, one lookup a step";
  move.target_op = "aten.index_select";
  move.find = find;
  move.apply = apply;
  return move;
}

}  // namespace tk::fuse

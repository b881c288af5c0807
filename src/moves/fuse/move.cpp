#include "moves/fuse/move.h"

#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/sites.h"

namespace tk {

Move move_of(std::string name, std::string doc, std::vector<Rewrite> rewrites, Phases phases) {
  TK_CHECK(!rewrites.empty(), name);
  Move move;
  move.name = std::move(name);
  move.doc = std::move(doc);
  move.phases = phases;
  move.target_op = rewrites[0].target;
  move.rewrites = std::move(rewrites);
  for (std::size_t i = 0; i < move.rewrites.size(); ++i)
    if (move.rewrites[i].name.empty()) move.rewrites[i].name = move.name;
  move.find = [rules = move.rewrites, name = move.name](const Graph& graph, Target target) {
    return find_sites(name, rules, graph, target);
  };
  move.apply = [rules = move.rewrites](Graph& graph, std::span<const Site> sites) {
    std::vector<Site> ok;
    for (const Site& s : sites)
      if (s.verdict.ok()) ok.push_back(s);
    return apply_sites(rules, graph, ok);
  };
  return move;
}

namespace {

Move listed(Move move, Where where, std::string_view site) {
  move.where = where;
  move.site = site;
  if (const FusionSite* tree = find_fusion_site(site))
    move.find = [inner = move.find, tree](const Graph& graph, Target target) {
      std::vector<Site> sites = inner(graph, target);
      for (Site& s : sites) settle(*tree, target, &s.verdict);
      return sites;
    };
  if (where != Where::any)
    move.find = [inner = move.find, where](const Graph& graph, Target target) {
      const bool here = (target == Target::cpu) == (where == Where::cpu);
      return here ? inner(graph, target) : std::vector<Site>();
    };
  return move;
}

}  // namespace

std::span<const Move> all_moves() {
  static const std::vector<Move> moves = {
#define TK_MOVE(maker, where, site) listed(fuse::maker(), Where::where, site),
#include "moves/fuse/moves.def"
#undef TK_MOVE
  };
  return moves;
}

const Move* find_move(std::string_view name) {
  for (const Move& m : all_moves())
    if (m.name == name) return &m;
  return nullptr;
}

std::size_t apply_move(const Move& move, Graph& graph, Target target) {
  std::size_t total = 0;
  const std::size_t limit = graph.n_nodes() + 16;
  for (;;) {
    const std::size_t applied = move.apply(graph, move.find(graph, target));
    if (applied == 0) return total;
    total += applied;
    TK_CHECK(total <= limit, "move ", move.name, " does not come to an end");
  }
}

}  // namespace tk

// Moves that fuse: each finds its sites in a graph, with a verdict, and applies chosen ones. A
// trial applies the sites of one class together (the same place in all layers) and keeps or undoes
// them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/rewrite.h"

namespace tk {

// In which graphs a move can pay: those that process prompts, those that add a token, or both.
enum class Phases : std::uint8_t { both, prefill, decode };

// The targets that a move is for.
enum class Where : std::uint8_t { any, cpu, npu };

struct Move {
  std::string name;       // "fuse_rms_norm"
  std::string doc;        // before -> after, for `tokamak moves list`
  std::string target_op;  // "npu.npu_rms_norm"; empty when no single one
  Phases phases = Phases::both;
  Where where = Where::any;
  std::string_view site;  // in the fusion tree of the NPU: "FS-N02"; empty: it has none there
  // Sites in the graph's order. They stay valid for clones of the graph and go stale with any
  // change to it.
  std::function<std::vector<Site>(const Graph&, Target)> find;
  // Applies those of the sites that are adaptable; returns how many it did. All sites that are to
  // be applied go into one call.
  std::function<std::size_t(Graph&, std::span<const Site>)> apply;
  // The graph's inputs and outputs change (fewer rows of logits): part of preparing a graph, not
  // something to be tried and undone.
  bool changes_results = false;
  // Where rewrites do the work: for tests, docs and --why.
  std::vector<Rewrite> rewrites;
};

// A move made of rewrites that are spellings of one thing, tried in this order.
Move move_of(std::string name, std::string doc, std::vector<Rewrite> rewrites,
             Phases phases = Phases::both);

// All of them in the order in which they are to be tried (moves.def).
std::span<const Move> all_moves();
const Move* find_move(std::string_view name);

// Applies one move at every adaptable site, again and again until there is none; returns how often.
std::size_t apply_move(const Move& move, Graph& graph, Target target = Target::cpu);

}  // namespace tk

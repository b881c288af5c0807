// The local half of a trial's numerics: one site, before against after, on the values that really
// reach it.
#pragma once

#include "graph/graph.h"
#include "graph/weights.h"
#include "moves/fuse/move.h"
#include "trial/ledger.h"

namespace tk {

// A site cut out of its graph: its nodes alone, what they take from outside as inputs (weights stay
// weights), what is used outside as outputs.
struct SiteGraph {
  Graph graph;
  std::vector<Value*> boundary;  // the values of the whole graph behind graph's inputs, in order
};
SiteGraph cut_out(const Graph& graph, const Site& site);

// Runs the site before and after the move. `recorded` are the values of `cut.boundary` from a run
// of the model. Not done (with the reason) when the move does not find itself in the cut.
NumericCheck check_site(const Move& move, const SiteGraph& cut, const std::vector<Tensor>& recorded,
                        const Weights& weights);

}  // namespace tk

// What the moves after one can still make of a graph, by predicted time: sites overlap, so a move
// that costs by itself can make room for one that pays more, and one that pays can stand in the way
// of a better one (FU-61).
#pragma once

#include <functional>
#include <set>
#include <string>

#include "trial/optimize.h"
#include "trial/rows.h"

namespace tk {

struct Future {
  double seconds = 0;           // of the graph with all that follows
  std::set<std::string> moves;  // those that helped
};

using Seconds = std::function<double(const Graph&)>;
// Each move behind `after` is applied to a copy of the graph, and kept there where it saves time.
Future future_of(const Graph& graph, const Move& after, Phase phase, const OptimizeOptions& options,
                 const Seconds& seconds);

// The moves of one future that the other does without: "fuse_mla_prolog, name_attention".
std::string only_in(const Future& one, const Future& other);

}  // namespace tk

#include "trial/future.h"

#include "base/error.h"

namespace tk {

Future future_of(const Graph& graph, const Move& after, Phase phase, const OptimizeOptions& options,
                 const Seconds& seconds) {
  Graph now = graph.clone();
  Future future{seconds(now), {}};
  bool behind = false;
  for (const Move& move : candidates(options)) {
    if (!behind) {
      behind = move.name == after.name;
      continue;
    }
    if (!wanted(move, phase, options) || move.changes_results) continue;
    Graph next = now.clone();
    if (move.apply(next, sites_of(move, next, options)) == 0) continue;
    next.erase_dead();
    const double time = seconds(next);
    if (time >= future.seconds) continue;
    future.seconds = time;
    future.moves.insert(move.name);
    now = std::move(next);
  }
  return future;
}

std::string only_in(const Future& one, const Future& other) {
  std::string names;
  for (const std::string& m : one.moves)
    if (other.moves.count(m) == 0) names += cat(names.empty() ? "" : ", ", m);
  return names;
}

}  // namespace tk

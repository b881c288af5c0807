// Nothing can go on: who waits for whom, and the cycle in it (VN-32).
#include <algorithm>
#include <map>

#include "base/error.h"
#include "npu/sim/loop.h"

namespace tk::sim {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

struct Edge {
  std::int32_t to;  // stream whose head must go on first
  std::string why;
};

}  // namespace

void Loop::note_deadlock() const {
  const auto head = [&](std::int32_t stream) -> std::int32_t {
    const StreamState& st = s.streams[at(stream)];
    if (st.unit != none) return launch_index(st);
    const auto& q = r.queue[at(stream)];
    return at(st.next) < q.size() ? r.parts[at(r.units[at(q[at(st.next)])].first)] : none;
  };
  const auto behind = [&](std::int32_t launch) {  // a launch that its stream has not come to
    const std::int32_t h = head(p.launches[at(launch)].stream);
    return h == launch || h == none ? "" : cat(" of ", describe(p, launch), ", which is behind");
  };
  std::vector<std::vector<Edge>> edges(s.streams.size());
  for (std::size_t k = 0; k < s.streams.size(); ++k) {
    const StreamState& st = s.streams[k];
    const auto stream = static_cast<std::int32_t>(k);
    const auto event_edges = [&](const Slice& waits) {
      for (std::int32_t i = 0; i < waits.count; ++i) {
        const std::int32_t e = p.events[at(waits.begin + i)];
        if (s.recorded[at(e)] >= 0) continue;
        const std::int32_t by = r.recorder[at(e)];
        edges[k].push_back({p.launches[at(by)].stream, cat("event ", e, behind(by))});
      }
    };
    if (st.stage == Stage::issue) {
      const std::int32_t needs = s.ranks[at(p.streams[k].rank)].host_needs;
      const std::int32_t by = r.parts[at(r.units[at(needs)].first)];
      edges[k].push_back({p.launches[at(by)].stream, cat("the host, which waits", behind(by))});
    } else if (st.stage == Stage::event) {
      event_edges(launch_at(st).waits);
    } else if (st.stage == Stage::inner) {
      event_edges(launch_at(st).inner_waits);
      if (st.part > 0) event_edges(launch_at(st).waits);
    } else if (st.stage == Stage::join) {
      const Unit& u = r.units[at(r.queue[k][at(st.next)])];
      for (std::int32_t i = 0; i < u.parts; ++i) {
        const std::int32_t other = p.launches[at(r.parts[at(u.first + i)])].stream;
        if (other != stream && s.streams[at(other)].stage != Stage::join)
          edges[k].push_back({other, "the other stream of its segment"});
      }
    } else if (st.stage == Stage::cores) {
      const Unit& u = unit_at(st);
      for (std::size_t j = 0; j < s.streams.size(); ++j) {
        const StreamState& other = s.streams[j];
        if (j == k || other.unit == none || other.held == 0) continue;
        const Unit& v = unit_at(other);
        if (v.rank != u.rank) continue;
        const std::int32_t cubes = u.cube > 0 ? other.held * v.cube : 0;
        const std::int32_t vectors = u.vector > 0 ? other.held * v.vector : 0;
        if (cubes + vectors == 0) continue;
        const std::string kind = vectors > 0 ? "vector" : "cube";
        edges[k].push_back({static_cast<std::int32_t>(j),
                            cat(vectors > 0 ? vectors : cubes, " ", kind, " cores (it needs ",
                                vectors > 0 ? u.vector * u.slots : u.cube * u.slots, " of ",
                                vectors > 0 ? d.vector_cores : d.cube_cores, " at once)")});
      }
    } else if (st.stage == Stage::peers) {
      const std::int32_t inst = r.instance[at(launch_index(st))];
      for (std::size_t i = 0; i < p.launches.size(); ++i) {
        if (r.instance[i] != inst) continue;
        const auto launch = static_cast<std::int32_t>(i);
        const std::int32_t other = p.launches[i].stream;
        const bool here = s.streams[at(other)].stage == Stage::peers && head(other) == launch;
        if (!here) edges[k].push_back({other, cat("its peer", behind(launch))});
      }
    }
  }
  // Depth first, in the order of streams; the first cycle found is named.
  std::vector<int> seen(s.streams.size(), 0);
  std::vector<std::pair<std::int32_t, std::size_t>> path;
  std::string cycle;
  for (std::size_t from = 0; from < s.streams.size() && cycle.empty(); ++from) {
    if (seen[from] != 0 || s.streams[from].stage == Stage::done) continue;
    path = {{static_cast<std::int32_t>(from), 0}};
    seen[from] = 1;
    while (!path.empty() && cycle.empty()) {
      auto& [node, next] = path.back();
      if (next == edges[at(node)].size()) {
        seen[at(node)] = 2;
        path.pop_back();
        continue;
      }
      const std::int32_t to = edges[at(node)][next++].to;
      if (seen[at(to)] == 0) {
        seen[at(to)] = 1;
        path.push_back({to, 0});
      } else if (seen[at(to)] == 1) {
        auto it =
            std::find_if(path.begin(), path.end(), [&](const auto& e) { return e.first == to; });
        for (; it != path.end(); ++it)
          cycle += cat("\n  ", describe(p, head(it->first)), " waits for ",
                       edges[at(it->first)][it->second - 1].why, "; that is held up by ",
                       describe(p, head(edges[at(it->first)][it->second - 1].to)));
      }
    }
  }
  UserError e("TK1402", cat("deadlock at ", s.now / 1'000'000, " us: ", s.open_units,
                            " launches can never run", cycle));
  throw std::move(e).help(
      "give the launches that wait for each other cores that fit side by side, or one order on all "
      "streams and ranks");
}

}  // namespace tk::sim

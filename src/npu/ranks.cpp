#include "npu/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"

namespace tk {
namespace {

using Index = std::int32_t;
std::size_t at(Index i) { return static_cast<std::size_t>(i); }
double us(sim::Ps ps) { return static_cast<double>(ps) / 1e6; }

bool is_exchange(sim::CollectiveKind k) {
  return k == sim::CollectiveKind::dispatch || k == sim::CollectiveKind::combine ||
         k == sim::CollectiveKind::all_to_all;
}

// The group of this size that a rank lies in, among those of the joined Plan.
Index group_of(const sim::Group& own, Index rank, sim::Plan* all) {
  const auto n = static_cast<Index>(own.devices.size());
  sim::Group g;
  for (Index i = 0; i < n; ++i) {
    TK_CHECK(own.devices[at(i)] == i, "groups of a single rank start at device 0");
    g.devices.push_back(rank / n * n + i);
  }
  for (std::size_t i = 0; i < all->groups.size(); ++i)
    if (all->groups[i].devices == g.devices) return static_cast<Index>(i);
  all->groups.push_back(std::move(g));
  return static_cast<Index>(all->groups.size()) - 1;
}

Index traffic_of(std::vector<std::int64_t> bytes, sim::Plan* all) {
  for (std::size_t i = 0; i < all->traffic.size(); ++i)
    if (all->traffic[i].bytes == bytes) return static_cast<Index>(i);
  all->traffic.push_back({std::move(bytes)});
  return static_cast<Index>(all->traffic.size()) - 1;
}

sim::Slice moved(sim::Slice s, std::size_t by) {
  s.begin += static_cast<Index>(by);
  return s;
}

// Exchanges whose members send different amounts: the k-th of a group is one matrix, to which each
// member gives what it sends (dispatch) or gets back (combine).
void join_exchanges(sim::Plan* all, const std::vector<std::vector<Index>>& of_group) {
  for (std::size_t g = 0; g < all->groups.size(); ++g) {
    const std::size_t n = all->groups[g].devices.size();
    const std::vector<Index>& list = of_group[g];  // member by member, each with as many
    if (list.size() % n != 0) continue;            // prepare() says who has more
    const std::size_t each = list.size() / n;
    for (std::size_t k = 0; k < each; ++k) {
      const auto member = [&](std::size_t i) -> sim::Collective& {
        return all->collectives[at(list[i * each + k])];
      };
      bool equal = true;
      for (std::size_t i = 0; i < n; ++i)
        equal =
            equal && member(i).bytes == member(0).bytes && member(i).traffic == member(0).traffic;
      if (equal || !is_exchange(member(0).kind)) continue;
      const bool back = member(0).kind == sim::CollectiveKind::combine;
      std::vector<std::int64_t> bytes(n * n);
      std::int64_t most = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const sim::Collective& c = member(i);
        most = std::max(most, c.bytes);
        for (std::size_t j = 0; j < n; ++j) {
          const std::size_t cell = back ? j * n + i : i * n + j;
          bytes[cell] = c.traffic == sim::none ? c.bytes / static_cast<std::int64_t>(n)
                                               : all->traffic[at(c.traffic)].bytes[cell];
        }
      }
      const Index traffic = traffic_of(std::move(bytes), all);
      for (std::size_t i = 0; i < n; ++i) {
        member(i).bytes = most;
        member(i).traffic = traffic;
      }
    }
  }
}

}  // namespace

sim::Plan join_ranks(const std::vector<sim::Plan>& plans, const std::vector<int>& of_rank) {
  sim::Plan all;
  all.devices.resize(of_rank.size());
  std::iota(all.devices.begin(), all.devices.end(), 0);
  // Ranks of one Plan share its texts: they are most of a Plan's size.
  std::vector<Index> texts;
  for (const sim::Plan& p : plans) {
    texts.push_back(static_cast<Index>(all.texts.size()));
    all.texts.insert(all.texts.end(), p.texts.begin(), p.texts.end());
  }
  Index events = 0;
  std::vector<std::vector<Index>> of_group;  // collectives, rank by rank
  for (std::size_t r = 0; r < of_rank.size(); ++r) {
    const auto rank = static_cast<Index>(r);
    const auto which = static_cast<std::size_t>(of_rank[r]);
    const sim::Plan& p = plans[which];
    all.mode = p.mode;
    all.host_tiles = p.host_tiles;
    all.input_bytes = std::max(all.input_bytes, p.input_bytes);
    all.updates = std::max(all.updates, p.updates);
    const auto streams = static_cast<Index>(all.streams.size());
    const std::size_t accesses = all.accesses.size();
    const std::size_t slices = all.events.size();
    const auto segments = static_cast<Index>(all.segments.size());
    for (sim::Stream s : p.streams) {
      s.rank = rank;
      all.streams.push_back(s);
    }
    all.accesses.insert(all.accesses.end(), p.accesses.begin(), p.accesses.end());
    all.segments.insert(all.segments.end(), p.segments.begin(), p.segments.end());
    Index most = -1;
    for (const Index e : p.events) {
      all.events.push_back(events + e);
      most = std::max(most, e);
    }
    events += most + 1;
    std::map<Index, int> numbers;  // of the collectives of a group, for their names
    for (sim::Launch l : p.launches) {
      l.stream += streams;
      l.accesses = moved(l.accesses, accesses);
      for (sim::Slice* s : {&l.waits, &l.records, &l.inner_waits}) *s = moved(*s, slices);
      if (l.segment != sim::none) l.segment += segments;
      if (l.text != sim::none) l.text += texts[which];
      if (l.collective != sim::none) {
        sim::Collective c = p.collectives[at(l.collective)];
        c.group = group_of(p.groups[at(c.group)], rank, &all);
        if (c.traffic != sim::none) c.traffic = traffic_of(p.traffic[at(c.traffic)].bytes, &all);
        l.collective = static_cast<Index>(all.collectives.size());
        all.collectives.push_back(c);
        of_group.resize(all.groups.size());
        of_group[at(c.group)].push_back(l.collective);
        if (l.text != sim::none) {  // as HCCL has it: type, group, number
          sim::LaunchText t = all.texts[at(l.text)];
          if (t.type.ends_with('_'))
            t.name = cat(t.type, "_", c.group, "_", numbers[c.group]++, "_1");
          l.text = static_cast<Index>(all.texts.size());
          all.texts.push_back(std::move(t));
        }
      }
      all.launches.push_back(l);
    }
  }
  join_exchanges(&all, of_group);
  return all;
}

double RanksSimulation::waiting_share() const {
  double waiting = 0;
  double all = 0;
  for (const RankTime& r : ranks) {
    waiting += r.waiting_us;
    all += r.waiting_us + r.transfer_us;
  }
  return all > 0 ? waiting / all : 0;
}

RanksSimulation simulate_ranks(sim::Plan plan, const DeviceFile& device, const CostFile& costs,
                               Scene scene, const sim::SimOptions& options) {
  RanksSimulation s;
  s.scene = std::move(scene);
  s.scene.mode = mode_name(plan.mode);
  s.device = device.name;
  s.cost_id = costs.id;
  s.params = params_of(device, costs, plan.mode);
  s.plan = std::move(plan);
  s.result = sim::simulate(s.plan, s.params, options);
  TK_CHECK(s.result.step_end.size() == 2, "two steps were asked for");
  s.begin = s.result.step_end[0];
  s.step = s.result.step_end[1] - s.begin;
  s.band = band_of(band_kind(s.plan.mode));
  s.ranks.resize(s.plan.devices.size());
  // The members of a collective, by group and number in it: the one that did not wait came last.
  std::map<std::pair<Index, int>, std::vector<std::pair<Index, sim::Ps>>> members;
  std::map<std::pair<Index, Index>, int> numbers;
  for (const sim::Span& span : s.result.spans) {
    if (span.step != 1) continue;
    const sim::Launch& l = s.plan.launches[at(span.launch)];
    const Index rank = s.plan.streams[at(l.stream)].rank;
    RankTime& r = s.ranks[at(rank)];
    r.spans.push_back(span);
    const double time = us(span.end - span.start);
    if (l.engine != sim::Engine::communication) {
      r.computing_us += time;
      continue;
    }
    r.waiting_us += us(span.peers);
    r.transfer_us += time - us(span.peers);
  }
  for (std::size_t k = 0; k < s.ranks.size(); ++k) {
    RankTime& r = s.ranks[k];
    std::stable_sort(r.spans.begin(), r.spans.end(),
                     [](const sim::Span& a, const sim::Span& b) { return a.start < b.start; });
    std::vector<sim::Span> ordered;
    for (const sim::Span& span : r.spans)
      if (s.plan.launches[at(span.launch)].collective != sim::none) ordered.push_back(span);
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const sim::Span& a, const sim::Span& b) { return a.launch < b.launch; });
    for (const sim::Span& span : ordered) {
      const Index group = s.plan.collectives[at(s.plan.launches[at(span.launch)].collective)].group;
      const auto rank = static_cast<Index>(k);
      members[{group, numbers[{group, rank}]++}].emplace_back(rank, span.peers);
    }
  }
  for (const auto& [which, list] : members) {
    const bool waited =
        std::any_of(list.begin(), list.end(), [](const auto& m) { return m.second > 0; });
    for (const auto& [rank, peers] : list)
      if (waited && peers == 0) ++s.ranks[at(rank)].came_last;
  }
  return s;
}

std::string ranks_text(const RanksSimulation& s) {
  std::string out = fmt::format(
      "simulated step  {:.3f} ms on {} ranks of {} ({}), {}, tp {}, ep {}\n", s.step_ms(),
      s.ranks.size(), s.device, s.scene.mode, s.scene.phase, s.scene.tp, s.scene.ep);
  if (s.band.cases > 0)
    out += fmt::format("band            {:.3f} to {:.3f} ms, as of a step of one rank\n",
                       s.step_ms() / (1 + s.band.p90), s.step_ms() * (1 + s.band.p90));
  if (!s.scene.without.empty()) out += cat("without         ", s.scene.without, "\n");
  out += fmt::format("waiting         {:.1f} % of the time in collectives, over all ranks\n",
                     100 * s.waiting_share());
  out += fmt::format("{:>6} {:>14} {:>14} {:>14} {:>14}\n", "rank", "computing us", "transfer us",
                     "waiting us", "came last");
  std::size_t late = 0;
  for (std::size_t k = 0; k < s.ranks.size(); ++k) {
    const RankTime& r = s.ranks[k];
    if (r.came_last > s.ranks[late].came_last) late = k;
    out += fmt::format("{:>6} {:>14.1f} {:>14.1f} {:>14.1f} {:>14}\n", k, r.computing_us,
                       r.transfer_us, r.waiting_us, r.came_last);
  }
  if (s.ranks[late].came_last > 0)
    out += fmt::format("late            rank {}: the others waited for it at {} collectives\n",
                       late, s.ranks[late].came_last);
  else
    out += "late            none: all ranks come to each collective at the same time\n";
  return out;
}

std::string to_json(const RanksSimulation& s) {
  nlohmann::ordered_json j;
  j["kind"] = "simulated";
  j["device"] = s.device;
  j["cost_id"] = s.cost_id;
  j["scene"] = {{"model", s.scene.model}, {"phase", s.scene.phase}, {"mode", s.scene.mode},
                {"tp", s.scene.tp},       {"ep", s.scene.ep},       {"without", s.scene.without}};
  j["step_ms"] = s.step_ms();
  j["band"] = {{"kind", s.band.kind}, {"cases", s.band.cases}, {"p90_error", s.band.p90}};
  j["waiting_share"] = s.waiting_share();
  j["ranks"] = nlohmann::ordered_json::array();
  for (std::size_t k = 0; k < s.ranks.size(); ++k) {
    const RankTime& r = s.ranks[k];
    j["ranks"].push_back({{"rank", k},
                          {"computing_us", r.computing_us},
                          {"transfer_us", r.transfer_us},
                          {"waiting_us", r.waiting_us},
                          {"came_last", r.came_last}});
  }
  return j.dump(1) + "\n";
}

}  // namespace tk

#include "timeline/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/load.h"
#include "timeline/step_ops.h"

namespace tk {

using nlohmann::json;

namespace {

struct Collective {
  std::string name;
  Ns duration = 0, waiting = -1, transfer = -1;
};

// By kind and group, in the order of their starts, all steps.
std::map<std::string, std::vector<Collective>> collectives_of(const ProfileFiles& files,
                                                              const ProfileOptions& o,
                                                              int* world_size) {
  LoadOptions load;
  load.trace = files.kernels.empty();
  load.allow_truncated = o.allow_truncated;
  const Timeline t = load_profile(files, load);
  *world_size = std::max(*world_size, t.info.world_size);
  const auto by_step = kernels_by_step(t);
  std::map<std::pair<std::string, std::string>, const CollectiveTime*> inside;  // step, name
  for (const CollectiveTime& c : t.collectives) inside.emplace(std::pair(c.step, c.name), &c);
  std::map<std::string, std::vector<Collective>> out;
  for (std::size_t s = 0; s < by_step.size(); ++s) {
    const StepOps ops = step_ops(t, static_cast<std::int32_t>(s), by_step[s]);
    std::vector<std::uint32_t> order;
    for (std::uint32_t i : ops.ops)
      if (t.kernels[i].core == Core::communication) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return t.kernels[a].start < t.kernels[b].start;
    });
    for (std::uint32_t i : order) {
      Collective c{std::string(t.text(t.kernels[i].name)), t.kernels[i].duration};
      auto it = inside.find({t.steps[s], c.name});
      if (it == inside.end() && !t.has_step_column) it = inside.find({"", c.name});
      if (it != inside.end()) {
        c.waiting = static_cast<Ns>(it->second->wait);
        c.transfer = static_cast<Ns>(it->second->transit);
      }
      const std::string group = collective_group(c.name);
      out[cat(t.text(t.kernels[i].type), group.empty() ? "" : " of group ", group)].push_back(
          std::move(c));
    }
  }
  return out;
}

// Of several ranks that were collected: those of the run that were not.
std::string missing_ranks(const std::set<int>& present, int world_size) {
  constexpr int most_named = 16;
  const int missing = world_size - static_cast<int>(present.size());
  if (present.empty() || missing <= 0) return {};
  std::string out;
  int named = 0;
  for (int r = 0; r < world_size && named < most_named; ++r)
    if (!present.contains(r)) out += cat(named++ > 0 ? ", " : "", r);
  return cat("no profile of ", missing == 1 ? "rank " : "ranks ", out,
             missing > named ? cat(" and ", missing - named, " more") : "", ", of ", world_size,
             ": what others waited for there is not seen");
}

}  // namespace

RankReport compare_ranks(const std::vector<ProfileFiles>& files, const ProfileOptions& options) {
  RankReport r;
  std::vector<std::map<std::string, std::vector<Collective>>> all;
  int world_size = 0;
  std::set<int> present;
  for (const ProfileFiles& f : files) {
    r.ranks.push_back(f.rank ? std::to_string(*f.rank) : f.folder.string());
    all.push_back(collectives_of(f, options, &world_size));
    if (f.rank) present.insert(*f.rank);
  }
  r.last_count.assign(files.size(), 0);
  r.waiting.assign(files.size(), 0);
  r.file_waiting.assign(files.size(), -1);
  r.file_transfer.assign(files.size(), -1);
  std::set<std::string> kinds;
  for (const auto& rank : all)
    for (const auto& [kind, list] : rank) kinds.insert(kind);
  for (const std::string& kind : kinds) {
    std::vector<const std::vector<Collective>*> lists;  // per rank; null: takes no part
    std::size_t members = 0, first = 0;
    bool equal = true;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto it = all[i].find(kind);
      lists.push_back(it == all[i].end() ? nullptr : &it->second);
      if (!lists.back()) continue;
      if (members++ == 0) first = i;
      equal = equal && lists.back()->size() == lists[first]->size();
    }
    // Of another group, whose other ranks were not collected.
    if (members < 2 && kind.find(" of group ") != kind.npos) continue;
    if (members < 2 || !equal) {
      r.reason += cat(r.reason.empty() ? "" : ", ", kind);
      continue;
    }
    for (std::size_t n = 0; n < lists[first]->size(); ++n) {
      RankCollective c;
      c.name = (*lists[first])[n].name;
      c.slowest = first;
      for (const auto* list : lists) {
        c.duration.push_back(list ? (*list)[n].duration : -1);
        c.file_waiting.push_back(list ? (*list)[n].waiting : -1);
        c.file_transfer.push_back(list ? (*list)[n].transfer : -1);
        if (list && c.duration.back() < c.duration[c.slowest]) c.slowest = c.duration.size() - 1;
      }
      for (std::size_t i = 0; i < files.size(); ++i) {
        c.waiting.push_back(lists[i] ? c.duration[i] - c.duration[c.slowest] : 0);
        r.waiting[i] += c.waiting.back();
        for (auto [sum, one] : {std::pair(&r.file_waiting[i], c.file_waiting[i]),
                                std::pair(&r.file_transfer[i], c.file_transfer[i])})
          if (one >= 0) *sum = std::max<Ns>(*sum, 0) + one;
      }
      ++r.last_count[c.slowest];
      r.collectives.push_back(std::move(c));
    }
  }
  if (!r.reason.empty())
    r.reason = cat("not compared, as the ranks differ in their number: ", r.reason);
  const std::string missing = missing_ranks(present, world_size);
  if (!missing.empty()) r.reason += cat(r.reason.empty() ? "" : "; ", missing);
  std::stable_sort(r.collectives.begin(), r.collectives.end(),
                   [](const RankCollective& a, const RankCollective& b) {
                     return *std::max_element(a.waiting.begin(), a.waiting.end()) >
                            *std::max_element(b.waiting.begin(), b.waiting.end());
                   });
  return r;
}

json ranks_json(const RankReport& r) {
  json list = json::array();
  auto us = [](const std::vector<Ns>& v) {
    json j = json::array();
    for (Ns x : v) j.push_back(x < 0 ? json() : json(static_cast<double>(x) / 1e3));
    return j;
  };
  for (const RankCollective& c : r.collectives)
    list.push_back({{"name", c.name},
                    {"duration_us", us(c.duration)},
                    {"waiting_us", us(c.waiting)},
                    {"file_waiting_us", us(c.file_waiting)},
                    {"file_transfer_us", us(c.file_transfer)},
                    {"came_last", r.ranks[c.slowest]}});
  return {{"ranks", r.ranks},
          {"collectives", std::move(list)},
          {"came_last_count", r.last_count},
          {"waiting_us", us(r.waiting)},
          {"file_waiting_us", us(r.file_waiting)},
          {"file_transfer_us", us(r.file_transfer)},
          {"reason", r.reason}};
}

std::string ranks_text(const RankReport& r) {
  std::string out;
  if (!r.collectives.empty()) {
    out += fmt::format("{} collectives on {} ranks:\n", r.collectives.size(), r.ranks.size());
    for (std::size_t i = 0; i < r.ranks.size(); ++i) {
      out += fmt::format("  rank {}: came last {} times, waited {} for others", r.ranks[i],
                         r.last_count[i], show_ns(static_cast<double>(r.waiting[i])));
      if (r.file_waiting[i] >= 0)
        out += fmt::format("; communication.json: {} waiting, {} transfer",
                           show_ns(static_cast<double>(r.file_waiting[i])),
                           show_ns(static_cast<double>(r.file_transfer[i])));
      out += '\n';
    }
  }
  if (!r.reason.empty()) out += cat("  ", r.reason, "\n");
  return out;
}

}  // namespace tk

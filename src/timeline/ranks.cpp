#include "timeline/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/load.h"
#include "timeline/step_ops.h"

namespace tk {

using nlohmann::json;

namespace {

struct Collective {
  std::string name;
  Ns duration = 0;
};

// By kind, in the order of their starts, all steps.
std::map<std::string, std::vector<Collective>> collectives_of(const ProfileFiles& files,
                                                              const ProfileOptions& o) {
  LoadOptions load;
  load.trace = files.kernels.empty();
  load.allow_truncated = o.allow_truncated;
  const Timeline t = load_profile(files, load);
  const auto by_step = kernels_by_step(t);
  std::map<std::string, std::vector<Collective>> out;
  for (std::size_t s = 0; s < by_step.size(); ++s) {
    const StepOps ops = step_ops(t, static_cast<std::int32_t>(s), by_step[s]);
    std::vector<std::uint32_t> order;
    for (std::uint32_t i : ops.ops)
      if (t.kernels[i].core == Core::communication) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return t.kernels[a].start < t.kernels[b].start;
    });
    for (std::uint32_t i : order)
      out[std::string(t.text(t.kernels[i].type))].push_back(
          {std::string(t.text(t.kernels[i].name)), t.kernels[i].duration});
  }
  return out;
}

}  // namespace

RankReport compare_ranks(const std::vector<ProfileFiles>& files, const ProfileOptions& options) {
  RankReport r;
  std::vector<std::map<std::string, std::vector<Collective>>> all;
  for (const ProfileFiles& f : files) {
    r.ranks.push_back(f.rank ? std::to_string(*f.rank) : f.folder.string());
    all.push_back(collectives_of(f, options));
  }
  r.last_count.assign(files.size(), 0);
  r.waiting.assign(files.size(), 0);
  for (const auto& [kind, first] : all[0]) {
    const bool equal = std::all_of(all.begin(), all.end(), [&](const auto& rank) {
      const auto it = rank.find(kind);
      return it != rank.end() && it->second.size() == first.size();
    });
    if (!equal) {
      r.reason += cat(r.reason.empty() ? "" : ", ", kind);
      continue;
    }
    for (std::size_t n = 0; n < first.size(); ++n) {
      RankCollective c;
      c.name = first[n].name;
      for (const auto& rank : all) c.duration.push_back(rank.at(kind)[n].duration);
      c.slowest = static_cast<std::size_t>(std::min_element(c.duration.begin(), c.duration.end()) -
                                           c.duration.begin());
      for (std::size_t i = 0; i < files.size(); ++i) {
        c.waiting.push_back(c.duration[i] - c.duration[c.slowest]);
        r.waiting[i] += c.waiting.back();
      }
      ++r.last_count[c.slowest];
      r.collectives.push_back(std::move(c));
    }
  }
  if (!r.reason.empty())
    r.reason = cat("not compared, as the ranks differ in their number: ", r.reason);
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
    for (Ns x : v) j.push_back(static_cast<double>(x) / 1e3);
    return j;
  };
  for (const RankCollective& c : r.collectives)
    list.push_back({{"name", c.name},
                    {"duration_us", us(c.duration)},
                    {"waiting_us", us(c.waiting)},
                    {"came_last", r.ranks[c.slowest]}});
  return {{"ranks", r.ranks},
          {"collectives", std::move(list)},
          {"came_last_count", r.last_count},
          {"waiting_us", us(r.waiting)},
          {"reason", r.reason}};
}

std::string ranks_text(const RankReport& r) {
  std::string out;
  if (!r.collectives.empty()) {
    out += fmt::format("{} collectives on {} ranks:\n", r.collectives.size(), r.ranks.size());
    for (std::size_t i = 0; i < r.ranks.size(); ++i)
      out += fmt::format("  rank {}: came last {} times, waited {} for others\n", r.ranks[i],
                         r.last_count[i], show_ns(static_cast<double>(r.waiting[i])));
  }
  if (!r.reason.empty()) out += cat("  ", r.reason, "\n");
  return out;
}

}  // namespace tk

// The same collectives on several ranks (BD §16.4): who comes last, and how long the others wait.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "timeline/find.h"
#include "timeline/options.h"
#include "timeline/timeline.h"

namespace tk {

struct RankCollective {
  std::string name;          // of the first rank
  std::vector<Ns> duration;  // per rank
  std::vector<Ns> waiting;   // per rank: longer than on the rank that came last
  std::size_t slowest = 0;   // index of the rank that came last: the shortest duration
};

struct RankReport {
  std::vector<std::string> ranks;
  std::vector<RankCollective> collectives;
  std::vector<std::size_t> last_count;  // per rank: how often it came last
  std::vector<Ns> waiting;              // per rank, all collectives
  std::string reason;                   // why nothing could be compared
};

// The n-th collective of a kind on one rank is the n-th on the others: all take part, in one order.
// A collective ends for all at once, so the rank with the shortest duration came last. Compared
// only where the counts by kind are equal.
RankReport compare_ranks(const std::vector<ProfileFiles>& files, const ProfileOptions& options);
nlohmann::json ranks_json(const RankReport& report);
std::string ranks_text(const RankReport& report);

}  // namespace tk

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
  std::string name;          // of the first rank that takes part
  std::vector<Ns> duration;  // per rank; -1: takes no part
  std::vector<Ns> waiting;   // per rank: longer than on the rank that came last; 0: takes no part
  std::size_t slowest = 0;   // index of the rank that came last: the shortest duration
  // Per rank, as communication.json says; -1: it says nothing.
  std::vector<Ns> file_waiting, file_transfer;
};

struct RankReport {
  std::vector<std::string> ranks;
  std::vector<RankCollective> collectives;
  std::vector<std::size_t> last_count;          // per rank: how often it came last
  std::vector<Ns> waiting;                      // per rank, all collectives
  std::vector<Ns> file_waiting, file_transfer;  // the same from communication.json; -1: no file
  std::string reason;                           // why nothing could be compared
};

// The n-th collective of a kind in a group of ranks is the same on all of them: they run in one
// order. It ends for all at once, so the rank with the shortest duration came last. Compared only
// where the counts are equal.
RankReport compare_ranks(const std::vector<ProfileFiles>& files, const ProfileOptions& options);
nlohmann::json ranks_json(const RankReport& report);
std::string ranks_text(const RankReport& report);

}  // namespace tk

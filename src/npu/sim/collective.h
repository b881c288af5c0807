// How long a collective takes, and on which links: steps, latencies and bytes (VN-70 to VN-75).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "npu/sim/simulate.h"

namespace tk::sim {

constexpr std::size_t max_levels = 6;

// Bytes on the links of each level at the same time, after a latency.
struct CommPhase {
  Ps latency = 0;
  std::array<std::int64_t, max_levels> bytes{};  // of this rank, the hotter of send and receive
  std::int32_t links = 1, of_links = 1;          // share of a level's rate that it can use
};

struct CommCost {
  Algorithm algorithm = Algorithm::fastest;
  Ps setup = 0;
  std::vector<CommPhase> phases;
  Ps alone(const DeviceParams& device) const;  // with nothing else on the links
};

// The level that links two devices: the nearest that joins both.
std::size_t level_of(const DeviceParams& device, std::int32_t a, std::int32_t b);

// The cost for the member `device_number`, or for the hottest member if it is `none`. Takes the
// fastest algorithm unless the Collective names one.
CommCost cost_of_collective(const Plan& plan, const Collective& c, const DeviceParams& device,
                            std::int32_t device_number);

std::string_view algorithm_name(Algorithm a);
std::string_view collective_name(CollectiveKind k);

}  // namespace tk::sim

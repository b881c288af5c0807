// Max-min fair shares of memory, L2 and links (VN-34), in integers (VN-80).
#include <algorithm>

#include "npu/sim/loop.h"

namespace tk::sim {

Work rate_of(BytesPerSecond rate) {
  return static_cast<Work>((static_cast<__int128>(rate) << work_bits) / 1'000'000'000'000);
}

std::array<std::int64_t, 2> hbm_cost(const DeviceParams& d, std::int64_t read, std::int64_t write) {
  const std::int64_t mixed = std::min(read, write);
  const auto cost = [&](std::int64_t bytes, std::int32_t alone) -> std::int64_t {
    const std::int64_t own = 1'000'000 / alone, both = 1'000'000 / d.hbm_mixed_permille;
    if (bytes == 0) return own;
    return static_cast<std::int64_t>(
        (static_cast<__int128>(mixed) * both + static_cast<__int128>(bytes - mixed) * own) / bytes);
  };
  return {cost(read, d.hbm_read_permille), cost(write, d.hbm_write_permille)};
}

void Loop::add_flow(std::int32_t rank, std::size_t which, const Flow& flow, std::int64_t bytes) {
  const std::size_t index = static_cast<std::size_t>(rank) * per_rank + which;
  Resource& res = s.resources[index];
  settle(&res);
  res.flows.push_back(flow);
  res.bytes += bytes;
  res.demanded += flow.left;
  refill(index);
}

// What was done since the rates were set.
void Loop::settle(Resource* res) {
  const Ps dt = s.now - res->updated;
  res->updated = s.now;
  if (dt == 0 || res->flows.empty()) return;
  res->busy += dt;
  for (Flow& f : res->flows) {
    const Work done =
        static_cast<Work>(std::min<__int128>(f.left, static_cast<__int128>(f.rate) * dt));
    f.left -= done;
    res->delivered += done;
  }
}

// New rates: everyone gets the same, but no more than it can use; what that leaves goes to the
// rest.
void Loop::refill(std::size_t index) {
  Resource& res = s.resources[index];
  ++res.version;
  if (res.flows.empty()) return;
  const bool alone = without(Effect::sharing) || res.flows.size() == 1;
  if (alone) {
    for (Flow& f : res.flows) f.rate = std::min(f.cap, res.capacity);
  } else {
    for (Flow& f : res.flows) f.rate = -1;
    Work rest = res.capacity;
    auto open = static_cast<Work>(res.flows.size());
    for (bool again = true; again && open > 0;) {
      again = false;
      const Work share = rest / open;
      for (Flow& f : res.flows) {
        if (f.rate >= 0 || f.cap > share) continue;
        f.rate = f.cap;
        rest -= f.cap;
        --open;
        again = true;
      }
    }
    for (Flow& f : res.flows)
      if (f.rate < 0) f.rate = rest / open;
  }
  Ps first = -1;
  for (Flow& f : res.flows) {
    f.rate = std::max<Work>(f.rate, 1);
    const Ps t = (f.left + f.rate - 1) / f.rate;
    if (first < 0 || t < first) first = t;
  }
  push({s.now + first, ev_resource, static_cast<std::int32_t>(index / per_rank),
        static_cast<std::int32_t>(index), 0, res.version});
}

void Loop::resource_event(std::size_t index) {
  Resource& res = s.resources[index];
  settle(&res);
  Flow ended[16];
  std::size_t n = 0;
  const auto keep = std::remove_if(res.flows.begin(), res.flows.end(), [&](const Flow& f) {
    if (f.left > 0 || n == 16) return false;
    ended[n++] = f;
    return true;
  });
  res.flows.erase(keep, res.flows.end());
  refill(index);
  std::sort(ended, ended + n, [](const Flow& a, const Flow& b) {
    return a.stream != b.stream ? a.stream < b.stream : a.batch < b.batch;
  });
  for (std::size_t i = 0; i < n; ++i) term_done(ended[i].stream, ended[i].batch, ended[i].term);
}

}  // namespace tk::sim

// Cores are given by blocks, in the order of (priority, ready time, stream) (VN-32).
#include <algorithm>

#include "base/error.h"
#include "npu/sim/loop.h"

namespace tk::sim {
namespace {
std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
}  // namespace

bool Loop::before_in_order(std::int32_t a, std::int32_t b) const {
  const StreamState &x = s.streams[at(a)], &y = s.streams[at(b)];
  const std::int32_t px = p.streams[at(a)].priority, py = p.streams[at(b)].priority;
  if (px != py) return px < py;
  return x.ready != y.ready ? x.ready < y.ready : a < b;
}

void Loop::touch(std::int32_t rank) {
  if (s.ranks[at(rank)].dirty) return;
  s.ranks[at(rank)].dirty = true;
  s.dirty.push_back(rank);
}

void Loop::wait_for_cores(std::int32_t stream) {
  const std::int32_t rank = unit_at(s.streams[at(stream)]).rank;
  auto& w = s.ranks[at(rank)].waiting;
  if (std::find(w.begin(), w.end(), stream) == w.end())
    w.insert(
        std::upper_bound(w.begin(), w.end(), stream,
                         [this](std::int32_t a, std::int32_t b) { return before_in_order(a, b); }),
        stream);
  touch(rank);
}

bool Loop::wants_cores(const StreamState& st) const {
  if (st.unit == none) return false;
  if (st.stage == Stage::cores) return true;
  const Unit& u = unit_at(st);
  if (u.gang || st.held >= u.slots) return false;
  if (st.stage == Stage::work) return st.blocks_left > 0;
  return st.stage == Stage::head || st.stage == Stage::inner;
}

// Changes what is free; core time is summed as it goes.
static void change(RankState* rk, const DeviceParams& d, Ps now, const Unit& u,
                   std::int32_t slots) {
  const Ps dt = now - rk->cores_from;
  rk->cube_time += static_cast<__int128>(d.cube_cores - rk->cube) * dt;
  rk->vector_time += static_cast<__int128>(d.vector_cores - rk->vector) * dt;
  rk->ai_cpu_time += static_cast<__int128>(d.ai_cpu_cores - rk->ai_cpu) * dt;
  rk->cores_from = now;
  rk->cube -= u.cube * slots;
  rk->vector -= u.vector * slots;
  rk->ai_cpu -= u.ai_cpu * slots;
}

void Loop::take(std::int32_t stream, std::int32_t slots) {
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  RankState& rk = s.ranks[at(u.rank)];
  change(&rk, d, s.now, u, slots);
  TK_CHECK(without(Effect::cores) || (rk.cube >= 0 && rk.vector >= 0 && rk.ai_cpu >= 0),
           "more cores given than there are");
  st.held += slots;
  st.spare += slots;
  st.span.cubes = std::max(st.span.cubes, st.held * u.cube);
  st.span.vectors = std::max(st.span.vectors, st.held * u.vector);
}

void Loop::release(std::int32_t stream, std::int32_t slots) {
  if (slots == 0) return;
  StreamState& st = s.streams[at(stream)];
  const Unit& u = unit_at(st);
  RankState& rk = s.ranks[at(u.rank)];
  change(&rk, d, s.now, u, -slots);
  st.held -= slots;
  rk.last_release = launch_index(st);
  if (!rk.waiting.empty() || rk.merged > 0) touch(u.rank);
}

// One pass over those who wait.
void Loop::grant(std::int32_t rank) {
  RankState& rk = s.ranks[at(rank)];
  const bool unlimited = without(Effect::cores);
  for (std::size_t i = 0; i < rk.waiting.size();) {
    const std::int32_t stream = rk.waiting[i];
    StreamState& st = s.streams[at(stream)];
    if (!wants_cores(st)) {
      rk.waiting.erase(rk.waiting.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    const Unit& u = unit_at(st);
    std::int32_t want = u.slots - st.held;
    if (st.stage == Stage::work) want = std::min(want, st.blocks_left);
    std::int32_t fit = want;
    if (!unlimited) {
      if (u.cube > 0) fit = std::min(fit, rk.cube / u.cube);
      if (u.vector > 0) fit = std::min(fit, rk.vector / u.vector);
      if (u.ai_cpu > 0) fit = std::min(fit, rk.ai_cpu / u.ai_cpu);
      if (u.gang && fit < want) fit = 0;
    }
    if (fit <= 0) {
      ++i;
      continue;
    }
    take(stream, fit);
    if (fit == want)
      rk.waiting.erase(rk.waiting.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
    if (st.stage == Stage::cores)
      start(stream);
    else if (st.stage == Stage::work)
      more_slots(stream);
  }
}

void Loop::assign(std::int32_t rank) {
  RankState& rk = s.ranks[at(rank)];
  rk.dirty = false;
  grant(rank);
  if (rk.merged == 0) return;
  // Rounds that were taken as one end early if someone else could run now.
  bool again = false;
  for (std::size_t k = 0; k < s.streams.size(); ++k) {
    StreamState& st = s.streams[k];
    if (st.unit == none || unit_at(st).rank != rank || st.stage != Stage::work) continue;
    const Unit& u = unit_at(st);
    if (u.gang || u.slots == 0) continue;
    bool merged = false;
    for (const Batch& b : st.batches) merged |= b.live && b.waves > 1;
    if (!merged) continue;
    const bool room =
        st.held < u.slots && rk.cube >= u.cube && rk.vector >= u.vector && rk.ai_cpu >= u.ai_cpu;
    const auto stream = static_cast<std::int32_t>(k);
    const bool later =
        !rk.waiting.empty() && rk.waiting[0] != stream && before_in_order(rk.waiting[0], stream);
    if (!room && !later) continue;
    again |= cut_waves(stream);
  }
  if (again) grant(rank);
}

}  // namespace tk::sim

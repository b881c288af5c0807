// Plans by hand, for the tests.
#pragma once

#include <string>
#include <vector>

#include "npu/sim/simulate.h"

namespace tk::sim {

constexpr Ps us = 1'000'000;

// A device without overheads, so that closed forms are exact: 1 cycle is 1 ns.
inline DeviceParams bare_device() {
  DeviceParams d;
  d.cube_cores = 24, d.vector_cores = 48;
  d.mhz = 1000;
  d.hbm_read_permille = d.hbm_write_permille = d.hbm_mixed_permille = 1000;
  d.core_hbm_read = d.core_hbm_write = d.core_l2_read = d.core_l2_write = 1'000'000;
  d.gap = d.gap_mix = d.record = d.wait = d.after_wait = 0;
  d.graph_launch = d.graph_entry = d.graph_update = 0;
  d.collective_setup = d.per_peer = 0;
  d.link_permille = 1000;
  d.part_preloaded = d.part_cold = d.sync_base = d.sync_full = 0;
  return d;
}

inline Plan plan_of(int streams) {
  Plan p;
  p.streams.resize(static_cast<std::size_t>(streams));
  return p;
}

inline std::int32_t add(Plan* p, const Launch& l) {
  p->launches.push_back(l);
  return static_cast<std::int32_t>(p->launches.size()) - 1;
}

// A kernel of `blocks` whose blocks take `duration` each on a device of 1000 MHz.
inline Launch kernel(std::int32_t stream, Engine e, std::int32_t blocks, Ps duration) {
  Launch l;
  l.stream = stream, l.engine = e, l.blocks = blocks;
  (e == Engine::ai_vector || e == Engine::ai_cpu ? l.vector_cycles : l.cube_cycles) =
      duration / 1000;
  return l;
}

inline void name(Plan* p, std::int32_t launch, const std::string& text) {
  LaunchText t;
  t.name = t.type = text;
  p->launches[static_cast<std::size_t>(launch)].text = static_cast<std::int32_t>(p->texts.size());
  p->texts.push_back(t);
}

inline const Span& span_of(const Result& r, std::int32_t launch) {
  for (const Span& s : r.spans)
    if (s.launch == launch) return s;
  static const Span absent;
  return absent;
}

}  // namespace tk::sim

// Weights brought into L2 while the memory has nothing better to do: where, and how much (VN-60,
// prefetch.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu/simulation.h"

namespace tk {

// One transfer: `bytes` of a weight, begun when the kernel `trigger` is done, for the kernel
// `target`; both are indices of the step's kernels.
struct PrefetchSite {
  int trigger = 0, target = 0, weight = 0;
  std::int64_t bytes = 0, weight_bytes = 0;
  double window_us = 0;
};

// Sites of a step, by how it runs without any (PRE-10 to PRE-27): a target is a product that memory
// bounds, most of whose bytes are one weight of 1 MiB or more, all of which is read; its window is
// the latest run of kernels before it that leave half of the memory's rate free, of 2 us or more
// and enough for a tenth of the weight; what passes through L2 from there on stays within 0.8 of
// it. One window serves several targets until its bytes are spent. `share` scales the bytes of each
// (PRE-32).
std::vector<PrefetchSite> prefetch_sites(const Step& step, const Simulation& base, double share);

// The step with the transfers on a stream of their own, each behind its trigger.
Step with_prefetches(const Step& step, const std::vector<PrefetchSite>& sites);

}  // namespace tk

// The time of a graph on a device from the operators' own cost: bytes, flop and launches.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"
#include "npu/device.h"

namespace tk {

struct KernelEstimate {
  const Node* node;
  Cost cost;
  double seconds;
  int launches;  // more than one: torch_npu has no operator for it
};

struct Estimate {
  double seconds = 0;
  std::vector<KernelEstimate> kernels;  // in order; views and what weights alone decide is free
};

// Sizes of symbols ("T" tokens, "B" sequences ...) from `env`; Load says what sizes do not. A size
// that env lacks is an error (TK0303).
Estimate estimate(const Graph& graph, const Device& device, const SymEnv& env, const Load& load);

// A step of a cached graph: `tokens` in all, of `sequences` with kv_len tokens each in a paged
// cache.
struct StepSize {
  std::int64_t tokens, sequences, kv_len, block_size;
};
SymEnv symbols_of(const StepSize& size);
Estimate estimate_step(const Graph& graph, const Device& device, const StepSize& size);

// The time of one kernel of that cost.
double kernel_seconds(const Cost& cost, const Device& device);

// Weights and what follows from them alone, in sizes that are numbers: computed once, when the
// model is loaded.
std::unordered_set<const Value*> known_at_load(const Graph& graph);

// The cost of one call with concrete sizes: the operator's own rule or the default.
Cost cost_of(const Node& node, const SymEnv& env, const Load& load);

}  // namespace tk

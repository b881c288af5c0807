// From a token-flat graph with a paged cache to the work of one rank's step. No weights needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "npu/work.h"

namespace tk {

// A step of one rank: of its data-parallel part when there are several.
struct StepShape {
  std::int64_t tokens = 1;     // in all
  std::int64_t sequences = 1;  // they belong to
  std::int64_t kv_len = 1;     // tokens in the cache of each, this step's counted
  std::int64_t block_size = 128;
};
// Sizes of a cached graph's symbols: "T" tokens, "B" sequences, "NB" blocks of the cache ...
SymEnv symbols_of(const StepShape& shape);

// Degrees of a simple sharding of shapes: heads and inner axes by tp, experts by ep. Ranks of a tp
// group hold the same tokens; experts get the tokens of all ep ranks, spread evenly or by Zipf's
// law with exponent `zipf`.
struct Degrees {
  std::int64_t tp = 1, ep = 1;
  double zipf = 0;
  bool streams = false;         // shared experts on a stream of their own
  std::int64_t rank = 0;        // of those that share the experts; 0 has the most wanted ones
  std::int64_t all_tokens = 0;  // of all ranks that share the experts; 0: each has as many
};

// Operators whose time cannot be told from their inputs and results (VN-05): products and attention
// without a cost rule, and what the import did not know. Each once, with a place.
std::vector<std::string> unknown_operators(const Graph& graph);

// Throws TK1413 for a size that a symbol does not have or that is not positive, TK1414 for degrees
// that do not divide what they are to divide (heads, experts), TK1415 for a graph without work.
Step lower_graph(const Graph& graph, const StepShape& shape, const Degrees& degrees);

}  // namespace tk

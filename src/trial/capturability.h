// Whether a graph can be captured once and replayed for each step: what in it changes from step to
// step or needs the host, where that stands, and what is done about it (GM-10 to GM-17).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cpu/runner.h"
#include "graph/graph.h"
#include "graph/verdict.h"

namespace tk {

// What a device captures with: launches of one run (npugraph_ex), or a compiled graph (ge_graph).
enum class CaptureBackend : unsigned char { npugraph_ex, ge_graph };

// One cause, at one class of modules (model.layers.*.self_attn): all layers alike are one factor.
struct CaptureFactor {
  std::string rule;     // "GM-11"
  std::string cause;    // shape, address, value, random, no cache, mask, rope, operator
  std::string found;    // in words, with the operator or the symbol
  std::string module;   // class of module paths
  std::string place;    // "modeling_qwen3.py:397", "" when the capture does not say
  std::string rewrite;  // what takes it away; empty when nothing known does
  int nodes = 0;
  bool blocks = false;  // a capture fails or gives wrong results; otherwise it costs only time
};

std::vector<CaptureFactor> capture_factors(const Graph& graph, CaptureBackend backend);

// What a captured step takes and gives (GM-12, GM-13).
struct CaptureRegion {
  std::vector<std::string> inputs;  // "block_table: i32[B, MB]"
  std::vector<std::string>
      fixed;  // symbols that a bucket binds: one graph for each of their values
  std::vector<std::string> states;  // in place, at one address for all steps
  std::vector<std::string> outputs;
  std::vector<std::string> missing;   // inputs that a step needs and the region lacks
  std::vector<std::string> returned;  // states among the outputs
};

CaptureRegion capture_region(const Graph& graph);

// Whether this graph of a phase is captured. A graph without a phase is pending: its sizes and its
// path must be bound first. Prefill is not captured without buckets (GM-02).
Verdict capture_verdict(const Graph& graph, std::optional<Phase> phase, CaptureBackend backend);

}  // namespace tk

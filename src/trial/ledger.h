// The Ledger: one row per trial, with the evidence for its verdict. It is the state of an
// optimisation and what the report is written from. Schema: docs/ledger.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/verdict.h"
#include "moves/flatten/flatten.h"
#include "trial/capturability.h"
#include "trial/numerics.h"

namespace tk {

// Milliseconds, how often they were taken, and their spread.
struct Timing {
  double median_ms = 0, min_ms = 0, max_ms = 0;
  int rounds = 0;
};

// Two alternatives: timed in turn on this machine, or predicted for a device.
struct Comparison {
  std::string metric;  // "decode step, batch 1, 64 tokens in the cache"
  // or "predicted": simulated for a device (npu/clock.h); min, max and the interval of the ratio
  // are then the band of the prediction
  std::string kind = "measured";
  Timing before, after;
  double ratio = 1;                                      // median over the rounds of after / before
  double ratio_low = 1, ratio_high = 1;                  // 95 % interval of that median
  bool measured = false;                                 // there are figures
  std::int64_t launches_before = 0, launches_after = 0;  // of predicted steps
  bool faster() const { return measured && ratio_high < 1; }
  bool slower() const { return measured && ratio_low > 1; }
};

struct NumericCheck {
  bool done = false;
  bool passed = false;
  std::string what;  // "2 of 30 sites on recorded inputs", "logits of 3 prompts and 48 steps"
  ErrorStats error;
  double allowed = 0;  // relative, or times the captured model's own error
  std::string detail;  // why it failed or was not done
};

// pending: right, and which is faster is below the band of the prediction (VN-112).
enum class Decision : std::uint8_t { kept, rolled_back, not_tried, pending };
std::string_view name_of(Decision decision);

// What a captured step had to show besides numbers and times (GM-50).
struct AcceptanceItem {
  std::string what;   // "graphs made while serving"
  std::string found;  // "0 of 0 expected"
  bool passed = false;
};

// One of several ways to run a step; the first of a row is what the others are compared with.
struct Alternative {
  std::string name;  // "eager", "npugraph_ex"
  double ms = 0;
  double gain = 0;                     // share of the first one's time
  std::int64_t break_even_steps = -1;  // until making the graph has paid; -1: never, or not known
  std::string verdict;                 // of capture (npu/modes.h)
};

struct LedgerRow {
  int id = 0;
  std::string stage;      // "cache", "fuse", "capture"
  std::string move;       // "fuse_rms_norm"
  std::string doc;        // before -> after
  std::string target_op;  // "npu.npu_rms_norm"
  std::string phase;      // "prefill", "decode", "both"
  std::string place;      // class of module paths: "model.layers.*.mlp"
  std::string source;     // file:line of the first site
  int sites = 0;
  Verdict verdict;
  Decision decision = Decision::not_tried;
  std::string why;  // of the decision, one sentence
  NumericCheck local, model;
  Comparison decode, prefill;
  std::vector<AcceptanceItem> acceptance;  // of a capture
  std::vector<Alternative> alternatives;
  std::int64_t nodes_before = 0, nodes_after = 0;
  double seconds = 0;  // that the trial took
};

// A point of the waterfall: time after each kept move.
struct Waypoint {
  std::string name;
  double decode_ms = 0, prefill_ms = 0;  // 0: not measured
};

struct LaunchSpan {
  std::string name, kernel, module;
  double start_us = 0, duration_us = 0;
  std::int64_t bytes = 0;
};

struct Ledger {
  struct ModelFacts {
    std::string name, type, dtype;
    std::int64_t parameters = 0, weight_bytes = 0, vocab = 0;
    std::int64_t captured_nodes = 0, cached_nodes = 0, decode_nodes = 0, prefill_nodes = 0;
  } model;
  struct Machine {
    std::string cpu, isa;
    int threads = 0;
    double bandwidth = 0;  // bytes per second of memory reads, measured
  } machine;
  std::string target = "cpu";
  std::int64_t prefill_tokens = 0, decode_context = 0, decode_batch = 1;  // of all timings
  // Of predicted steps: error over published cases, and the id of the costs.
  struct PredictionBand {
    std::string kind;
    int cases = 0;  // 0: nothing is predicted
    double median = 0, p90 = 0;
  } band;
  std::string model_id;
  CacheSpec cache;
  std::vector<LedgerRow> rows;
  std::vector<Waypoint> waterfall;         // captured, cached, then each kept move
  Comparison captured_decode;              // captured graph run as it is against the optimised one
  Comparison total_decode, total_prefill;  // cached and unfused against optimised
  NumericCheck captured, cached,
      optimized;  // against the golden file, or against the captured graph
  // What capturing decode changes in the model, and what its callers give then (GM-04).
  struct CapturePlan {
    std::vector<CaptureFactor> factors;  // of the model as it was captured
    CaptureRegion region;                // of the decode step
  } capture;
  std::vector<std::int64_t> prefill_buckets;  // kept: tokens that a prefill is padded to
  std::vector<LaunchSpan> decode_step;        // one step of the result, launch by launch
  double decode_bytes = 0, decode_bandwidth_share = 0;
  double seconds = 0;
  std::string version;
};

std::string to_json(const Ledger& ledger);

}  // namespace tk

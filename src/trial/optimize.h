// The pipeline: captured graph -> cached graph -> moves, each in a trial -> the deployment, and the
// Ledger of why.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cpu/buckets.h"
#include "import/model.h"
#include "moves/flatten/flatten.h"
#include "moves/fuse/move.h"
#include "trial/deployment.h"
#include "trial/ledger.h"
#include "trial/reference.h"

namespace tk {

struct OptimizeOptions {
  // For a2 and a3 numerics are those of the operators' references here, and times are predicted
  // by the virtual NPU (npu/clock.h).
  Target target = Target::cpu;
  bool take_pending = false;  // sites that are pending only because no document names the device
  int threads = 0;            // 0: all cores
  std::int64_t block_size = 128;
  double budget_s = 120;  // for trials; what is left over when it is spent is "not tried"
  std::int64_t prefill_tokens = 128;  // of the prefill that is timed
  std::int64_t decode_context = 64;   // tokens in the cache when a decode step is timed
  std::vector<std::string> moves;     // names to consider; empty: all
  std::vector<std::string> disabled;
  std::span<const Move> candidates;    // what is tried, in order; empty: all_moves()
  bool decode = true, prefill = true;  // phases to optimise
  // A trace of what is served: prefill is captured in buckets of its prompts when that is measured
  // to pay (GM-61). Empty: prefill is not captured.
  std::vector<Request> requests;
  // Of a2 and a3: seconds that compiling and capturing one graph take; 0: not known.
  double warm_up_s = 0;
  // Called with a line about what is going on.
  std::function<void(const std::string&)> progress;
};

// A captured model made functional, canonical, token-flat and cached; nothing is run. The cached
// graph's range "positions" is that of position_ids, where the configuration says it.
struct Prepared {
  Graph captured;  // canonical
  CachedModel cached;
};
// For people: model.pt2 is called after its folder, any other file after itself.
std::string display_name(const CapturedModel& model);
Prepared prepare(const CapturedModel& model, std::int64_t block_size);

// Every adaptable site of every move, without trials: for checks and analysis.
struct MoveSites {
  const Move* move;
  std::string phase;  // decode or prefill
  std::vector<Site> sites;
};
std::vector<MoveSites> apply_all_moves(Graph* prefill, Graph* decode,
                                       const OptimizeOptions& options);

struct Optimized {
  Deployment deployment;
  Ledger ledger;
};
// `golden` may be null: then the captured graph is the reference. Throws TK0810 when the model has
// no weights, TK0811 when the captured graph does not give the golden logits.
Optimized optimize(const CapturedModel& model, const Golden* golden,
                   const OptimizeOptions& options);

// What analysis gives without running anything: structure, sites and verdicts as a Ledger.
Ledger analyse(const CapturedModel& model, const OptimizeOptions& options);

}  // namespace tk

// Capture as trials: decode launched operator by operator against one graph that is replayed, and
// prefill in buckets where a trace of requests shows that it pays (GM-02, GM-50, GM-61, GM-63).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "npu/clock.h"
#include "trial/capture_check.h"
#include "trial/optimize.h"

namespace tk {

struct CaptureCase {
  const OptimizeOptions& options;
  const Graph &prefill, &decode;
  const NpuClock* npu = nullptr;                        // null: this machine, measured
  std::int64_t prefill_tokens = 0, decode_context = 0;  // of the times
  // A new runner of both graphs, for sequences of up to max_len tokens.
  struct RunnerWish {
    bool op_by_op = false;
    std::int64_t max_len = 0;  // 0: what the other trials have
    std::vector<std::int64_t> prefill_buckets = {};
  };
  std::function<std::unique_ptr<Runner>(const RunnerWish&)> runner = nullptr;
  std::function<NumericCheck(Runner*)> check = nullptr;  // against the reference
  std::function<Comparison(Runner& before, Runner& after)> time_decode = nullptr;
};

bool capture_wanted(const OptimizeOptions& options);
// With its verdict, not tried.
LedgerRow capture_row(const Graph& graph, Phase phase, Target target);

LedgerRow capture_decode(const CaptureCase& c);
// `kept` gets the buckets when they are kept. Throws TK1506 for more than 512 lengths, TK1510 for a
// prompt that is longer than the model allows.
LedgerRow capture_prefill(const CaptureCase& c, std::int64_t most_tokens,
                          std::vector<std::int64_t>* kept);

// What a check shows, in GM-50's order; all must have passed.
std::vector<AcceptanceItem> acceptance_of(const Verdict& verdict, const CaptureCheck& check);
// Rolled back with the failing items when one has failed; otherwise by the times that the row has.
void judge_capture(LedgerRow* row);

}  // namespace tk

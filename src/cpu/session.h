// Serving: requests come and go, each step runs the prompts that wait or one token of everyone.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cpu/runner.h"
#include "cpu/sampling.h"

namespace tk {

using RequestId = std::int64_t;

struct RequestParams {
  SamplingParams sampling;
  std::int64_t max_new_tokens = 16;
  std::vector<std::int64_t> stop_ids;  // a token that ends the answer (it is reported, too)
};

enum class Finish : std::uint8_t {
  no,
  stop,    // a stop id
  length,  // max_new_tokens, or the length limit of the runner
  failed,  // no token could be chosen: see error
};

struct TokenEvent {
  RequestId request = 0;
  std::int64_t token = 0;
  Finish finish = Finish::no;
  std::string error;  // of finish failed, as an error message; the other requests go on
};

struct StepReport {
  bool idle = true;  // nothing is left to do
  RunStats run;
  std::vector<TokenEvent> events;  // at most one a request
};

// Continuous batching. A request is admitted, in order of arrival, when the blocks of its longest
// possible course are there, so that a running request is never stopped for lack of memory.
class Session {
 public:
  Session(EngineModel model, const RunnerOptions& options);

  // Throws TK0510 (token id), TK0511 (empty prompt), TK0512 (longer than the limit), TK0513 (never
  // fits the cache), TK0516 (sampling). max_new_tokens is cut to what the length limit leaves.
  RequestId add(std::vector<std::int64_t> prompt, RequestParams params = {});
  // Ends a request, running or waiting; its blocks are free at once. Unknown ids are passed over:
  // it may have ended by itself.
  void cancel(RequestId request);

  // One packed run: a prefill of the prompts that were admitted, else one decode step.
  StepReport step();
  // Steps until the request has ended; the tokens it produced. Others make progress as well. Throws
  // TK0517 when it failed.
  std::vector<std::int64_t> finish(RequestId request);

  std::int64_t n_running() const { return static_cast<std::int64_t>(running_.size()); }
  std::int64_t n_waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  Runner& runner() { return runner_; }

  // Called with each request's row of logits before its token is chosen.
  std::function<void(RequestId, const TensorView& logits)> on_logits;

 private:
  struct Request {
    RequestId id = 0;
    SeqId seq = 0;
    std::vector<std::int64_t> tokens;  // prompt and answer
    std::size_t n_prompt = 0;
    RequestParams params;
    std::int64_t reserved = 0;  // blocks of its longest course
  };
  void admit();
  void run(std::span<Request* const> requests, std::span<const Piece> pieces, Phase phase,
           StepReport* report);
  void end(RequestId id);

  Runner runner_;
  Sampler sampler_;
  std::deque<Request> waiting_;
  std::vector<std::unique_ptr<Request>> running_;  // in order of admission
  std::int64_t reserved_ = 0;
  RequestId next_id_ = 1;
};

}  // namespace tk

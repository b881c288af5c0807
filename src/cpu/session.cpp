#include "cpu/session.h"

#include <algorithm>

#include "base/error.h"

namespace tk {

Session::Session(EngineModel model, const RunnerOptions& options)
    : runner_(std::move(model), options) {}

RequestId Session::add(std::vector<std::int64_t> prompt, RequestParams params) {
  check(params.sampling);
  const auto n = static_cast<std::int64_t>(prompt.size());
  if (n == 0)
    throw UserError("TK0511", "the prompt is empty").help("a prompt needs at least one token");
  if (params.max_new_tokens < 1)
    throw UserError("TK0516", cat("max_new_tokens must be 1 or more, got ", params.max_new_tokens));
  if (n > runner_.max_len())
    throw UserError("TK0512", cat("a prompt of ", n, " tokens is longer than ", runner_.max_len(),
                                  ", the most that is served here"))
        .help("shorten the prompt, or raise the length limit if the model allows");
  for (std::int64_t i = 0; i < n; ++i)
    if (prompt[static_cast<std::size_t>(i)] < 0 ||
        prompt[static_cast<std::size_t>(i)] >= runner_.vocab())
      throw UserError("TK0510",
                      cat("token id ", prompt[static_cast<std::size_t>(i)], " at place ", i,
                          " is outside the vocabulary of ", runner_.vocab(), " tokens"));
  // The last token of the answer is never run, so the cache may be full when it is chosen.
  params.max_new_tokens = std::min(params.max_new_tokens, runner_.max_len() - n + 1);
  Request r;
  r.id = next_id_;
  r.reserved = blocks_for(n + params.max_new_tokens - 1, runner_.block_size());
  if (r.reserved > runner_.pool().size() - 1)
    throw UserError("TK0513", cat("the KV cache of ", runner_.pool().size() - 1,
                                  " blocks cannot hold a request that needs ", r.reserved))
        .help("ask for fewer new tokens, or give the cache more memory");
  r.tokens = std::move(prompt);
  r.n_prompt = static_cast<std::size_t>(n);
  r.params = std::move(params);
  waiting_.push_back(std::move(r));
  return next_id_++;
}

void Session::cancel(RequestId request) {
  const auto it = std::find_if(waiting_.begin(), waiting_.end(),
                               [&](const Request& r) { return r.id == request; });
  if (it != waiting_.end()) {
    waiting_.erase(it);
    return;
  }
  end(request);
}

void Session::end(RequestId id) {
  const auto it =
      std::find_if(running_.begin(), running_.end(), [&](const auto& r) { return r->id == id; });
  if (it == running_.end()) return;
  runner_.close((*it)->seq);
  reserved_ -= (*it)->reserved;
  running_.erase(it);
}

void Session::admit() {
  while (!waiting_.empty() && n_running() < runner_.options().max_batch) {
    if (reserved_ + waiting_.front().reserved > runner_.pool().size() - 1) return;
    auto r = std::make_unique<Request>(std::move(waiting_.front()));
    waiting_.pop_front();
    r->seq = runner_.open();
    reserved_ += r->reserved;
    running_.push_back(std::move(r));
  }
}

StepReport Session::step() {
  StepReport report;
  admit();
  if (running_.empty()) return report;
  report.idle = false;
  std::vector<Piece> pieces;
  std::vector<Request*> requests;
  // Prompts first, so that they join the others soon. A prompt longer than a run is cut.
  std::int64_t room = runner_.options().max_tokens;
  for (const auto& r : running_) {
    const std::int64_t done = runner_.length(r->seq);
    const std::int64_t left = static_cast<std::int64_t>(r->n_prompt) - done;
    if (left <= 0 || room == 0) continue;
    const std::int64_t n = std::min(left, room);
    room -= n;
    requests.push_back(r.get());
    pieces.push_back({r->seq, {r->tokens.data() + done, static_cast<std::size_t>(n)}});
  }
  const Phase phase = pieces.empty() ? Phase::decode : Phase::prefill;
  if (phase == Phase::decode)
    for (const auto& r : running_) {
      requests.push_back(r.get());
      pieces.push_back({r->seq, {&r->tokens.back(), 1}});
    }
  run(requests, pieces, phase, &report);
  return report;
}

void Session::run(std::span<Request* const> requests, std::span<const Piece> pieces, Phase phase,
                  StepReport* report) {
  const Logits& logits = runner_.run(pieces, phase);
  report->run = runner_.stats();
  std::vector<RequestId> ended;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request& r = *requests[i];
    // A cut prompt goes on in the next step; its logits mean nothing yet.
    if (runner_.length(r.seq) < static_cast<std::int64_t>(r.tokens.size())) continue;
    const TensorView row = logits.row(static_cast<std::int64_t>(i));
    if (on_logits) on_logits(r.id, row);
    const auto produced = static_cast<std::int64_t>(r.tokens.size() - r.n_prompt);
    TokenEvent event{r.id, -1, Finish::no, {}};
    try {
      event.token = sampler_.sample(row, r.params.sampling, static_cast<std::uint64_t>(produced));
    } catch (const UserError& e) {
      event.finish = Finish::failed;
      event.error = e.message();
      ended.push_back(r.id);
      report->events.push_back(std::move(event));
      continue;
    }
    r.tokens.push_back(event.token);
    if (std::find(r.params.stop_ids.begin(), r.params.stop_ids.end(), event.token) !=
        r.params.stop_ids.end())
      event.finish = Finish::stop;
    else if (produced + 1 >= r.params.max_new_tokens)
      event.finish = Finish::length;
    if (event.finish != Finish::no) ended.push_back(r.id);
    report->events.push_back(std::move(event));
  }
  for (const RequestId id : ended) end(id);
}

std::vector<std::int64_t> Session::finish(RequestId request) {
  std::vector<std::int64_t> tokens;
  for (;;) {
    const StepReport report = step();
    if (report.idle) return tokens;
    for (const TokenEvent& e : report.events) {
      if (e.request != request) continue;
      if (e.finish == Finish::failed)
        throw UserError("TK0517", cat("request ", request, ": ", e.error))
            .note(cat("after ", tokens.size(), " tokens"));
      tokens.push_back(e.token);
      if (e.finish != Finish::no) return tokens;
    }
  }
}

}  // namespace tk

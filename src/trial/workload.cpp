#include "trial/workload.h"

#include <algorithm>

namespace tk {

std::vector<std::int64_t> spread_ids(std::int64_t n, std::int64_t vocab) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    ids[static_cast<std::size_t>(i)] = (3 + i * 7919) % std::max<std::int64_t>(1, vocab);
  return ids;
}

DecodeLoop::DecodeLoop(Runner* runner, std::vector<std::int64_t> context)
    : runner_(runner), context_(std::move(context)), seq_(runner->open()) {
  const Piece piece{seq_, context_};
  runner_->run(std::span(&piece, 1), Phase::prefill);
  next_ = context_.front();
}

DecodeLoop::~DecodeLoop() { runner_->close(seq_); }

void DecodeLoop::operator()() {
  const Piece piece{seq_, std::span(&next_, 1)};
  runner_->run(std::span(&piece, 1), Phase::decode);
  runner_->truncate(seq_, static_cast<std::int64_t>(context_.size()));
}

PrefillLoop::PrefillLoop(Runner* runner, std::vector<std::int64_t> prompt)
    : runner_(runner), prompt_(std::move(prompt)) {}

void PrefillLoop::operator()() {
  const SeqId seq = runner_->open();
  const Piece piece{seq, prompt_};
  runner_->run(std::span(&piece, 1), Phase::prefill);
  runner_->close(seq);
}

}  // namespace tk

// The units of work that are timed: one decode step, one prefill.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/runner.h"

namespace tk {

// n token ids spread over the vocabulary, the same each time.
std::vector<std::int64_t> spread_ids(std::int64_t n, std::int64_t vocab);

// One token after a context that is in the cache; the sequence is as before afterwards.
class DecodeLoop {
 public:
  DecodeLoop(Runner* runner, std::vector<std::int64_t> context);
  ~DecodeLoop();
  DecodeLoop(const DecodeLoop&) = delete;
  DecodeLoop& operator=(const DecodeLoop&) = delete;
  void operator()();

 private:
  Runner* runner_;
  std::vector<std::int64_t> context_;
  SeqId seq_;
  std::int64_t next_ = 0;
};

// A prompt into a new sequence.
class PrefillLoop {
 public:
  PrefillLoop(Runner* runner, std::vector<std::int64_t> prompt);
  void operator()();

 private:
  Runner* runner_;
  std::vector<std::int64_t> prompt_;
};

}  // namespace tk

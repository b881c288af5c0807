#include "trial/capture_check.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "cpu/bench.h"
#include "trial/workload.h"

namespace tk {
namespace {

// Two prompts together, later a third one.
constexpr std::int64_t prompts[] = {5, 3, 2};
constexpr std::int64_t steps_of_two = 5;
constexpr std::int64_t steps_of_three = 4;
constexpr std::int64_t longest = prompts[0] + steps_of_two + steps_of_three;

// What a captured graph is selected by: the padded batch and the width of the block table (GM-30).
struct Key {
  std::int64_t batch, width;
  auto operator<=>(const Key&) const = default;
};

// The keys that serving will ask for, each with the tokens of its longest sequence.
std::map<Key, std::pair<std::int64_t, std::int64_t>> keys_of(const Runner& r) {
  std::map<Key, std::pair<std::int64_t, std::int64_t>> keys;  // to batch, tokens
  for (std::int64_t s = 1; s <= steps_of_two + steps_of_three; ++s) {
    const std::int64_t batch = s <= steps_of_two ? 2 : 3;
    const std::int64_t tokens = prompts[0] + s;
    keys.try_emplace({r.bucket(batch), r.table_width(tokens)}, batch, tokens);
  }
  return keys;
}

double seconds_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The largest prefill of serving: it sizes the arena that all graphs lie in.
void warm_up_prefill(Runner* r) {
  const std::vector<std::int64_t> ids = spread_ids(prompts[0], r->vocab());
  const SeqId seqs[] = {r->open(), r->open()};
  const Piece pieces[] = {{seqs[0], ids}, {seqs[1], std::span(ids).first(prompts[1])}};
  r->run(pieces, Phase::prefill);
  for (const SeqId s : seqs) r->close(s);
}

// Seconds of a new step and of the same again.
std::pair<double, double> warm_up(Runner* r, std::int64_t batch, std::int64_t tokens) {
  const std::vector<std::int64_t> ids = spread_ids(tokens, r->vocab());
  std::vector<SeqId> seqs;
  std::vector<Piece> pieces;
  for (std::int64_t b = 0; b < batch; ++b) {
    seqs.push_back(r->open());
    const Piece prompt{seqs.back(), std::span(ids).first(ids.size() - 1)};
    if (tokens > 1) r->run({&prompt, 1}, Phase::prefill);
    pieces.push_back({seqs.back(), std::span(ids).last(1)});
  }
  const auto step = [&] { r->run(pieces, Phase::decode); };
  const double first = seconds_of(step);
  for (const SeqId s : seqs) r->truncate(s, tokens - 1);
  const double again = seconds_of(step);
  for (const SeqId s : seqs) r->close(s);
  return {first, again};
}

// Both run the same pieces; sequence numbers are theirs.
class Pair {
 public:
  Pair(Runner* a, Runner* b, CaptureCheck* check) : a_(a), b_(b), check_(check) {}

  void open(std::int64_t n) {
    for (; n > 0; --n) {
      seqs_.emplace_back(a_->open(), b_->open());
      lengths_.push_back(0);
    }
  }

  // `tokens[i]` more of sequence first + i.
  void run(Phase phase, std::size_t first, std::span<const std::int64_t> tokens) {
    std::vector<std::vector<std::int64_t>> ids(tokens.size());
    std::vector<Piece> of_a;
    std::vector<Piece> of_b;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::int64_t& length = lengths_[first + i];
      for (std::int64_t t = 0; t < tokens[i]; ++t)
        ids[i].push_back((7 + (length + t) * 7919 + static_cast<std::int64_t>(first + i) * 31) %
                         a_->vocab());
      length += tokens[i];
      of_a.push_back({seqs_[first + i].first, ids[i]});
      of_b.push_back({seqs_[first + i].second, ids[i]});
    }
    std::int64_t& runs = phase == Phase::prefill ? check_->prefills : check_->steps;
    ++runs;
    const Logits& want = a_->run(of_a, phase);
    const Logits& got = b_->run(of_b, phase);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const TensorView x = want.row(static_cast<std::int64_t>(i));
      const TensorView y = got.row(static_cast<std::int64_t>(i));
      check_->error.merge(compare(y, x));
      const Tensor a = contiguous(x);
      const Tensor b = contiguous(y);
      const bool same = a.dtype == b.dtype && a.bytes() == b.bytes() &&
                        std::memcmp(a.data, b.data, static_cast<std::size_t>(a.bytes())) == 0;
      if (!same && check_->same_bits)
        check_->first_difference = cat(phase == Phase::prefill ? "prefill " : "decode step ", runs,
                                       ", sequence ", first + i + 1);
      check_->same_bits &= same;
    }
  }

  void close() {
    for (const auto& [a, b] : seqs_) a_->close(a), b_->close(b);
  }

 private:
  Runner *a_, *b_;
  CaptureCheck* check_;
  std::vector<std::pair<SeqId, SeqId>> seqs_;
  std::vector<std::int64_t> lengths_;
};

}  // namespace

CaptureCheck check_capture(Runner* op_by_op, Runner* replay) {
  CaptureCheck c;
  for (const Runner* r : {op_by_op, replay})
    if (r->max_len() < longest || r->options().max_batch < 3) {
      c.detail = cat("it takes 3 sequences of up to ", longest, " tokens; here are ",
                     r->options().max_batch, " of ", r->max_len());
      return c;
    }
  c.done = true;
  Pair both(op_by_op, replay, &c);
  const Engine& decode = replay->engine(Phase::decode);
  // The largest first: a larger one later would move the arena from under those before it.
  const auto keys = keys_of(*replay);
  c.predicted = static_cast<std::int64_t>(keys.size());
  std::vector<double> making;
  warm_up_prefill(replay);
  for (auto it = keys.rbegin(); it != keys.rend(); ++it) {
    const auto [first, again] = warm_up(replay, it->second.first, it->second.second);
    making.push_back(std::max(first - again, 0.0));
  }
  c.warm_up_s = median(std::move(making));
  c.at_warm_up = decode.n_made();
  both.open(2);
  both.run(Phase::prefill, 0, std::span(prompts).first(2));
  const std::int64_t one[] = {1, 1, 1};
  for (std::int64_t s = 0; s < steps_of_two; ++s)
    both.run(Phase::decode, 0, std::span(one).first(2));
  both.open(1);
  both.run(Phase::prefill, 2, std::span(prompts).last(1));
  for (std::int64_t s = 0; s < steps_of_three; ++s) both.run(Phase::decode, 0, one);
  both.close();
  c.while_serving = decode.n_made() - c.at_warm_up;
  return c;
}

}  // namespace tk

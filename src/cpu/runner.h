// One packed run of a cached model: tokens of several sequences side by side, keys and values in
// the paged pool. The runner owns the caches and is the only one that changes their lengths.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cpu/engine.h"
#include "cpu/kv_pool.h"
#include "graph/weights.h"

namespace tk {

class WeightPacker;

// A model in its cached, token-flat form. Inputs of both graphs, by name: input_ids,
// position_ids, slot_mapping i64 [T], block_table i32 [B, MB], query_lens, kv_lens i32 [B], and
// optionally logit_rows i64 [R]; states [NB, block_size, heads, dim]; the first output is logits
// [R, V], or [T, V] without logit_rows.
struct EngineModel {
  Graph prefill, decode;
  Weights weights;
  std::int64_t block_size = 128;
  std::int64_t max_positions = 0;  // the model's own limit; 0: none known
  // Tokens that a prefill run is padded to, increasing; a longer one is not padded. Empty: none is.
  std::vector<std::int64_t> prefill_buckets = {};
};

struct RunnerOptions {
  int threads = 0;                 // 0: as many as the machine has cores
  std::int64_t n_blocks = 0;       // with the null block; 0: as many as fit `cache_bytes`
  std::int64_t cache_bytes = 0;    // 0: enough for max_batch sequences of max_len
  std::int64_t max_batch = 32;     // sequences in one run
  std::int64_t max_len = 0;        // tokens of a sequence; 0: max_positions, at most 4096
  std::int64_t max_tokens = 2048;  // tokens of one prefill run
  // Keep packed weights on disk for the next process; see cpu/packed_file.h.
  bool keep_packed = false;
  bool check = false;  // poison freed blocks with NaN, check slots and logits
  // Sizes that a decode batch is padded to, increasing; a larger batch is not padded. Empty: 1, 2,
  // 3, 4, 8, 16, 32, ... (choose_buckets chooses by cost).
  std::vector<std::int64_t> buckets;
  EngineOptions engine;
  // Runners of the same weights share what one of them has packed. Null: a packer of its own.
  std::shared_ptr<WeightPacker> packer;
  // Runners that are timed against each other share their threads, or one's idle workers would be
  // in the other's way. Null: threads of its own.
  std::shared_ptr<Team> team;
};

enum class Phase : std::uint8_t { prefill, decode };
enum class LogitRows : std::uint8_t { last, all };  // of each piece, or of every token

using SeqId = std::int64_t;
struct Piece {
  SeqId seq = 0;
  std::span<const std::int64_t> tokens;  // appended to the sequence
};

// Valid until the next run.
struct Logits {
  TensorView table;                // [rows of the graph's output, V]
  std::vector<std::int64_t> rows;  // of the table; row i is of piece i, or of token i of the run
  TensorView row(std::int64_t i) const;  // [V]
};

struct RunStats {  // of the last run
  Phase phase = Phase::prefill;
  std::int64_t tokens = 0, batch = 0, padded_batch = 0;
  double seconds = 0;
};

class Runner {
 public:
  // Throws TK0518 (an option out of range), TK0514 (the cache does not fit), TK0519 (not a cached
  // graph), and what make_plan throws.
  Runner(EngineModel model, const RunnerOptions& options);
  ~Runner();

  SeqId open();                          // an empty sequence
  void close(SeqId seq);                 // its blocks go back to the pool
  std::int64_t length(SeqId seq) const;  // tokens in the cache
  // Drops the last tokens of a sequence, e.g. to repeat a measurement.
  void truncate(SeqId seq, std::int64_t length);

  // Runs the pieces, each of another sequence and not empty; in the decode phase each of one token.
  // Throws TK0510 (token id), TK0511 (empty piece), TK0512 (longer than max_len), TK0513 (no free
  // blocks), TK0517 (NaN, with `check`); nothing has changed then, but for TK0517 and errors of
  // operators: the sequences have their former length, the cache beyond it is undefined.
  // A decode step allocates nothing, unless a sequence begins a block or the sizes are new, and
  // with one thread makes no system call; waiting threads spin for a while, then sleep.
  const Logits& run(std::span<const Piece> pieces, Phase phase, LogitRows rows = LogitRows::last);

  std::int64_t vocab() const { return vocab_; }
  std::int64_t max_len() const { return max_len_; }
  std::int64_t block_size() const { return block_size_; }
  std::int64_t cache_bytes() const { return cache_bytes_; }
  const BlockPool& pool() const { return pool_; }
  std::span<const std::int32_t> blocks(SeqId seq) const;
  const RunStats& stats() const { return stats_; }
  const RunnerOptions& options() const { return options_; }
  Engine& engine(Phase phase) { return phase == Phase::prefill ? *prefill_ : *decode_; }
  const Bound* last_bound() const { return last_bound_; }  // of the last run; null before
  int n_threads() const { return team_->size(); }

  // When set, the next runs fill it (for the timeline and reports).
  void set_times(LaunchTimes* times) { times_ = times; }
  // Called behind each run that succeeded, with its launches and their times.
  std::function<void(const Bound&, const LaunchTimes&)> on_run;

  // The size that a decode batch is padded to, at most max_batch.
  std::int64_t bucket(std::int64_t batch) const;
  // Columns of the block table in a run whose longest sequence has so many tokens then.
  std::int64_t table_width(std::int64_t tokens) const;

 private:
  struct Sequence {
    std::int64_t length = 0;
    std::vector<std::int32_t> blocks;
    std::uint64_t last_run = 0;  // that had a piece of it
  };
  void check_pieces(std::span<const Piece> pieces, Phase phase);
  void allocate(std::span<const Piece> pieces);
  void fill(const Bound& bound, std::span<const Piece> pieces, LogitRows rows);
  void check_slots(std::span<const Piece> pieces) const;
  void check_logits(std::span<const Piece> pieces, LogitRows rows) const;
  void poison(std::span<const std::int32_t> blocks);

  RunnerOptions options_;
  std::vector<std::int64_t> prefill_buckets_;
  std::int64_t block_size_, max_len_ = 0, vocab_ = 0, cache_bytes_ = 0;
  std::vector<Tensor> caches_;
  BlockPool pool_;
  std::shared_ptr<Team> team_;
  bool whole_prompts_ =
      false;  // the prefill graph attends to a prompt's own keys, not to the cache
  std::unique_ptr<Engine> prefill_, decode_;
  std::unordered_map<SeqId, Sequence> sequences_;
  SeqId next_id_ = 1;
  // Kept from run to run, so that a decode step allocates nothing.
  SymEnv sizes_{{"T", 0}, {"B", 0}, {"MB", 0}, {"R", 0}, {"NB", 0}, {"bs", 0}};
  std::uint64_t n_runs_ = 0;
  Logits logits_;
  RunStats stats_;
  const Bound* last_bound_ = nullptr;
  LaunchTimes* times_ = nullptr;
  LaunchTimes own_times_;  // for on_run
};

}  // namespace tk

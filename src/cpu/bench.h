// Speed of a runner: prefill and decode tokens per second, as the peers are measured.
#pragma once

#include <string>
#include <vector>

#include "cpu/buckets.h"
#include "cpu/runner.h"

namespace tk {

struct BenchOptions {
  std::int64_t prompt = 512;   // tokens of the prefill measurement (batch 1)
  std::int64_t context = 128;  // tokens in the cache before decode
  std::int64_t gen = 32;       // tokens decoded per repetition and sequence
  std::int64_t batch = 1;      // sequences decoded together
  int reps = 5;
};

// Tokens a second of wall time, and of this process's CPU time: with one thread the latter is what
// an unshared core would do, whatever else takes the cores meanwhile.
struct Rates {
  std::vector<double> wall, cpu;
};
double median(std::vector<double> values);  // 0 for none

struct BenchResult {
  Rates prefill, decode;
  // Of a prompt of `context` tokens, nothing bound before; who started the process adds the time
  // until then.
  double first_token_s = 0;
  double load_s = 0;  // filled by who loaded the model
  std::int64_t peak_rss_bytes = 0;
  std::int64_t batch = 1, threads = 1, prompt = 0, context = 0, gen = 0;
  // Per decode step of the last repetition: bytes that its launches move, and that as a share of
  // the memory bandwidth (see relate_to_bandwidth).
  std::int64_t decode_bytes = 0;
  double decode_bandwidth_share = 0;

  // One line of JSON with the fields that bench/peers print.
  std::string json() const;
};

// Token ids: a fixed spread of ordinary ones, the same for every engine that is compared.
std::vector<std::int64_t> bench_prompt(std::int64_t n, std::int64_t vocab, std::int64_t row = 0);

// Greedy decoding, each token from the logits before. Throws TK0512 when the runner's length limit
// is below prompt or context + gen, TK0518 for an option below 1.
BenchResult bench(Runner* runner, const BenchOptions& options);

// Fills decode_bandwidth_share, given the bytes per second that memory can be read with.
void relate_to_bandwidth(BenchResult* result, double bytes_per_s);

// The launches of one decode step, those of the same operator and kernel together, the longest
// first; medians over the steps of one repetition.
struct LaunchRow {
  std::string op, kernel;
  std::int64_t launches = 0, bytes = 0;  // of one step
  double seconds = 0;
};
std::vector<LaunchRow> decode_launches(Runner* runner, const BenchOptions& options);

// What a decode step costs by one way of running it.
struct StepCost {
  std::string name;
  std::vector<double> seconds;  // a step, each repetition's mean
  double host_seconds =
      0;  // of a step beside its launches, median, with the clock read twice a launch
  std::int64_t launches = 0;
};

// Decode in turns by several runners of one model, a repetition each (GM-63). `names` are theirs.
std::vector<StepCost> compare_steps(std::span<Runner* const> runners,
                                    std::span<const std::string> names,
                                    const BenchOptions& options);

// What buckets are chosen by: seconds of a decode step by batch, measured at 1, 2, 4, ... and
// max_batch and linear between, and the time that a plan for a new batch takes.
BucketCosts measure_bucket_costs(Runner* runner, const BenchOptions& options);

// Bytes that a run of these launches moves, with the cache as it is now.
std::int64_t moved_bytes(const Bound& bound);

}  // namespace tk

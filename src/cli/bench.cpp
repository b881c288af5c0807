#include "cpu/bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>

#include "cli/cli.h"
#include "cli/open.h"
#include "cli/trace.h"
#include "cpu/kernels/bandwidth.h"

namespace tk::cli {
namespace {

struct Flags {
  std::string model, trace, plan_cache;
  BenchOptions bench;
  int threads = 0;
  bool json = false, cell = false, unfused = false;
};

double seconds_since_start(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run(Flags f) {
  const auto start = std::chrono::steady_clock::now();
  Opened model = open_model(f.model, !f.unfused, f.plan_cache);
  RunnerOptions options;
  options.threads = f.threads;
  options.max_batch = f.bench.batch;
  options.max_len = std::max(f.bench.prompt, f.bench.context + f.bench.gen) + 1;
  if (model.engine.max_positions > 0)
    options.max_len = std::min(options.max_len, model.engine.max_positions);
  options.max_tokens = std::max<std::int64_t>(f.bench.prompt, f.bench.context * f.bench.batch);
  Runner runner(std::move(model.engine), options);
  const double load_s = seconds_since_start(start);
  BenchResult r = bench(&runner, f.bench);
  r.load_s = load_s;
  // After the peak of memory has been read: this takes a large buffer.
  const double bandwidth = kernels::measure_read_bandwidth(runner.n_threads());
  relate_to_bandwidth(&r, bandwidth);
  if (!f.trace.empty()) {
    // In runs of their own, so that reading the clock does not slow what is reported.
    TraceRecorder recorder;
    recorder.attach(&runner);
    f.bench.reps = 1;
    bench(&runner, f.bench);
    fmt::print(stderr, "trace: {}\n", recorder.write(f.trace, "tokamak bench"));
  }
  if (f.cell) {
    fmt::print("\nCELL {}\n", r.json());
  } else if (f.json) {
    fmt::print("{}\n", r.json());
  } else {
    fmt::print("prefill        {:>10.1f} tokens/s   ({} tokens, batch 1, median of {})\n",
               median(r.prefill.wall), r.prompt, r.prefill.wall.size());
    fmt::print("decode         {:>10.1f} tokens/s   (batch {}, {} tokens after {} in the cache)\n",
               median(r.decode.wall), r.batch, r.gen, r.context);
    fmt::print("first token    {:>10.1f} ms         (prompt of {} tokens; loading took {:.2f} s)\n",
               r.first_token_s * 1e3, r.context, r.load_s);
    fmt::print("peak memory    {:>10}\n", human_bytes(static_cast<double>(r.peak_rss_bytes)));
    fmt::print(
        "bandwidth      {:>10.1f} %          of the {:.1f} GB/s that {} threads read; a step moves "
        "{}\n",
        100 * r.decode_bandwidth_share, bandwidth / 1e9, r.threads,
        human_bytes(static_cast<double>(r.decode_bytes)));
  }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("bench", "Tokens per second, time to the first token, memory");
  c->add_option("model", flags->model, "A folder that optimize made, or a captured model")
      ->required();
  c->add_option("--prompt", flags->bench.prompt, "Tokens of the prefill that is measured")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  c->add_option("--context", flags->bench.context, "Tokens in the cache before decode")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  c->add_option("--gen", flags->bench.gen, "Tokens decoded per repetition")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  c->add_option("--batch", flags->bench.batch, "Sequences decoded together")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  c->add_option("--reps", flags->bench.reps, "Repetitions; medians are shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  c->add_option("--threads", flags->threads, "0: one per core")->check(CLI::Range(0, 1024));
  c->add_flag("--unfused", flags->unfused, "The cached graph of a captured model, without moves");
  c->add_option("--trace", flags->trace,
                "Write every launch of one repetition below this folder, for `tokamak profile`");
  c->add_option("--plan-cache", flags->plan_cache,
                "Folder in which a captured model's rewritten graphs are kept for the next start");
  c->add_flag("--json", flags->json, "One line of JSON");
  c->add_flag("--cell", flags->cell, "One line `CELL {json}`, as a bench driver reads it");
  c->footer("Example: tokamak bench out/stories --prompt 64 --context 32 --gen 32");
  c->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace tk::cli

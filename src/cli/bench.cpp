#include "cpu/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/open.h"
#include "cli/trace.h"
#include "cpu/kernels/bandwidth.h"
#include "cpu/pack.h"
#include "trial/deployment.h"

namespace tk::cli {
namespace {

struct Flags {
  std::string model, trace, plan_cache, requests;
  std::vector<std::int64_t> buckets;
  BenchOptions bench;
  int threads = 0;
  bool json = false, cell = false, unfused = false, gains = false, launches = false,
       no_bandwidth = false;
};

double seconds_since_start(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Seconds since the system started this process (to its clock tick), 0 where it does not say: field
// 22 of /proc/self/stat, ticks after boot.
double process_age() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0;
  timespec now{};
  if (!(fields >> ticks) || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double started = ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - started;
}

void print_launches(const std::vector<LaunchRow>& rows, double bandwidth) {
  double all = 0;
  for (const LaunchRow& r : rows) all += r.seconds;
  fmt::print("\n{:<34} {:<24} {:>8} {:>10} {:>7} {:>10} {:>7} {:>6}\n",
             "operator (one decode step)", "kernel", "launches", "us", "time", "bytes", "GB/s",
             "limit");
  for (const LaunchRow& r : rows) {
    const double rate = r.seconds > 0 ? static_cast<double>(r.bytes) / r.seconds : 0;
    fmt::print("{:<34} {:<24} {:>8} {:>10.1f} {:>6.1f}% {:>10} {:>7.1f} {:>5.0f}%\n", r.op,
               r.kernel, r.launches, r.seconds * 1e6, 100 * r.seconds / all,
               human_bytes(static_cast<double>(r.bytes)), rate / 1e9,
               bandwidth > 0 ? 100 * rate / bandwidth : 0);
  }
}

RunnerOptions runner_options(const Flags& f, const EngineModel& model) {
  RunnerOptions options;
  options.keep_packed = true;
  options.threads = f.threads;
  options.buckets = f.buckets;
  options.max_batch = f.bench.batch;
  options.max_len = std::max(f.bench.prompt, f.bench.context + f.bench.gen) + 1;
  if (model.max_positions > 0) options.max_len = std::min(options.max_len, model.max_positions);
  options.max_tokens = std::max<std::int64_t>(f.bench.prompt, f.bench.context * f.bench.batch);
  return options;
}

EngineModel copy_of(const EngineModel& m) {
  return {m.prefill.clone(), m.decode.clone(), m.weights,
          m.block_size,      m.max_positions,  m.prefill_buckets};
}

// From each operator by itself to the fused plan that is replayed, one thing at a time (GM-63).
int gains(const Flags& f) {
  if (is_deployment(f.model))
    throw UserError(
        "TK1508",
        cat(f.model, " holds fused graphs alone: the gain of fusion cannot be ", "told apart"))
        .help("--gains takes the captured model");
  const Opened plain = open_model(f.model, false, f.plan_cache);
  const Opened fused = open_model(f.model, true, f.plan_cache);
  RunnerOptions options = runner_options(f, plain.engine);
  const std::vector<std::string> names = {"op by op", "one launch list", "static shapes", "fused"};
  std::vector<std::unique_ptr<Runner>> runners;
  std::vector<Runner*> all;
  options.team = std::make_shared<Team>(
      f.threads > 0 ? f.threads : static_cast<int>(std::thread::hardware_concurrency()));
  options.packer = std::make_shared<WeightPacker>(options.team.get(), plain.engine.weights);
  for (std::size_t i = 0; i < names.size(); ++i) {
    options.engine.rebind = i < 2;
    options.engine.one_by_one = i < 1;
    runners.push_back(
        std::make_unique<Runner>(copy_of(i < 3 ? plain.engine : fused.engine), options));
    all.push_back(runners.back().get());
  }
  const std::vector<StepCost> costs = compare_steps(all, names, f.bench);
  if (f.json) {
    nlohmann::ordered_json rows = nlohmann::json::array();
    for (const StepCost& c : costs)
      rows.push_back({{"name", c.name},
                      {"step_s", median(c.seconds)},
                      {"steps_s", c.seconds},
                      {"host_s", c.host_seconds},
                      {"launches", c.launches}});
    fmt::print("{}\n", nlohmann::ordered_json{{"batch", f.bench.batch},
                                              {"context", f.bench.context},
                                              {"stages", std::move(rows)}}
                           .dump());
    return 0;
  }
  fmt::print("a decode step, batch {}, {} tokens in the cache, median of {} in turn\n",
             f.bench.batch, f.bench.context, f.bench.reps);
  fmt::print("{:<18}{:>10}{:>10}{:>12}{:>10}\n", "", "step ms", "gain ms", "host us", "launches");
  const char* gain_of[] = {"", "launch", "static shapes", "fusion"};
  double before = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const double step = median(costs[i].seconds);
    fmt::print("{:<18}{:>10.3f}{:>10}{:>12.1f}{:>10}  {}\n", costs[i].name, step * 1e3,
               i == 0 ? "" : fmt::format("{:.3f}", (before - step) * 1e3),
               costs[i].host_seconds * 1e6, costs[i].launches, gain_of[i]);
    before = step;
  }
  return 0;
}

// Which buckets the batches of a request trace want, and what others cost (GM-61).
int buckets(const Flags& f) {
  const std::vector<Request> requests = parse_requests(read_file(f.requests), f.requests);
  Opened model = open_model(f.model, !f.unfused, f.plan_cache);
  RunnerOptions options = runner_options(f, model.engine);
  options.buckets.clear();
  for (std::int64_t b = 1; b <= options.max_batch; ++b) options.buckets.push_back(b);
  Runner runner(std::move(model.engine), options);
  const BucketCosts costs = measure_bucket_costs(&runner, f.bench);
  const SizeCounts counts = decode_batches(requests, options.max_batch, costs.seconds);
  const Buckets chosen = choose_buckets(counts, costs, 0);
  std::vector<std::int64_t> each;
  std::int64_t steps = 0;
  for (const auto& [size, count] : counts) each.push_back(size), steps += count;
  const std::vector<std::pair<const char*, Buckets>> rows = {
      {"chosen", chosen},
      {"1, 2, 3, 4, 8, ...",
       cost_of_buckets({1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024}, counts, costs)},
      {"one for each batch", cost_of_buckets(each, counts, costs)},
      {"the largest alone", cost_of_buckets({each.back()}, counts, costs)}};
  if (f.json) {
    nlohmann::ordered_json out{{"steps", steps}, {"plan_s", costs.plan_seconds}};
    for (const auto& [name, b] : rows)
      out["buckets"].push_back({{"name", name},
                                {"sizes", b.sizes},
                                {"steps_s", b.seconds},
                                {"plans_s", b.plan_seconds}});
    fmt::print("{}\n", out.dump());
    return 0;
  }
  fmt::print("{} requests make {} decode steps of batches up to {}; a plan takes {:.2f} ms\n",
             requests.size(), steps, each.back(), costs.plan_seconds * 1e3);
  fmt::print("{:<20}{:>12}{:>12}  sizes\n", "buckets", "steps s", "plans s");
  for (const auto& [name, b] : rows)
    fmt::print("{:<20}{:>12.3f}{:>12.3f}  {}\n", name, b.seconds, b.plan_seconds,
               fmt::join(b.sizes, ","));
  fmt::print("use them: --buckets {}\n", fmt::join(chosen.sizes, ","));
  return 0;
}

int run(Flags f) {
  if (f.gains) return gains(f);
  if (!f.requests.empty()) return buckets(f);
  const auto start = std::chrono::steady_clock::now();
  Opened model = open_model(f.model, !f.unfused, f.plan_cache);
  const RunnerOptions options = runner_options(f, model.engine);
  Runner runner(std::move(model.engine), options);
  const double load_s = seconds_since_start(start), before = std::max(load_s, process_age());
  BenchResult r = bench(&runner, f.bench);
  r.load_s = load_s;
  r.first_token_s += before;  // of the process, as the peers' programs say it
  // After the peak of memory has been read: this takes a large buffer.
  const double bandwidth = f.no_bandwidth ? 0 : kernels::measure_read_bandwidth(runner.n_threads());
  if (bandwidth > 0) relate_to_bandwidth(&r, bandwidth);
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
    fmt::print(
        "first token    {:>10.1f} ms         (from the start of the process; {} tokens, loading "
        "took {:.2f} s)\n",
        r.first_token_s * 1e3, r.context, r.load_s);
    fmt::print("peak memory    {:>10}\n", human_bytes(static_cast<double>(r.peak_rss_bytes)));
    if (bandwidth > 0)
      fmt::print(
          "bandwidth      {:>10.1f} %          of the {:.1f} GB/s that {} threads read; a step "
          "moves "
          "{}\n",
          100 * r.decode_bandwidth_share, bandwidth / 1e9, r.threads,
          human_bytes(static_cast<double>(r.decode_bytes)));
    // In steps of their own: reading the clock slows small launches.
    if (f.launches) print_launches(decode_launches(&runner, f.bench), bandwidth);
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
      ->check(CLI::Range(1, 1 << 28))
      ->capture_default_str();
  c->add_option("--context", flags->bench.context, "Tokens in the cache before decode")
      ->check(CLI::Range(1, 1 << 28))
      ->capture_default_str();
  c->add_option("--gen", flags->bench.gen, "Tokens decoded per repetition")
      ->check(CLI::Range(1, 1 << 28))
      ->capture_default_str();
  c->add_option("--batch", flags->bench.batch, "Sequences decoded together")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  c->add_option("--reps", flags->bench.reps, "Repetitions; medians are shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  c->add_option("--threads", flags->threads, "0: one per core")->check(CLI::Range(0, 1024));
  c->add_flag("--no-bandwidth", flags->no_bandwidth,
              "Leave out the measurement of the read bandwidth, and what is related to it");
  c->add_flag("--launches", flags->launches,
              "The launches of a decode step: bytes, GB/s and the share of what memory gives");
  c->add_flag("--unfused", flags->unfused, "The cached graph of a captured model, without moves");
  c->add_flag(
      "--gains", flags->gains,
      "What a captured model's decode step gains by one launch list, static shapes, fusion");
  c->add_option(
      "--requests", flags->requests,
      "A trace, arrival_s,prompt_tokens,new_tokens a line: chooses the buckets of decode");
  c->add_option("--buckets", flags->buckets, "Sizes that a decode batch is padded to: 1,4,32")
      ->delimiter(',');
  c->add_option("--trace", flags->trace,
                "Write every launch of one repetition below this folder, for `tokamak profile`");
  c->add_option("--plan-cache", flags->plan_cache,
                "Folder in which a captured model's rewritten graphs are kept for the next start");
  c->add_flag("--json", flags->json, "One line of JSON");
  c->add_flag("--cell", flags->cell, "One line `CELL {json}`, as a bench driver reads it");
  c->footer(
      "Example: tokamak bench out/stories --prompt 64 --context 32 --gen 32\n"
      "Of a run on a real NPU: tokamak bench --read-log DIR (tokamak bench --read-log --help)");
  c->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace tk::cli

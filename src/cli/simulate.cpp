#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "cli/calibrate.h"
#include "cli/cli.h"
#include "cli/emulate_faults.h"
#include "cli/simulate_files.h"
#include "cli/simulate_subject.h"
#include "npu/lower_graph.h"
#include "npu/modes.h"
#include "npu/plan_json.h"
#include "npu/validation.h"
#include "trial/optimize.h"

namespace tk::cli {
namespace {

// "batch=1..256" or "batch=1..256:8".
std::vector<std::int64_t> parse_sweep(const std::string& text) {
  long long first = 0;
  long long last = 0;
  long long step = 1;
  int used = 0;
  const int n =
      std::sscanf(text.c_str(), "batch=%lld..%lld%n:%lld%n", &first, &last, &used, &step, &used);
  if (n < 2 || static_cast<std::size_t>(used) != text.size() || first < 1 || last < first ||
      step < 1 || (last - first) / step >= 4096)
    throw UserError("TK1422", cat("'", text, "' is no sweep"))
        .help("write batch=1..256 or batch=1..256:8; at most 4096 points");
  std::vector<std::int64_t> out;
  for (long long b = first; b <= last; b += step) out.push_back(b);
  return out;
}

int sweep(const SimulateSubject& s, const SimulateFlags& f, const Npu& d, Progress& progress) {
  std::vector<SweepPoint> points;
  for (const std::int64_t batch : parse_sweep(f.sweep)) {
    progress(cat("batch ", batch));
    const Simulation r = simulate_batch(s, f, d, batch);
    points.push_back(
        {batch, r.scene.tokens, r.step_ms(), static_cast<double>(r.weight_bytes + r.state_bytes)});
  }
  const double memory = d.file.numbers.at("hbm_gib") * (1LL << 30);
  const Band band = band_of(band_kind(d.mode));
  const std::string json = sweep_json(points, s.name, d.file.name, f.mode, f.phase, band, memory);
  if (!f.out.empty()) {
    std::filesystem::create_directories(f.out);
    const std::filesystem::path out = f.out;
    write_file(out / "sweep.json", json);
    write_file(out / "sweep.html",
               sweep_html(points, s.name, d.file.name, f.mode, f.phase, band, memory));
  }
  if (f.json) {
    std::cout << json;
    return 0;
  }
  fmt::print("{:>6} {:>10} {:>14} {:>10}\n", "batch", "step ms", "tokens/s", "memory GiB");
  for (const SweepPoint& p : points)
    fmt::print("{:>6} {:>10.3f} {:>14.1f} {:>10.1f}{}\n", p.batch, p.step_ms, p.tokens_per_second(),
               p.bytes / (1LL << 30), p.bytes > memory ? "  does not fit" : "");
  if (!f.out.empty())
    fmt::print("plot      {}\n", (std::filesystem::path(f.out) / "sweep.html").string());
  return 0;
}

// Eager against both graph modes, with the verdict on capture (GM-52, GM-63).
int modes(const SimulateSubject& s, const SimulateFlags& f, Npu d) {
  std::vector<ModeRow> rows;
  for (const sim::Mode mode : {sim::Mode::eager, sim::Mode::npugraph_ex, sim::Mode::ge_graph}) {
    d.mode = mode;
    rows.push_back({mode, simulate_batch(s, f, d, f.batch).step_ms(), band_of(band_kind(mode))});
  }
  if (f.json)
    std::cout << modes_json(rows, f.warm_up_s);
  else
    fmt::print("{} {} on {}, batch {}\n{}", s.name, f.phase, d.file.name, f.batch,
               modes_text(rows, f.warm_up_s));
  return 0;
}

std::string result_text(const std::string& path) {
  return read_file(std::filesystem::is_directory(path)
                       ? std::filesystem::path(path) / "simulation.json"
                       : std::filesystem::path(path));
}

int cases(const SimulateFlags& f, const CostFile& costs) {
  const std::string folder =
      f.configs.empty() ? (std::filesystem::path(f.cases).parent_path() / "model_configs").string()
                        : f.configs;
  const Validation v = run_cases(read_file(f.cases), f.cases, folder, costs);
  const std::string json = to_json(v);
  if (!f.out.empty()) {
    std::filesystem::create_directories(f.out);
    write_file(std::filesystem::path(f.out) / "validation.json", json);
    write_file(std::filesystem::path(f.out) / "validation.md", to_markdown(v));
  }
  if (f.json) {
    std::cout << json;
  } else {
    fmt::print("{}", summary_text(v));
  }
  return 0;
}

// simulation.json, the Plan where it was asked for, and the profiler's files of each rank.
struct Outputs {
  std::string json;
  std::vector<SimulatedRun> runs;
};

std::vector<std::string> write_outputs(const SimulateFlags& f, const sim::Plan& plan,
                                       const Outputs& out, const Faults& faults) {
  std::vector<std::string> written;
  if (!f.write_plan.empty()) write_file(f.write_plan, plan_to_json(plan));
  if (f.out.empty()) return written;
  const std::filesystem::path folder = f.out;
  std::filesystem::create_directories(folder);
  write_file(folder / "simulation.json", out.json);
  for (SimulatedRun run : out.runs) {
    const bool last = run.rank + 1 == static_cast<int>(out.runs.size());
    if (faults.missing_rank && last) continue;
    if (faults.any()) run.producer += cat("; faults: ", f.faults);
    const std::filesystem::path to = out.runs.size() > 1 ? folder / cat("rank_", run.rank) : folder;
    written.push_back(write_simulated_profile(run, to.string()));
    damage(written.back(), faults);
  }
  return written;
}

int show(const SimulateFlags& f, const std::string& json, const std::string& text,
         const std::vector<std::string>& profiles) {
  if (f.json) {
    std::cout << json;
    return 0;
  }
  fmt::print("{}", text);
  for (const std::string& p : profiles) fmt::print("profile         {}\n", p);
  return 0;
}

// Half of the clock from the middle of the second step on.
Disturbance disturbance_of(const Faults& faults, sim::Ps begin, sim::Ps step, std::int32_t mhz) {
  Disturbance d;
  d.stalled = faults.ai_cpu_stall;
  if (faults.clock_drop) d.mhz_from = {{begin, mhz}, {begin + step / 2, mhz / 2}};
  return d;
}

int one_rank(const SimulateSubject& subject, const SimulateFlags& f, const Npu& d,
             const Faults& faults) {
  if (faults.missing_rank)
    throw UserError("TK1458", "a rank cannot be missing where one is simulated")
        .help("add --ranks all");
  Simulation s = simulate_batch(subject, f, d, f.batch);
  Disturbance disturbed = disturbance_of(faults, s.begin, s.step, s.params.mhz);
  if (faults.clock_drop || faults.ai_cpu_stall)
    s = simulate_batch(subject, f, d, f.batch, disturbed);
  if (!f.explain.empty()) {
    fmt::print("{}", explain_text(s, d.file, d.costs, f.explain));
    return 0;
  }
  Outputs out{to_json(s), {}};
  out.runs.push_back({&s.plan, &s.params, &s.spans, s.begin,
                      producer_of(s.device, s.scene, s.cost_id), 0, 0, false,
                      std::move(disturbed.mhz_from)});
  return show(f, out.json, summary_text(s), write_outputs(f, s.plan, out, faults));
}

int all_ranks(const SimulateSubject& subject, const SimulateFlags& f, const Npu& d,
              const Faults& faults) {
  RanksSimulation s = simulate_all_ranks(subject, f, d);
  const Disturbance disturbed = disturbance_of(faults, s.begin, s.step, s.params.mhz);
  if (faults.clock_drop || faults.ai_cpu_stall) s = simulate_all_ranks(subject, f, d, disturbed);
  Outputs out{to_json(s), {}};
  for (std::size_t r = 0; r < s.ranks.size(); ++r)
    out.runs.push_back({&s.plan, &s.params, &s.ranks[r].spans, s.begin,
                        producer_of(s.device, s.scene, s.cost_id), static_cast<int>(r),
                        static_cast<int>(s.ranks.size()), true, disturbed.mhz_from});
  return show(f, out.json, ranks_text(s), write_outputs(f, s.plan, out, faults));
}

// A Plan that was written before, or by hand.
int run_plan(const SimulateFlags& f, const Npu& d) {
  const sim::Plan plan = plan_from_json(read_file(f.plan), f.plan);
  sim::SimOptions options;
  options.without = parse_effects(f.without);
  const sim::Result r = sim::simulate(plan, params_of(d.file, d.costs, plan.mode), options);
  return show(f, plan_run_json(plan, r), plan_run_text(plan, r), {});
}

int run(const SimulateFlags& f) {
  Progress progress(f.quiet || f.json);
  if (!f.compare.empty()) {
    fmt::print("{}", compare_text(result_text(f.compare[0]), f.compare[0],
                                  result_text(f.compare[1]), f.compare[1]));
    return 0;
  }
  const CostFile costs = f.costs.empty() ? default_costs() : load_costs(f.costs);
  if (!f.cases.empty()) return cases(f, costs);
  const std::string device = !f.device.empty() ? f.device : f.target.empty() ? "a3" : f.target;
  Target target = Target::cpu;
  if (!f.target.empty() && (!parse_target(f.target, &target) || target == Target::cpu))
    throw UserError("TK0703", cat("there is no target '", f.target, "' to simulate"))
        .help("the targets are a2 and a3");
  const Npu d{load_device_file(device), costs, parse_mode(f.mode)};
  if (!f.target.empty() && d.file.target != f.target)
    throw UserError("TK1411", cat("the device ", d.file.name, " is of target ", d.file.target,
                                  ", and the target is ", f.target));
  if (!parse_target(d.file.target, &target) || target == Target::cpu)
    throw UserError("TK1411", cat("the device ", d.file.name, " is of target '", d.file.target,
                                  "'; a2 or a3 is expected"));
  if (f.device_info) {
    fmt::print("{}", device_info(d.file, d.costs));
    return 0;
  }
  if (!f.calibrate.empty()) return calibrate_from(f.calibrate, f.out, d.file, d.costs);
  if (!f.replay.empty()) return replay_of(f.replay, d.file, d.costs);
  parse_effects(f.without);
  if (!f.plan.empty()) return run_plan(f, d);
  const Faults faults = parse_faults(f.faults);
  if (faults.any() && f.out.empty())
    throw UserError("TK1458", "faults are made in files, and none are written").help("add -o DIR");
  progress(cat("reading ", f.model));
  const SimulateSubject subject = open_subject(f, target);
  if (subject.graph && f.unknown_op.empty()) {
    const std::vector<std::string> unknown = unknown_operators(*subject.graph);
    if (!unknown.empty()) {
      std::string all;
      for (const std::string& u : unknown) all += "\n    " + u;
      const UserError error =
          UserError("TK1415", cat("the time of ", unknown.size(),
                                  " operators is not known and not guessed:", all))
              .help("--unknown-op bytes takes the time to move their bytes, and says so");
      fmt::print(stderr, "{}\n", error.what());
      return 1;
    }
  }
  if (f.modes) return modes(subject, f, d);
  if (!f.sweep.empty()) return sweep(subject, f, d, progress);
  progress("simulating");
  return f.ranks.empty() ? one_rank(subject, f, d, faults) : all_ranks(subject, f, d, faults);
}

}  // namespace

void add_simulate(CLI::App& app, int* exit_code) {
  auto f = std::make_shared<SimulateFlags>();
  CLI::App* c = app.add_subcommand("simulate", "How long a step would take on an NPU, and why");
  c->add_option("model", f->model,
                "A .pt2, a folder with one or that optimize made, a config.json");
  c->add_option("--target", f->target, "a2 or a3 [the device's; a3]");
  c->add_option("--device", f->device, "A variant of the target, or the path of a device file");
  c->add_option("--costs", f->costs, "A cost file in place of the built-in one");
  c->add_option("--phase", f->phase, "Which step")
      ->check(CLI::IsMember({"decode", "prefill"}))
      ->capture_default_str();
  c->add_option("--batch", f->batch, "Sequences of one rank")->capture_default_str();
  c->add_option("--kv", f->kv, "Tokens in the cache of each before a decode step")
      ->capture_default_str();
  c->add_option("--tokens", f->tokens, "New tokens of each sequence: 1 in decode, 1024 in prefill");
  c->add_option("--tp", f->tp, "Ranks that share heads and inner axes")->capture_default_str();
  c->add_option("--ep", f->ep, "Ranks that share the experts")->capture_default_str();
  c->add_option("--zipf", f->zipf, "Skew of the experts: 0 is even")->check(CLI::Range(0.0, 4.0));
  c->add_option("--block-size", f->block_size, "Tokens in a block of the cache")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  c->add_option("--mode", f->mode, "eager, npugraph_ex or ge_graph")->capture_default_str();
  c->add_flag("--modes", f->modes, "All three modes, and whether capture pays");
  c->add_option("--warm-up", f->warm_up_s,
                "Seconds that compiling and capturing take: for --modes and --on-miss recapture")
      ->check(CLI::Range(0.0, 1e9));
  c->add_flag("--streams", f->streams, "Shared experts on a stream of their own");
  c->add_flag("--no-fuse", f->no_fuse, "A captured model's cached graph without fused operators");
  c->add_option("--unknown-op", f->unknown_op, "bytes: unknown operators cost what they move")
      ->check(CLI::IsMember({"bytes"}));
  c->add_option("--ranks", f->ranks, "all: each rank with its own lengths and experts, not one")
      ->check(CLI::IsMember({"all"}));
  c->add_option("--lengths", f->lengths,
                "Tokens in the cache of each sequence: 4096,512; groups of ranks apart by /");
  c->add_option("--superkernel", f->superkernel,
                "attention, moe, layer, all, auto, or a file with a module a line");
  c->add_option(
       "--prefetch", f->prefetch,
       "Weights into L2 while the memory is free; auto: what it would gain, on: the step with it")
      ->check(CLI::IsMember({"auto", "on"}));
  c->add_option("--core-limit", f->core_limits,
                "Cube and vector cores at most: 12:24, or 2=8:16 of stream 2");
  c->add_flag("--dynamic", f->dynamic, "A graph of dynamic shapes: the host tiles each operator");
  c->add_option("--buckets", f->buckets, "Batches that were captured: 1,4,8; others are padded");
  c->add_option("--on-miss", f->on_miss, "What a batch above all buckets does")
      ->check(CLI::IsMember({"eager", "recapture"}))
      ->capture_default_str();
  c->add_option("--plan", f->plan, "A Plan as --write-plan makes it, in place of a model");
  c->add_option("--write-plan", f->write_plan, "A file for the Plan that is simulated");
  c->add_option("--emulate-faults", f->faults,
                "Faults in the files of -o: cut-trace, missing-rank, clock-drop, run-failed, "
                "ai-cpu-stall");
  c->add_option("--without", f->without, "Effects to leave out, apart by commas");
  c->add_option("--explain", f->explain, "A kernel by name or type, term by term");
  c->add_option("--compare", f->compare, "Two folders that simulate -o wrote")->expected(2);
  c->add_option("--sweep", f->sweep, "batch=1..256: throughput against latency, with a plot");
  c->add_flag("--device-info", f->device_info, "Every number of the device with its source");
  c->add_option("--calibrate", f->calibrate,
                "Measured profiles: fits the costs to them and writes the file -o");
  c->add_option("--replay", f->replay, "A measured profile: its durations in simulated order");
  c->add_option("--cases", f->cases, "Published cases: predicts each and says how far off it is");
  c->add_option("--configs", f->configs, "Folder of their configs (model_configs beside the file)");
  c->add_option("-o,--output", f->out, "Folder for simulation.json and the profiler's files");
  c->add_flag("--json", f->json, "Print JSON");
  c->add_flag("-q,--quiet", f->quiet, "No progress");
  c->footer("Example: tokamak simulate model.pt2 --target a3 --batch 16 --kv 4096 -o out");
  c->callback([f, exit_code] { *exit_code = run(*f); });
}

}  // namespace tk::cli

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
#include "cli/simulate_files.h"
#include "cli/subject.h"
#include "npu/lower_config.h"
#include "npu/lower_graph.h"
#include "npu/modes.h"
#include "npu/validation.h"
#include "trial/optimize.h"

namespace tk::cli {
namespace {

struct Flags {
  std::string model, out, target, device, phase = "decode", mode = "ge_graph", without, explain,
                                          sweep, costs, cases, configs, unknown_op, replay;
  std::vector<std::string> compare, calibrate;
  std::int64_t batch = 1, kv = 4096, tokens = 0, tp = 1, ep = 1, block_size = 128;
  double zipf = 0;
  double warm_up_s = 0;
  bool modes = false;
  bool device_info = false, streams = false, no_fuse = false, json = false, quiet = false;
};

// What is timed: a graph of the phase, or a config.
struct Subject {
  std::string name;
  std::optional<Graph> graph;
  std::string config, file;
};

Subject open_subject(const Flags& f, Target target) {
  Subject s;
  if (f.model.empty())
    throw UserError("TK1410", "there is no model to simulate")
        .help("give a .pt2, a folder that optimize made, or a config.json");
  if (f.model.ends_with(".json")) {
    s.name = std::filesystem::path(f.model).stem().string();
    s.file = f.model;
    s.config = read_file(f.model);
    return s;
  }
  SubjectOptions o;
  o.target = target;
  o.prefill = f.phase == "prefill";
  o.fuse = !f.no_fuse;
  o.block_size = f.block_size;
  SubjectGraph opened = open_graph(f.model, o);
  s.name = std::move(opened.name);
  s.graph = std::move(opened.graph);
  return s;
}

struct Npu {
  DeviceFile file;
  CostFile costs;
  sim::Mode mode;
};

// kv counts the tokens before this step's.
Step lower(const Subject& s, const Flags& f, std::int64_t batch) {
  const bool prefill = f.phase == "prefill";
  const std::int64_t query = f.tokens > 0 ? f.tokens : prefill ? 1024 : 1;
  const std::int64_t past = prefill ? 0 : f.kv;
  if (batch > (1 << 24) || query > (1 << 24) || f.kv > (1 << 28))
    throw UserError("TK1413", cat("a step of ", batch, " sequences with ", query,
                                  " new tokens and ", f.kv, " before them is too large"))
        .help("at most 2^24 sequences, 2^24 new tokens and 2^28 in the cache of each");
  if (s.graph) {
    StepShape shape;
    shape.tokens = batch * query;
    shape.sequences = batch;
    shape.kv_len = past + query;
    shape.block_size = f.block_size;
    return lower_graph(*s.graph, shape, {f.tp, f.ep, f.zipf, f.streams});
  }
  ConfigStep c;
  c.prefill = prefill;
  c.sequences = batch;
  c.query_len = query;
  c.kv_len = past;
  c.attn_tp = f.tp;
  c.ep = f.ep;
  c.attn_dp = std::max<std::int64_t>(1, f.ep / f.tp);
  c.moe_tp = f.ep == 1 ? f.tp : 1;
  c.streams = f.streams;
  c.zipf = f.zipf;
  return lower_config(s.config, s.file, c);
}

Simulation simulate(const Subject& s, const Flags& f, const Npu& d, std::int64_t batch) {
  const Step step = lower(s, f, batch);
  Scene scene;
  scene.model = s.name;
  scene.phase = f.phase;
  scene.batch = batch;
  scene.tokens = batch * (f.tokens > 0 ? f.tokens : f.phase == "prefill" ? 1024 : 1);
  scene.kv = f.phase == "prefill" ? 0 : f.kv;
  scene.tp = f.tp;
  scene.ep = f.ep;
  scene.without = f.without;
  return simulate_step(step, d.file, d.costs, d.mode, std::move(scene), parse_effects(f.without));
}

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

int sweep(const Subject& s, const Flags& f, const Npu& d, Progress& progress) {
  std::vector<SweepPoint> points;
  for (const std::int64_t batch : parse_sweep(f.sweep)) {
    progress(cat("batch ", batch));
    const Simulation r = simulate(s, f, d, batch);
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
int modes(const Subject& s, const Flags& f, Npu d) {
  std::vector<ModeRow> rows;
  for (const sim::Mode mode : {sim::Mode::eager, sim::Mode::npugraph_ex, sim::Mode::ge_graph}) {
    d.mode = mode;
    rows.push_back({mode, simulate(s, f, d, f.batch).step_ms(), band_of(band_kind(mode))});
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

int cases(const Flags& f, const CostFile& costs) {
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

int run(const Flags& f) {
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
  progress(cat("reading ", f.model));
  const Subject subject = open_subject(f, target);
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
  const Simulation s = simulate(subject, f, d, f.batch);
  if (!f.explain.empty()) {
    fmt::print("{}", explain_text(s, d.file, d.costs, f.explain));
    return 0;
  }
  const std::string json = to_json(s);
  std::string profile;
  if (!f.out.empty()) {
    std::filesystem::create_directories(f.out);
    write_file(std::filesystem::path(f.out) / "simulation.json", json);
    profile = write_simulated_profile(s, f.out);
  }
  if (f.json) {
    std::cout << json;
  } else {
    fmt::print("{}", summary_text(s));
    if (!profile.empty()) fmt::print("profile         {}\n", profile);
  }
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, int* exit_code) {
  auto f = std::make_shared<Flags>();
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
                "With --modes: seconds that compiling and capturing take; gives the break-even")
      ->check(CLI::Range(0.0, 1e9));
  c->add_flag("--streams", f->streams, "Shared experts on a stream of their own");
  c->add_flag("--no-fuse", f->no_fuse, "A captured model's cached graph without fused operators");
  c->add_option("--unknown-op", f->unknown_op, "bytes: unknown operators cost what they move")
      ->check(CLI::IsMember({"bytes"}));
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

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/cli.h"
#include "trial/deployment.h"
#include "trial/engine_model.h"
#include "trial/reference.h"

namespace tk::cli {
namespace {

struct Flags {
  std::string model, golden, stage;
  int threads = 0;
  bool json = false;
};

struct StageResult {
  std::string stage;
  Agreement agreement;
};

nlohmann::ordered_json json_of(const ErrorStats& e) {
  return {{"max_abs", e.max_abs},
          {"relative", e.relative()},
          {"rms", e.rms()},
          {"not_finite", e.not_finite},
          {"top1_agreement", e.top1_agreement()},
          {"positions", e.rows}};
}

nlohmann::ordered_json json_of(const StageResult& r) {
  const Agreement& a = r.agreement;
  nlohmann::ordered_json out{{"stage", r.stage},
                             {"passed", a.passed},
                             {"rule", a.rule},
                             {"max_abs", a.all.max_abs},
                             {"relative", a.all.relative()},
                             {"top1_agreement", a.all.top1_agreement()},
                             {"greedy_equal", a.greedy_equal},
                             {"prefill", json_of(a.prefill)},
                             {"decode", json_of(a.decode)}};
  if (a.against_f32) out["against_f32"] = json_of(*a.against_f32);
  if (!a.first_difference.empty()) out["first_difference"] = a.first_difference;
  return out;
}

Agreement run_cached(EngineModel model, const Reference& reference, int threads) {
  RunnerOptions o;
  o.threads = threads;
  o.max_batch = 4;
  o.check = true;
  std::int64_t longest = 1;
  for (const ReferenceSequence& s : reference.sequences)
    longest = std::max(longest, static_cast<std::int64_t>(s.ids.size()));
  o.max_len = longest + 1;
  Runner runner(std::move(model), o);
  Agreement alone = check_runner(&runner, reference, false);
  if (!alone.passed) return alone;
  return check_runner(&runner, reference, true);  // prompts of mixed lengths side by side
}

int run(const Flags& f) {
  const Golden golden = read_golden(f.golden);
  std::vector<StageResult> results;
  if (is_deployment(f.model)) {
    if (!f.stage.empty() && f.stage != "optimized")
      throw UserError("TK0708",
                      cat(f.model, " is an optimised model: it has no stage '", f.stage, "'"))
          .help("check the captured model for the stages captured and cached");
    Deployment d = load_deployment(f.model);
    // The f32 reference of a 16-bit model needs the captured graph, which is not here.
    const Reference reference = reference_of_golden(golden, CapturedModel{});
    results.push_back({"optimized", run_cached(std::move(d.engine), reference, f.threads)});
  } else {
    const CapturedModel model = load_model(f.model);
    if (!model.has_weights)
      throw UserError("TK0810", cat("the model in ", model.folder.string(),
                                    " has no weights: nothing can be run"));
    check_finite(model.weights);
    const Reference reference = reference_of_golden(golden, model);
    const auto asked = [&](const char* stage) { return f.stage.empty() || f.stage == stage; };
    if (asked("captured"))
      results.push_back({"captured", check_captured(model.graph, model.weights, reference)});
    if (asked("cached"))
      results.push_back({"cached", run_cached(engine_model(model, false), reference, f.threads)});
    if (asked("optimized"))
      results.push_back({"optimized", run_cached(engine_model(model, true), reference, f.threads)});
  }
  bool passed = true;
  for (const StageResult& r : results) passed &= r.agreement.passed;
  if (f.json) {
    nlohmann::ordered_json stages = nlohmann::json::array();
    for (const StageResult& r : results) stages.push_back(json_of(r));
    nlohmann::ordered_json out{
        {"model", f.model}, {"golden", f.golden}, {"passed", passed}, {"stages", stages}};
    // One stage alone is also there by its own names.
    if (results.size() == 1) out.update(json_of(results[0]));
    fmt::print("{}\n", out.dump(1));
    return passed ? 0 : 1;
  }
  fmt::print("{:<10} {:>12} {:>12} {:>8}  {:<7} {:<6} {}\n", "stage", "max abs err", "relative",
             "top-1", "greedy", "", "rule");
  for (const StageResult& r : results) {
    const Agreement& a = r.agreement;
    const ErrorStats& e = a.against_f32 ? *a.against_f32 : a.all;
    fmt::print("{:<10} {:>12.3e} {:>12.3e} {:>7.1f}%  {:<7} {:<6} {}\n", r.stage, e.max_abs,
               e.relative(), 100 * a.all.top1_agreement(), a.greedy_equal ? "equal" : "differs",
               a.passed ? "ok" : "FAILED", a.rule);
    if (!a.greedy_equal) fmt::print("           first difference: {}\n", a.first_difference);
  }
  return passed ? 0 : 1;
}

}  // namespace

void add_check(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c =
      app.add_subcommand("check", "Compare a model with golden logits; exit 1 when it differs");
  c->add_option("model", flags->model, "A captured model, or a folder that optimize made")
      ->required();
  c->add_option("--golden", flags->golden, "golden.safetensors")->required();
  c->add_option("--stage", flags->stage, "captured, cached or optimized; default: all")
      ->check(CLI::IsMember({"captured", "cached", "optimized"}));
  c->add_option("--threads", flags->threads, "0: one per core")->check(CLI::Range(0, 1024));
  c->add_flag("--json", flags->json, "The same as JSON");
  c->footer(
      "Example: tokamak check examples/stories260k --golden "
      "examples/stories260k/golden.safetensors");
  c->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace tk::cli

#include "trial/optimize.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/npu_view.h"
#include "report/report.h"
#include "trial/blueprint.h"

namespace tk::cli {
namespace {

struct Flags {
  std::string model, out, golden, budget = "120s", target = "cpu", phase = "both", requests;
  std::vector<std::string> moves, disable;
  int threads = 0;
  std::int64_t block_size = 128, prefill = 128, context = 64, tp = 1, ep = 1, batch = 1;
  double warm_up_s = 0;
  bool analysis_only = false, take_pending = false, json = false, quiet = false;
};

void check_moves(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const Move& m : all_moves()) known.push_back(m.name);
  known.emplace_back("capture");
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    UserError error("TK0702", cat("there is no move '", name, "'"));
    const std::string near = nearest(name, known);
    if (!near.empty()) throw std::move(error).help(cat("did you mean ", near, "?"));
    std::string all;
    for (const std::string& k : known) all += cat(all.empty() ? "" : ", ", k);
    throw std::move(error).help(cat("the moves are ", all));
  }
}

std::string time_of(const Comparison& c) {
  if (!c.measured) return "";
  return fmt::format("{:.3f} -> {:.3f} ms", c.before.median_ms, c.after.median_ms);
}

// Figures that are not measured say so.
std::string label(const Comparison& c) { return c.kind == "measured" ? "" : ", " + c.kind; }

void print_rows(const Ledger& l) {
  fmt::print("{:>3}  {:<28} {:<8} {:>5}  {:<12} {:<24} {}\n", "#", "move", "phase", "sites",
             "decision", "time", "why");
  for (const LedgerRow& r : l.rows) {
    const std::string decision =
        r.decision == Decision::not_tried
            ? std::string(r.sites == 0 ? "no site" : name_of(r.verdict.kind))
            : std::string(name_of(r.decision));
    fmt::print("{:>3}  {:<28} {:<8} {:>5}  {:<12} {:<24} {}\n", r.id, r.move, r.phase, r.sites,
               decision, time_of(r.decode.measured ? r.decode : r.prefill), r.why);
  }
}

void print_summary(const Ledger& l, const std::filesystem::path& out) {
  int kept = 0;
  int back = 0;
  int pending = 0;
  for (const LedgerRow& r : l.rows) {
    kept += r.decision == Decision::kept ? 1 : 0;
    back += r.decision == Decision::rolled_back ? 1 : 0;
    pending += r.decision == Decision::pending ? 1 : 0;
  }
  fmt::print("\n{} trials kept, {} rolled back{}, in {:.1f} s\n", kept, back,
             pending > 0 ? fmt::format(", {} pending", pending) : "", l.seconds);
  if (l.total_decode.measured)
    fmt::print("decode step   {}  ({:.2f}x of the unfused cached plan{})\n",
               time_of(l.total_decode), 1 / l.total_decode.ratio, label(l.total_decode));
  if (l.total_prefill.measured)
    fmt::print("prefill       {}  ({:.2f}x, {} tokens{})\n", time_of(l.total_prefill),
               1 / l.total_prefill.ratio, l.prefill_tokens, label(l.total_prefill));
  if (l.band.cases > 0)
    fmt::print("band          9 of 10 of {} published {}s were off by at most {:.0f} %\n",
               l.band.cases, l.band.kind, 100 * l.band.p90);
  if (l.captured_decode.measured)
    fmt::print(
        "next token    {}  ({:.1f}x of the captured graph run as it is, {} tokens before it)\n",
        time_of(l.captured_decode), 1 / l.captured_decode.ratio, l.decode_context);
  if (l.optimized.done)
    fmt::print(
        "numerics      {}: largest error {:.2e} of the largest logit, top-1 agreement {:.1f} %\n",
        l.optimized.passed ? "equal within tolerance" : "NOT equal", l.optimized.error.relative(),
        100 * l.optimized.error.top1_agreement());
  fmt::print("report        {}\n", (out / "report.html").string());
}

// What the NPU's fusion tree has for this model, written beside the ledger.
int analysis_for_npu(const Flags& f, const CapturedModel& model, const OptimizeOptions& o) {
  const Blueprint b = blueprint(model, o, {o.target, f.tp, f.ep, f.batch});
  const std::filesystem::path out = f.out;
  std::error_code error;
  std::filesystem::create_directories(out, error);
  write_file(out / "analysis.json", to_json(b));
  write_file(out / "analysis.md", to_markdown(b));
  const std::filesystem::path requests = out / "operator-requests.md";
  if (b.requests.empty()) {
    std::filesystem::remove(requests, error);  // of an earlier run
  } else {
    write_file(requests, requests_page(b));
  }
  if (f.json) {
    std::cout << to_json(b);
    return b.gate.empty() ? 0 : 1;
  }
  print_sites(b);
  fmt::print("analysis      {}\n", (out / "analysis.md").string());
  if (!b.requests.empty())
    fmt::print("no operator   {} chains: {}\n", b.requests.size(), requests.string());
  return b.gate.empty() ? 0 : 1;
}

int run(const Flags& f) {
  OptimizeOptions o;
  if (!parse_target(f.target, &o.target))
    throw UserError("TK0703", cat("there is no target '", f.target, "'"))
        .help("the targets are cpu, a2 and a3");
  if (o.target == Target::cpu && (f.tp > 1 || f.ep > 1))
    throw UserError("TK0703", "the target cpu is one device: --tp and --ep are of a2 and a3")
        .help("add --target a2 or a3");
  check_moves(f.moves);
  check_moves(f.disable);
  o.take_pending = f.take_pending;
  o.threads = f.threads;
  o.block_size = f.block_size;
  o.budget_s = parse_duration(f.budget);
  o.prefill_tokens = f.prefill;
  o.decode_context = f.context;
  o.moves = f.moves;
  o.disabled = f.disable;
  o.decode = f.phase != "prefill";
  o.prefill = f.phase != "decode";
  o.warm_up_s = f.warm_up_s;
  if (!f.requests.empty()) o.requests = parse_requests(read_file(f.requests), f.requests);
  Progress progress(f.quiet || f.json);
  o.progress = [&](const std::string& line) { progress(line); };
  progress(cat("reading ", f.model));
  const CapturedModel model = load_model(f.model);
  const std::filesystem::path out = f.out;
  std::error_code error;
  if (std::filesystem::exists(out) && !std::filesystem::is_directory(out))
    throw UserError("TK0704", cat(out.string(), " is there and is no folder"));
  if (std::filesystem::equivalent(out, f.model, error))
    throw UserError("TK0704", cat(out.string(), " is the model itself"))
        .help("give another folder: the captured model is not to be mixed with what comes of it");
  if (f.analysis_only && o.target != Target::cpu) return analysis_for_npu(f, model, o);
  Ledger ledger;
  std::optional<Optimized> result;
  if (f.analysis_only) {
    ledger = analyse(model, o);
  } else {
    std::optional<Golden> golden;
    if (!f.golden.empty()) golden = read_golden(f.golden);
    result = optimize(model, golden ? &*golden : nullptr, o);
    ledger = std::move(result->ledger);
  }
  std::filesystem::create_directories(out, error);
  // A run that is stopped here leaves a folder that is not whole, not an old model with a new
  // report.
  std::filesystem::remove(out / "tokamak.json", error);
  write_file(out / "ledger.json", to_json(ledger));
  write_file(out / "report.md", report_markdown(ledger));
  write_file(out / "report.html", report_html(ledger));
  if (result) save_deployment(out, result->deployment, model);
  if (f.json) {
    std::cout << to_json(ledger);
    return 0;
  }
  print_rows(ledger);
  print_summary(ledger, out);
  return 0;
}

}  // namespace

void add_optimize(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand(
      "optimize", "Turn a captured model into an optimised one, each change in a trial");
  c->add_option("model", flags->model, "A .pt2, or a folder that holds one")->required();
  c->add_option("-o,--output", flags->out, "Folder for the optimised model and its report")
      ->required();
  c->add_option("--golden", flags->golden,
                "Golden logits to check against (default: the captured graph's own)");
  c->add_option(
       "--target", flags->target,
       "cpu: measured here; a2, a3: operators of torch_npu, times predicted by the virtual NPU")
      ->capture_default_str();
  c->add_flag("--take-pending", flags->take_pending,
              "Also operators whose document does not name the target");
  c->add_option("--budget", flags->budget, "Time for trials: 90s, 5m, 1h")->capture_default_str();
  c->add_option("--moves", flags->moves, "Only these moves")->delimiter(',');
  c->add_option("--disable", flags->disable, "Not these moves")->delimiter(',');
  c->add_option("--phase", flags->phase, "Which graph to optimise")
      ->check(CLI::IsMember({"both", "prefill", "decode"}))
      ->capture_default_str();
  c->add_option("--threads", flags->threads, "0: one per core")->check(CLI::Range(0, 1024));
  c->add_option("--block-size", flags->block_size, "Tokens in a block of the KV cache")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  c->add_option("--prefill-tokens", flags->prefill, "Length of the prefill that is timed")
      ->check(CLI::Range(1, 1 << 28))
      ->capture_default_str();
  c->add_option("--decode-context", flags->context,
                "Tokens in the cache when a decode step is timed")
      ->check(CLI::Range(1, 1 << 28))
      ->capture_default_str();
  c->add_option("--requests", flags->requests,
                "A trace, arrival_s,prompt_tokens,new_tokens a line: tries prefill in buckets");
  c->add_option("--warm-up", flags->warm_up_s,
                "Of a2 and a3: seconds that compiling and capturing one graph take")
      ->check(CLI::Range(0.0, 1e9));
  CLI::Option* analysis = c->add_flag("--analysis-only", flags->analysis_only,
                                      "Structure, sites and verdicts; works without weights");
  c->add_option("--tp", flags->tp, "Tensor-parallel degree that the analysis assumes")
      ->check(CLI::Range(1, 4096))
      ->needs(analysis);
  c->add_option("--ep", flags->ep, "Expert-parallel degree that the analysis assumes")
      ->check(CLI::Range(1, 4096))
      ->needs(analysis);
  c->add_option("--decode-batch", flags->batch, "Sequences of a rank that the analysis assumes")
      ->check(CLI::Range(1, 1 << 20))
      ->needs(analysis);
  c->add_flag("--json", flags->json, "Print the ledger as JSON");
  c->add_flag("-q,--quiet", flags->quiet, "No progress");
  c->footer("Example: tokamak optimize examples/stories260k -o out/stories");
  c->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace tk::cli

#include "timeline/options.h"

#include <CLI/CLI.hpp>
#include <iostream>

namespace tk {

int parse_profile_options(int argc, char** argv, ProfileOptions& o) {
  CLI::App app{
      "Reads a profile of a real NPU (Ascend PyTorch Profiler or msprof), of a simulation or of "
      "this CPU, and says\n"
      "what every module of the model costs. Without an LLM's structure it gives the overview.\n\n"
      "  tokamak profile prof/decode -o runs            pages and metrics.json under runs/\n"
      "  tokamak profile prof/decode --compare prof/old  two profiles side by side\n"
      "  tokamak profile --check prof/decode            is the collection usable?\n",
      argc > 0 ? argv[0] : "tokamak profile"};
  app.add_option(
         "DIR", o.path,
         "folder of a profile, or its kernel_details.csv, op_summary_*.csv or trace_view.json")
      ->required();
  app.add_option("-o,--output", o.out, "folder for all results (default perf_breakdown/<label>)");
  app.add_option("--label", o.label, "name of this run (default: from the folder's name)");
  app.add_option("--rank", o.rank, "rank or device, where there are several");
  app.add_option("--stage", o.stage, "prefill or decode")
      ->check(CLI::IsMember({"prefill", "decode"}));
  app.add_flag("--all", o.all, "every rank and stage, each into a folder of its own");
  app.add_option("--step", o.step, "Step Id, or auto: the one nearest the median");
  app.add_flag("--overview", o.overview, "only what needs no structure of a model");
  app.add_flag("--check", o.check, "say whether the collection is usable, and what to set");
  app.add_option("--log", o.log, "--check: the log of the run");
  app.add_option("--expect", o.expect, "--check: what should be there: decode,steps=10,ranks=2");
  app.add_option("--latency", o.latency_ms, "--check: ms per step without the profiler");
  app.add_option("--graph", o.graph,
                 "captured model (.pt2, or a folder of optimize): names and structure from it");
  app.add_option("--structure", o.structure,
                 "structure_spec.json: layers and blocks by a person (with --samples)");
  app.add_option("--samples", o.samples, "sample_ack.json: one example of each block");
  app.add_option("--rules", o.rules, "cluster rules (<network>_spec.json)");
  app.add_flag("--ask", o.ask, "also write questions.md: what was found, for you to correct");
  app.add_option("--reuse", o.reuse,
                 "what you changed in the results' folder for an earlier profile: auto (as far as "
                 "this one is alike), all, spec (rules), none")
      ->check(CLI::IsMember({"auto", "all", "spec", "none"}));
  app.add_option("--taxonomy", o.taxonomy, "families of data movement (JSON)");
  app.add_option("--annotations", o.annotations, "judgements by stable key (JSON)");
  app.add_option("--theory", o.theory,
                 "what kernels should take: on (computed), off, or an operator_analysis.csv");
  app.add_option("--theory-decisions", o.theory_decisions,
                 "theory_stream_decisions.json: the stream that stands for a row");
  app.add_option("--theory-review-ratio", o.theory_review_ratio,
                 "a second stream of this share of the longest is flagged")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--outlier", o.outlier, "iqr:1.5 or z:2");
  app.add_option("--unmatched-limit", o.unmatched_limit,
                 "share of compute kernels in no component that is still fine")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--accept", o.accept, "blocking codes that may pass (comma separated)")
      ->delimiter(',');
  app.add_option("--compare", o.compare, "other profiles or runs");
  app.add_option("--baseline", o.baseline, "label that the others are compared with");
  app.add_option("--metric", o.metric, "what is compared")
      ->check(CLI::IsMember({"median", "mean", "p95", "max", "std"}));
  app.add_flag("--split,!--no-split", o.split,
               "cut kernels and trace per component into splits/ (default)");
  app.add_flag("--no-insights", o.no_insights, "no insights");
  app.add_flag("--no-trace", o.no_trace, "do not read the trace");
  app.add_flag("--allow-truncated", o.allow_truncated, "read what is whole of files that were cut");
  app.add_flag("--strict-steps", o.strict_steps, "stop if steps differ in their kernels");
  app.add_flag("--keep-ai-cpu", o.keep_ai_cpu, "keep AI CPU kernels (only with --overview)");
  app.add_option("--withdraw", o.withdraw, "take this label's section out of HISTORY.md");
  app.add_option("--reason", o.withdraw_reason, "why, for --withdraw");
  app.add_flag("--json", o.json, "the result as JSON on stdout");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      std::cout << app.help();
      return 0;
    }
    std::cerr << "error[TK0922]: " << e.what()
              << "\n  help: " << (argc > 0 ? argv[0] : "tokamak profile")
              << " --help shows the options\n";
    return 2;
  }
  return -1;
}

}  // namespace tk

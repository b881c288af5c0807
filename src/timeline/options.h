// What the profile command was asked for.
#pragma once

#include <string>
#include <vector>

#include "timeline/structure_graph.h"

namespace tk {

struct ProfileOptions {
  std::string path, out, label, stage, step = "auto";
  int rank = -1;
  std::string graph;           // a captured model, for names and structure
  std::string reuse = "auto";  // auto, all, spec, none (BD-20)
  std::string run_folder;      // of this run, for what an earlier one left there
  GraphReader read_graph;      // how it is read; empty where only profiles can be
  std::string structure, samples, rules, taxonomy, annotations;
  std::string theory = "on", theory_decisions;  // on, off, or an operator_analysis.csv
  double theory_review_ratio = 0.8;
  std::string outlier;  // iqr:1.5, z:2
  double unmatched_limit = 0.05;
  std::vector<std::string> accept;
  std::vector<std::string> compare;
  std::string baseline, metric = "median";
  bool split = true, json = false, overview = false, check = false, all = false;
  bool allow_truncated = false, no_trace = false, strict_steps = false, keep_ai_cpu = false,
       no_insights = false, ask = false;
  std::string log, expect, withdraw, withdraw_reason;
  double latency_ms = 0;

  bool accepts(const std::string& code) const {
    for (const std::string& c : accept)
      if (c == code) return true;
    return false;
  }
};

// Returns an exit code, or -1 to go on. Messages go to stdout (help) and stderr.
int parse_profile_options(int argc, char** argv, ProfileOptions& options);

}  // namespace tk

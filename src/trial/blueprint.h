// The analysis for an NPU before anything is tried: what the model is made of, which sites of the
// fusion tree it has, what stands for or against each, and what that leaves uncovered.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trial/optimize.h"
#include "trial/requests.h"

namespace tk {

// How the model is to be run, as far as sites depend on it. Sharding itself is not done here.
struct Scenario {
  Target target = Target::a2;
  std::int64_t tp = 1, ep = 1;  // degrees of tensor and expert parallelism
  std::int64_t batch = 1;       // sequences in a decode step, of one rank
};

// Nodes that compute one thing, in all layers alike: "attention" / "rope".
struct Chain {
  std::string component;  // embedding, attention, moe, ffn, norm, head, other
  std::string role;       // "projection", "cache write", "experts", ...
  std::string phase;
  std::string modules;  // classes of module paths, apart by ", "
  std::int64_t nodes = 0;
  std::map<std::string, std::int64_t> ops;
};

struct SiteVerdict {
  std::string id;         // "FS-N02"
  std::string operators;  // "npu_add_rms_norm"
  std::string phase, place;
  std::int64_t sites = 0;
  std::vector<std::string> covers, uncovered;  // roles of the component
  Verdict verdict;
  std::string needs;                // changes that come first
  std::string source;               // of the operator's facts
  std::vector<std::string> checks;  // evaluated constraints with their values
};

struct Blueprint {
  Scenario scenario;
  std::string model;
  std::vector<Chain> chains;
  std::vector<SiteVerdict> sites;
  std::vector<OperatorRequest> requests;  // of the fused graphs (FU-50)
  std::vector<std::string> gate;  // what is missing for the analysis to be complete; empty: passed
  double decode_ms_before = 0, decode_ms_after = 0;  // predicted, unfused and fused
  double band = 0;  // 9 of 10 published steps were off by at most this share
};

Blueprint blueprint(const CapturedModel& model, const OptimizeOptions& options,
                    const Scenario& scenario);

std::string to_json(const Blueprint& blueprint);
std::string to_markdown(const Blueprint& blueprint);
// The requests alone, as a page for those who write operators; "" when there are none.
std::string requests_page(const Blueprint& blueprint);

}  // namespace tk

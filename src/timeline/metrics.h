// Wall, bubble, TOTAL and what deviates (BD §8). Integers (ns) until they are printed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "timeline/clusters.h"
#include "timeline/structure.h"
#include "timeline/theory.h"

namespace tk {

struct Series {
  std::size_t count = 0;
  double median = 0, mean = 0, std = 0, p95 = 0, low = 0, high = 0;  // ns
};
Series series_of(const std::vector<Ns>& values);
double median_of(std::vector<double> values);
std::vector<std::size_t> outliers_of(const std::vector<double>& values,
                                     const OutlierRule& rule);  // BD-75

struct KernelOutlier {
  StringId op = 0;
  int occurrence = 0;
  std::size_t instance = 0;
  Ns duration = 0;
  double baseline = 0;  // ns
};
struct CountAnomaly {
  StringId op = 0;
  std::size_t instance = 0;
  int count = 0, usual = 0;
};
struct OpRecord {
  std::size_t instance = 0;
  std::uint32_t op = 0;
  int occurrence = 0;
};

// Theory of one sub-item over its instances (BD-91..93).
struct TheorySummary {
  std::optional<double> median_us;
  std::vector<double> series_us;  // of the instances that have one
  std::size_t supported = 0, review = 0, multi_stream = 0, unsupported_kernels = 0;
  std::vector<std::string> notes;  // of streams, each once
  std::vector<TheoryCandidate> per_instance;
};

struct SubItem {
  std::string name, description;
  bool bubble = false;
  std::vector<Ns> per_instance;
  Series series;
  std::vector<std::size_t> outliers;
  std::vector<KernelOutlier> kernel_outliers;
  std::vector<CountAnomaly> count_anomalies;
  std::vector<OpRecord> records;
  std::optional<TheorySummary> theory;
};

struct OverlapPair {
  std::string a, b;
  double median = 0, percent = 0;
  Ns high = 0;
};

struct DisplacedStream {
  std::int32_t stream = 0;
  std::size_t ops = 0;
  double median_wall = 0, percent = 0;
};

struct Section {
  std::string type;
  std::vector<std::size_t> instances;  // components
  bool has_rules = false;
  std::vector<SubItem> items;  // clusters in order, then bubble
  SubItem total;
  std::vector<std::pair<std::string, std::size_t>> unruled;  // by count
  double median_gap = 0, gap_percent = 0;
  Ns highest_gap = 0;
  std::vector<OverlapPair> pairs;
  std::optional<double> coverage;  // cluster_sum_pct_of_total
  std::vector<DisplacedStream> displaced;
  std::vector<std::string> idle_rules;  // that never won
};

struct Metrics {
  std::string label, model_name;
  OutlierRule outlier;
  std::vector<Section> sections;
  std::int64_t generated_at = 0;
  // The unmatched gate (BD-80).
  std::size_t compute_ops = 0, compute_unowned = 0;
  std::vector<std::string> warnings;
};

// `theory` may be off.
Metrics compute_metrics(const Timeline& t, const StepOps& ops, const Structure& s,
                        const ClusterRules& rules, const Theory& theory = {});
// metrics.json.
std::string metrics_text(const Timeline& t, const StepOps& ops, const Structure& s,
                         const Metrics& m, const Theory& theory = {});

}  // namespace tk

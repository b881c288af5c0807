// Findings (BD §12): facts are computed here; the judgement on each has an origin of its own, a
// rule or a person's annotation.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "timeline/bubbles.h"
#include "timeline/metrics.h"
#include "timeline/roles.h"
#include "timeline/steps_align.h"

namespace tk {

enum class InsightKind {
  module_bubble,
  operator_jitter,
  theoretical_deviation,
  vector_sequence,
  tensor_movement
};
std::string_view insight_category(InsightKind kind);  // "module_bubble" ...

struct Insight {
  InsightKind kind{};
  std::string list;  // persistent_module_bubbles, instance_bubble_outliers, cluster_jitter ...
  std::string key;   // stable (BD-135)
  std::string type, item;                   // row of the page it belongs to; empty: none
  std::string mapping_note;                 // why this row, where it is not direct
  double amount_us = 0;                     // what the list is sorted by
  std::string title;                        // "mla, layer 17: bubble 31.2 us"
  std::string confidence, reason, summary;  // the judgement
  std::string direction;  // movement: elimination_direction; vector: fusion_candidate
  bool needs_followup = false;
  std::string origin;  // rule:<id>, annotation
  nlohmann::json facts;
};

struct Insights {
  std::vector<Insight> all;  // by list, then amount
  std::vector<std::string> data_limits;
  std::vector<std::string> warnings;  // annotations with unknown keys
  nlohmann::json taxonomy_candidates;
};

struct InsightInput {
  const Timeline& timeline;
  const StepOps& ops;
  const Structure& structure;
  const Metrics& metrics;
  const GapFinder& gaps;
  const std::vector<Role>& roles;
  std::string taxonomy, annotations;  // files; empty: none
  const Theory& theory;               // off where kind is empty
  const StepAlignment& alignment;
};

// Throws TK0918 for a taxonomy or annotation file of another form.
Insights find_insights(const InsightInput& in);

// insights/*.json, final_conclusions.md, main_report_insights.json under `folder`.
void write_insights(const std::string& folder, const Insights& insights);

}  // namespace tk

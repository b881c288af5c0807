// The page of a profile: one HTML file that opens from disk, reads without JavaScript, and with it
// shows the step as a timeline with every kernel's columns.
#pragma once

#include <string>
#include <vector>

#include "timeline/metrics.h"
#include "timeline/overview.h"

namespace tk {

// One line in the insight column (BD-106).
struct RowInsight {
  std::string type, item;  // component type, sub-item
  std::string confidence, category, summary, evidence, source, note;
};

struct PageInput {
  const Timeline& timeline;
  const StepOps& ops;
  const Structure& structure;
  const Overview& overview;
  const Metrics* metrics = nullptr;  // none: no structure
  std::vector<RowInsight> insights;
  std::string label, stage, rank, step_origin, rules_origin, theory_source;
  std::vector<std::string> warnings;
  bool insights_page = false;  // link to insights/index.html
};

std::string profile_page(const PageInput& in);

// Parts, for the other pages.
std::string page_head(const std::string& title, bool script);
std::string page_style();

}  // namespace tk

// One profile, analysed: everything between the files and the pages.
#pragma once

#include <memory>
#include <optional>

#include "timeline/find.h"
#include "timeline/metrics.h"
#include "timeline/options.h"
#include "timeline/overview.h"
#include "timeline/reuse.h"
#include "timeline/roles.h"
#include "timeline/steps.h"
#include "timeline/steps_align.h"

namespace tk {

struct Analysis {
  ProfileFiles files;
  Timeline timeline;
  std::vector<Role> roles;
  std::vector<std::vector<std::uint32_t>> by_step;
  std::vector<StepSummary> steps;
  StepChoice choice;
  StepOps ops;
  std::unique_ptr<GapFinder> gaps;
  Overview overview;
  Structure structure;
  ClusterRules rules;
  std::optional<Metrics> metrics;
  StepAlignment alignment;
  Theory theory;  // off where kind is empty
  std::string label, stage, stage_origin, rank;
  Reuse reuse;
  std::vector<std::string> warnings;
  bool blocked = false;  // a gate failed: exit 1

  const StepSummary& step() const { return steps[choice.step]; }
};

// The name of a run where none was given: the folder's, made safe for a path.
std::string default_label(const ProfileFiles& files);

// Throws UserError. A profile without layers has no metrics.
std::unique_ptr<Analysis> analyse(const ProfileFiles& files, const ProfileOptions& options);

}  // namespace tk

// `--ask` (BD-55): questions.md with what was found filled in, for a person to correct.
#pragma once

#include <string>

#include "timeline/roles.h"
#include "timeline/structure.h"

namespace tk {

// A kernel that may mark layers (BD-52): occurs four times or more on a stream.
struct LayerCandidate {
  StringId type = 0;
  std::size_t count = 0, followers = 0;  // distinct kernels right behind it
  std::size_t period = 0;                // occurrences per layer, where the distances repeat best
  double gap_cv = 0;                     // variation of the distances at that period
};
// At most 40: kernels of a meaning of their own first, then few followers, then many occurrences.
std::vector<LayerCandidate> layer_candidates(const Timeline& t, const StepOps& ops);

std::string questions_text(const Timeline& t, const StepOps& ops, const Structure& s);

// "csa : excel 1210-1456 head=RmsNorm@1210 tail=MatMul@1456, neighbours ...": an instance that is
// neither the first nor the last; rows as Excel counts them. Empty: there is none of that type.
std::string sample_line(const Timeline& t, const StepOps& ops, const Structure& s,
                        const std::string& type);

}  // namespace tk

// What stands against capturing a decode step of a model.
#pragma once

#include <string>
#include <vector>

#include "import/model.h"
#include "trial/capturability.h"
#include "trial/optimize.h"

namespace tk::cli {

struct Capturability {
  std::vector<CaptureFactor> captured;  // in the graph as it was captured
  std::vector<CaptureFactor> decode;    // left in the optimised decode step
  CaptureRegion region;                 // of that step
  std::string problem;                  // why there is no decode step, or empty
};

Capturability capturability_of(const CapturedModel& model, Target target, CaptureBackend backend);
// Returns the exit code: 1 when the decode step cannot be captured.
int show_capturability(const Capturability& c, bool json);

}  // namespace tk::cli

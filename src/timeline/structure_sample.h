// Structure from one example of each block (BD §5): structure_spec.json and sample_ack.json.
#pragma once

#include <string>
#include <vector>

#include "timeline/structure.h"

namespace tk {

// Throws TK0914 for files that do not say what they must (all problems at once). Blocking codes
// that were not accepted set Structure::blocked (BD-41).
Structure sample_structure(const Timeline& t, const StepOps& ops, const std::string& spec_file,
                           const std::string& sample_file, const std::vector<std::string>& accept);

}  // namespace tk

#include "timeline/structure_sample.h"

#include "base/error.h"

namespace tk {

Structure sample_structure(const Timeline&, const StepOps&, const std::string&, const std::string&,
                           const std::vector<std::string>&) {
  throw UserError("TK0914", "not yet");
}

}  // namespace tk

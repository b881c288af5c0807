#include "trial/capture_json.h"

namespace tk {

nlohmann::ordered_json json_of(const std::vector<CaptureFactor>& factors) {
  auto out = nlohmann::ordered_json::array();
  for (const CaptureFactor& f : factors)
    out.push_back({{"rule", f.rule},
                   {"cause", f.cause},
                   {"found", f.found},
                   {"module", f.module},
                   {"place", f.place},
                   {"nodes", f.nodes},
                   {"blocks", f.blocks},
                   {"rewrite", f.rewrite}});
  return out;
}

nlohmann::ordered_json json_of(const CaptureRegion& region) {
  return {{"inputs", region.inputs},   {"fixed", region.fixed},
          {"states", region.states},   {"outputs", region.outputs},
          {"missing", region.missing}, {"returned_states", region.returned}};
}

}  // namespace tk

// Sites that exist only under tensor or expert parallelism: judged for a degree, not yet built.
#pragma once

#include <string>
#include <vector>

#include "trial/blueprint.h"

namespace tk {

// `graph` is the fused graph of the phase. `operators` of the results is the full operator name.
std::vector<SiteVerdict> parallel_sites(const Graph& graph, const std::string& phase,
                                        const Scenario& scenario);

}  // namespace tk

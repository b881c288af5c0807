// Which nodes count without anybody using their results.
#pragma once

#include "graph/graph.h"

namespace tk {

// Memory that lives across runs (a state) is written, directly or through views of it.
bool changes_state(const Node& node);

}  // namespace tk

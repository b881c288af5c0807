// Which operators treat rows (axis 0) one by one.
#pragma once

#include <functional>

#include "graph/graph.h"

namespace tk::fuse {

// True when row i of every result depends on row i alone of those inputs for which `is_rows` holds,
// and on the others as a whole.
bool is_row_wise(const Node& node, const std::function<bool(const Value*)>& is_rows);

}  // namespace tk::fuse

// One spelling for everything. What a capture writes in five ways comes out in one:
//
//   casts      aten.to {dtype}; none to the same dtype
//   shapes     aten.reshape {shape}, aten.permute {dims}, aten.expand {size}: sizes written out,
//              axes counted from 0, none that changes nothing, none after one of its kind
//   parts      aten.slice {dim, start, end, step}, aten.select; aten.cat for what was written part
//   by
//              part into new memory
//   numbers    aten.full for every filled tensor that does not follow another one's shape
//   matrices   aten.linear wherever the right side comes from weights alone
//   the rest   one name per operator (bitwise_and for &), defaults left out, equal nodes once
#pragma once

#include "graph/graph.h"

namespace tk {

// Rewrites the graph to its canonical form; calling it again changes nothing.
void canonicalize(Graph& graph);

}  // namespace tk

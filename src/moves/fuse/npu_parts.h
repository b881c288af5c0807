// What the forms of torch_npu's attention share.
#pragma once

#include "graph/rewrite.h"

namespace tk::fuse {

// A cache [blocks, block size, heads, D] as the operator reads it: [blocks, block size, heads * D].
Value* flat_cache(Build& b, Value* cache);

// Whether the operator can compute this tk attention at all: it has no softcap and no chunks.
bool has_operator(const Args& attention);

// `attrs` with the mask of this tk attention: sparse_mode, and for a window its two sides.
Attrs mask_attrs(const Args& attention, Attrs attrs);

// bool [2048, 2048], true above the diagonal: the mask of sparse_mode 3 and 4. One for the graph.
Value* triangle(Build& b);

}  // namespace tk::fuse

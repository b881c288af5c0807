// What makes a graph easier to read as code, without changing what it computes.
#pragma once

#include "graph/graph.h"

namespace tk::emit {

// npu_rms_norm with the residual stream beside it: (x, residual or none, gamma) -> (normed, sum).
// Only emission knows it: the first layer, whose residual is none, reads as the others.
extern const OpDef residual_norm;
extern const OpDef none;  // the residual of the first layer

// The rows of the logits are chosen before the head instead of inside the last layer, so that the
// last layer reads as the others.
Graph rows_before_head(const Graph& graph);

// npu_add_rms_norm, and npu_rms_norm at the same place of another layer -> residual_norm.
void unify_norms(Graph* graph);

// A view of a view is one view: layers whose rows are chosen early read as the others do.
void merge_reshapes(Graph* graph);

// Slices that together are all of a value's last axis become one split, which gives the parts the
// names of the modules that the slices came from.
void split_slices(Graph* graph);

}  // namespace tk::emit

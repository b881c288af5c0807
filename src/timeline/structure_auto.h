// Layers found without a person (BD-52, BD-53).
#pragma once

#include "timeline/roles.h"
#include "timeline/structure.h"

namespace tk {

// How it is found. The main stream is the one with the attention kernels; each attention kernel (or
// the few of one layer) is an anchor. The residual stream's norms, told by their width, cut the
// kernels between two anchors: the last one before an anchor starts the layer, the first one after
// it starts the MLP or MoE. A norm too many between two anchors is the final norm of one pass: what
// follows is another pass, or the MTP head. Kernels of other streams go to the block whose n-th
// occurrence they are, else to the block they overlap.
Structure auto_structure(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles);

// A profile without Step Ids that holds several equal passes of a model gets a step per pass.
// Returns the number of steps made, 0 if the Timeline was left alone.
std::size_t cut_passes(Timeline& t, const std::vector<Role>& roles);

}  // namespace tk

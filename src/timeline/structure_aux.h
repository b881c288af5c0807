// Kernels of the other streams to the blocks of the main stream. Internal to the automatic
// structure.
#pragma once

#include <set>

#include "timeline/structure.h"

namespace tk {

// By meaning first: a kernel (type and shapes) that occurs c times as often as a kind of block
// belongs to that kind, its n-th occurrences to the n-th block; among the kinds that fit, the one
// it overlaps most. Else by time: to the block it overlaps most, within the layers. `own`: the
// streams whose kernels were cut into the blocks, `sequence`: those kernels by time.
void assign_auxiliary(const Timeline& t, const StepOps& ops, const std::set<std::int32_t>& own,
                      const std::vector<std::uint32_t>& sequence, Structure& s);

}  // namespace tk

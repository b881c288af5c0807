// Kernels of the other streams to the blocks of the main stream. Internal to the automatic
// structure.
#pragma once

#include "timeline/structure.h"

namespace tk {

// By meaning first: a kernel (type and shapes) that occurs c times as often as a kind of block
// belongs to that kind, its n-th occurrences to the n-th block; among the kinds that fit, the one
// it overlaps most. Else by time: to the block it overlaps most, within the layers.
void assign_auxiliary(const Timeline& t, const StepOps& ops, std::int32_t main,
                      const std::map<std::int32_t, std::vector<std::uint32_t>>& streams,
                      Structure& s);

}  // namespace tk

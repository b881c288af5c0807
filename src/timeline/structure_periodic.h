// Layers of a model whose attention kernel nobody knows: what repeats on a stream. Internal to the
// automatic structure.
#pragma once

#include "timeline/structure_walk.h"

namespace tk {

// The shortest period of the kernels' types that holds norms and matrix multiplications and repeats
// three times or more over most of the sequence; none: no passes. Layers begin at a norm, the part
// with the activation or the experts comes second.
Walked periodic_layers(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                       const std::vector<std::uint32_t>& sequence);

}  // namespace tk

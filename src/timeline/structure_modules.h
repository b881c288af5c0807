// Structure from module paths (BD-50): a Timeline of ours carries them.
#pragma once

#include "timeline/structure.h"

namespace tk {

// "model.layers.3" of "model.layers.3.self_attn.q_proj"; empty: in no layer.
std::string layer_of(std::string_view path);

// True if at least 60 % of the compute kernels carry a path with a layer's number.
bool has_modules(const Timeline& t, const StepOps& ops);

// Layer: the first number in "model.layers.3.self_attn.q_proj"; block: the part behind it. Norms
// that stand in the layer itself go to the block after them, other kernels of the layer to the one
// before.
Structure module_structure(const Timeline& t, const StepOps& ops);

}  // namespace tk

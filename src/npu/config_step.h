// What a step of a config must keep to.
#pragma once

#include "npu/config_sizes.h"
#include "npu/lower_config.h"

namespace tk {

// Throws TK1413 for a size that is not positive or too large, TK1414 for degrees that do not divide
// what they are to divide.
void check_step(const ConfigSizes& sizes, const ConfigStep& step);

}  // namespace tk

// What this processor offers to the kernels, in words.
#pragma once

#include <string>

namespace tk {

std::string isa_name();  // "AVX-512, bf16 dot products, AMX bf16"

}  // namespace tk

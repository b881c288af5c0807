// What this machine is, for the evidence.
#pragma once

#include <string>

namespace tk {

std::string cpu_name();  // as /proc/cpuinfo has it
std::string isa_name();  // "AVX-512, bf16 dot products, AMX bf16"

}  // namespace tk

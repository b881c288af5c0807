// What this machine is, for the evidence.
#pragma once

#include <string>

namespace tk {

std::string cpu_name();  // as /proc/cpuinfo has it

}  // namespace tk

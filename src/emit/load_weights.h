// How the emitted model takes a checkpoint's tensors.
#pragma once

#include <string>
#include <vector>

#include "emit/classes.h"

namespace tk::emit {

std::vector<std::string> load_weights_lines(const Source& source);  // of load_weights
// Further methods that it calls: signature and lines.
std::vector<std::pair<std::string, std::vector<std::string>>> expert_methods(const Source& source);

}  // namespace tk::emit

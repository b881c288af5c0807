// How the emitted model takes a checkpoint's tensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "emit/classes.h"

namespace tk::emit {

// Tables beside the classes, of the checkpoint's names that are not the model's; "" without any.
std::string load_weights_tables(const Source& source);
// The methods: signature and lines.
std::vector<std::pair<std::string, std::vector<std::string>>> load_weights_methods(
    const Source& source);

}  // namespace tk::emit

// The files around the model's classes.
#pragma once

#include <vector>

#include "emit/classes.h"

namespace tk::emit {

std::vector<File> files_of(const Source& source, const Classes& classes, const Options& options);

// Python functions for our own operators that the target has none for, by name; "" when unknown.
std::string helper_text(std::string_view name);

// `text` with each @KEY@ replaced; an InternalError when one is left.
std::string filled(std::string text,
                   const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace tk::emit

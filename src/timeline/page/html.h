// Pieces of HTML for the profile pages.
#pragma once

#include <string>
#include <string_view>

#include "base/html.h"

namespace tk {

// A table cell that sorts by `value` and shows `text`.
std::string number_cell(double value, std::string_view text);
// JSON text that is safe inside <script>: "</" and "<!--" cannot occur.
std::string script_safe(std::string json);

}  // namespace tk

// Text inside HTML.
#pragma once

#include <string>
#include <string_view>

namespace tk {

// For elements and quoted attributes; control characters, which HTML does not allow, become spaces.
std::string escaped(std::string_view text);

}  // namespace tk

// Texts of the page that are files here: profile.css, theme.js, profile.js. Built in by CMake.
#pragma once

#include <string_view>

namespace tk {

extern const std::string_view profile_css, theme_js, profile_js;

}  // namespace tk

// Style and script of the optimisation report.
#pragma once

#include <string_view>

namespace tk {

extern const std::string_view page_css, page_js;

}  // namespace tk

// insights/index.html: conclusions on top, one tab per kind of finding (BD-137).
#pragma once

#include <string>

#include "timeline/insights.h"

namespace tk {

std::string insights_page(const Insights& insights, const std::string& label);

}  // namespace tk

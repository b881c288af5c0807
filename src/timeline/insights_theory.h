// Where kernels take longer than they should (BD-132).
#pragma once

#include <vector>

#include "timeline/insights.h"

namespace tk {

std::vector<Insight> theory_of_rows(const InsightInput& in);  // per (type, sub-item) and TOTAL
std::vector<Insight> theory_of_kernels(
    const InsightInput& in);  // per (cluster, kernel, occurrence)

}  // namespace tk

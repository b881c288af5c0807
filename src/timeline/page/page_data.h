// The kernels of a step as data inside the page: columns of numbers and texts, deflated, in base64.
#pragma once

#include <string>

#include "timeline/page/page.h"

namespace tk {

// <script type="application/json" id="tk-data"> ... and one <script> per column.
std::string page_data(const PageInput& in);

}  // namespace tk

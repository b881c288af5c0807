// The overview part of the page: tables that read without JavaScript and sort with it.
#pragma once

#include <string>

#include "timeline/page/page.h"

namespace tk {

std::string overview_tables(const PageInput& in);

}  // namespace tk

// Names of values, from what made them and what reads them.
#pragma once

#include <string>

#include "emit/body.h"

namespace tk::emit {

std::string name_of_value(const Phase& phase, const Value& v);

}  // namespace tk::emit

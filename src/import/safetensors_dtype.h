// The names of element types in safetensors, shared by its reader and its writer.
#pragma once

#include <string>
#include <string_view>

#include "base/dtype.h"

namespace tk {

bool dtype_of_safetensors(std::string_view name, DType* out);  // "BF16", ...; false for others
std::string_view safetensors_name(DType dtype);
std::string safetensors_dtypes();  // all of them, for messages

}  // namespace tk

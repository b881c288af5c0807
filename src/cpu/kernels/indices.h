// Reading indices that are i32 or i64.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace tk::kernels {

inline std::int64_t index_at(const void* p, DType dtype, std::int64_t i) {
  return dtype == DType::i32 ? static_cast<const std::int32_t*>(p)[i]
                             : static_cast<const std::int64_t*>(p)[i];
}

}  // namespace tk::kernels

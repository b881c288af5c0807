// Names of kernels as kernel_details.csv spells them, and the family of an operator.
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.h"
#include "npu/work.h"

namespace tk {

std::string kernel_type(std::string_view op);  // "npu.npu_add_rms_norm" -> "AddRmsNorm"
Family family_of(const Node& node, const Cost& cost);
// Vector instructions an element of the result, of operators without a cost rule of their own
// (VN-22); the fused ones' rules count alike.
double vector_passes(std::string_view op);
bool reduces(std::string_view op);             // each element of its input is seen, few come out
std::string_view profiler_dtype(DType dtype);  // "DT_BF16"

}  // namespace tk

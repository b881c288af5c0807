// The operators of torch_npu by their C++ names, from npu_ops.def.
#pragma once

#include "graph/op.h"

namespace tk::ops {

#define TK_OP(symbol) extern const OpDef symbol;
#include "ops/npu/npu_ops.def"
#undef TK_OP

}  // namespace tk::ops

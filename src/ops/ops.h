// The operator definitions by their C++ names: ops::aten_linear and so on, from ops.def.
#pragma once

#include "graph/op.h"

namespace tk::ops {

#define TK_OP(symbol) extern const OpDef symbol;
#include "ops/ops.def"
#undef TK_OP

}  // namespace tk::ops

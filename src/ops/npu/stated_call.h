// A call of an operator of torch_npu in words, as far as it is known, and what its limits say.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/limits.h"

namespace tk {

// Each is "name=value". Tensors are named as the library's signature does; where an operator has
// none of that name, x and self are the first one.
struct StatedCall {
  std::vector<std::string> shapes;   // "x=[4, 7168]", "x=[T, 7168]"
  std::vector<std::string> dtypes;   // "x=bf16", or "bf16" for every tensor that has none
  std::vector<std::string> attrs;    // "k=8", "layout=BSND"
  std::vector<std::string> symbols;  // "He=5120": a symbol of the limits, or graph, phase, world
};

enum class Legal : unsigned char { yes, no, pending };

struct CheckedCall {
  struct Row {
    LimitResult result;
    std::optional<LimitChange> change;  // of a violated one
  };
  Legal legal = Legal::yes;
  std::string why;                   // of no and pending, in words
  std::string refused;               // by the operator itself, whatever the device
  std::vector<Row> rows;             // every limit of the device
  std::vector<std::string> unknown;  // arguments that were not stated
};

// `soc` is "a2", "a3", or "" where no device is named. Pending: no device is named, its document
// doesn't name it, or there is no document. Throws TK0322 for names that the operator doesn't have,
// TK0323 for values that cannot be.
CheckedCall check_stated(const OpDef& op, const StatedCall& call, std::string_view soc);

}  // namespace tk

// The signature of a capture: which inputs are weights, which results are the forward's.
#pragma once

#include <string_view>
#include <vector>

#include "import/json.h"

namespace tk {

struct Pt2Input {
  std::string_view kind;   // "parameter", "buffer", "tensor_constant", "user_input"
  std::string_view value;  // its name in the graph
  std::string_view name;   // of the weight; empty for what the caller passes
  bool is_weight() const { return !name.empty(); }
};

// In order. `signature` is graph_module.signature; views point into its document. Throws TK0205
// (two of one name, or a name that the text form cannot hold) and TK0206 (another kind of input).
std::vector<Pt2Input> read_inputs(const json::Value& signature);

// The names of the forward's results. Throws TK0206 when it also changes buffers or inputs.
std::vector<std::string_view> read_outputs(const json::Value& signature);

}  // namespace tk

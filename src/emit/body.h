// What one module computes in one phase, as the lines of a method.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "emit/express.h"
#include "emit/regions.h"

namespace tk::emit {

// What the whole graph says: shared by the bodies of its regions.
struct Phase {
  const Graph* graph = nullptr;
  Regions regions;
  Paths paths;
  Sym hidden_size;  // of the residual stream
  // Attributes that some call of an operator sets: "npu.npu_x.attr".
  std::set<std::string, std::less<>> set_attrs;
  std::unordered_map<const Value*, std::string> folded;  // names of attributes, once they are known
  std::unordered_map<const Value*, std::string> caches;  // attributes of states in their modules
};
Phase phase_of(const Graph& graph, const ModuleTypes& types, const std::set<std::string>& flat);

struct Body {
  std::vector<std::string> params;  // after self; forward_metadata is the last when it is used
  std::vector<std::string> lines;   // statements; those of a loop are indented
  std::set<std::string> helpers;
  bool uses_npu = false;
  bool unrolled = false;  // layers could not be written as a loop
};
Body body_of(const Phase& phase, const Region& region);

// A folded value from the weights below `path`, as the statement in process_weights_after_loading
// has it, and the name for it; `lines` come before it.
struct FoldedText {
  std::vector<std::string> lines;
  std::string text, name;
};
FoldedText folded_text(const Phase& phase, const Value& v, const Region& home);

// Below self: "layers[0].mlp" of "model.layers.0.mlp" in "model".
std::string relative(std::string_view path, std::string_view module);

}  // namespace tk::emit

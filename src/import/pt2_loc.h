// Where a node of a capture comes from: its module and its line in the model's code.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "graph/graph.h"
#include "import/json.h"

namespace tk {

// The innermost frame of a stack trace that is the model's own code rather than torch's; the file
// without its folders. Empty when there is none.
struct Frame {
  std::string file;
  int line = 0;
};
Frame innermost_frame(std::string_view stack_trace);

// The innermost entry of nn_module_stack: "key,path,type;key,path,type;...". The module type
// without its package.
struct ModuleEntry {
  std::string_view path, type;
};
ModuleEntry innermost_module(std::string_view stack);

// The name of the module that a capture was wrapped in to fix its arguments, with a dot ("model."),
// or empty: the root module has that one child, all nodes and weights lie in it, and it has modules
// of its own.
class WrapperFinder {
 public:
  void add_module(std::string_view path);  // "" is the root itself
  void add_weight(std::string_view name);
  std::string prefix() const;

 private:
  std::string child_;
  bool single_ = true;
  bool nested_ = false;
};

class Locations {
 public:
  Locations(Graph& graph, std::string prefix) : graph_(graph), prefix_(std::move(prefix)) {}
  // From a node's metadata; null when it says nothing.
  const Loc* of(const json::Value& metadata);

 private:
  Graph& graph_;
  std::string prefix_;
  std::unordered_map<std::string_view, Frame> frames_;  // by stack trace: few differ
};

}  // namespace tk

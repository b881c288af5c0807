// Errors that name the place of a node in the user's model.
#pragma once

#include <utility>

#include "base/error.h"
#include "graph/graph.h"

namespace tk {

inline UserError located(UserError error, const Node& node) {
  if (node.loc == nullptr) return error;
  return std::move(error).at(node.loc->file, node.loc->line).in_module(node.loc->module);
}

}  // namespace tk

// The decomposition of a cached graph into chains: components by what their modules contain, roles
// by operator and place in the dataflow.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace tk {

struct ChainOf {
  std::string component, role;
};

// Of every node that computes something: not of views, nor of what weights alone decide.
std::unordered_map<const Node*, ChainOf> chains_of(const Graph& graph);

// The chains that a site of the fusion tree replaces: "rope", "cache write", ...
std::vector<std::string> roles_of_site(std::string_view id);

}  // namespace tk

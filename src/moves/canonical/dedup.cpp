#include <functional>
#include <unordered_map>

#include "moves/canonical/rules.h"

namespace tk::canonical {
namespace {

std::size_t hash_of(const Node& n) {
  std::size_t h = std::hash<const void*>{}(n.op);
  auto mix = [&h](std::size_t x) { h = (h ^ x) * 0x9E3779B97F4A7C15ULL + (h >> 29); };
  for (const Value* v : n.inputs) mix(std::hash<const void*>{}(v));
  std::size_t attrs = 0;  // in any order
  for (const auto& [key, value] : n.attrs)
    attrs += std::hash<std::string>{}(key) * 31 + std::hash<std::string>{}(str(value));
  mix(attrs);
  return h;
}

bool equal(const Node& a, const Node& b) {
  return a.op == b.op && a.inputs == b.inputs && a.attrs == b.attrs;
}

}  // namespace

std::size_t dedup(Graph& graph) {
  std::unordered_multimap<std::size_t, Node*> seen;
  std::size_t dropped = 0;
  for (Node* n : nodes(graph)) {
    const std::size_t hash = hash_of(*n);
    auto [it, end] = seen.equal_range(hash);
    while (it != end && !equal(*it->second, *n)) ++it;
    if (it == end) {
      seen.emplace(hash, n);
      continue;
    }
    for (std::size_t i = 0; i < n->outputs.size(); ++i)
      graph.replace_uses(n->outputs[i].get(), it->second->outputs[i].get());
    graph.erase(n);
    ++dropped;
  }
  return dropped;
}

}  // namespace tk::canonical

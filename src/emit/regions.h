// A graph's nodes as calls of the modules they came from: a tree of regions, each with what it
// takes, what it gives, and its own nodes and children in order.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace tk::emit {

struct Region;

struct Item {
  const Node* node = nullptr;  // either
  Region* child = nullptr;     // or
};

struct Region {
  std::string path;  // "model.layers.0.self_attn"; "" is the model itself
  std::string type;  // "LlamaAttention"; "" when not known
  std::string file;  // where its first node comes from
  int line = 0;
  Region* parent = nullptr;
  std::vector<std::unique_ptr<Region>> children;
  std::vector<const Node*> nodes;  // its own
  std::vector<Item> items;         // own nodes and children, in an order that can be run
  std::vector<const Value*> inputs, outputs;
  // Of the inputs those that are values of the other phase, which alone has them: their names.
  std::unordered_map<const Value*, std::string> foreign;
  bool uses_step = false;  // it or a child of it reads what changes from step to step
};

// What a value is to the code that is written.
enum class Role : std::uint8_t {
  plain,   // computed in forward
  weight,  // of the checkpoint
  folded,  // from weights alone: worked out once, after loading
  step,    // the step's tables and lengths, and views of them
  state,   // a cache, or a view of all of one
};

struct Regions {
  std::unique_ptr<Region> root;
  std::unordered_map<const Node*, Region*> of;  // of every node but those of folded values
  std::unordered_map<const Value*, Role> roles;
  std::unordered_map<const Value*, const Value*> states;  // of role state: the graph's state
  // Folded values that forward uses: the region that holds each.
  std::vector<std::pair<const Value*, Region*>> folded;

  Role role(const Value* v) const { return roles.at(v); }
};

// Module paths of weights and nodes: "model.model.norm.weight" of a wrapped capture is
// "model.norm.weight".
struct Paths {
  std::string wrapper;  // "model." or ""
  // Weights of two names, by the one that the graph has: the head that is the embedding.
  std::map<std::string, std::string, std::less<>> tied;
  std::string weight(const Value& v) const;  // the checkpoint's name
};
Paths paths_of(const Graph& graph);

// Types of modules by path: "model.layers.0.mlp" -> "LlamaMLP".
using ModuleTypes = std::map<std::string, std::string, std::less<>>;
void collect_types(const Graph& graph, ModuleTypes* types);

// `flat` names modules that are written into their parents.
Regions find_regions(const Graph& graph, const Paths& paths, const ModuleTypes& types,
                     const std::set<std::string>& flat);

// "model.layers.0" of "model.layers.0.mlp"; numbers stay with the name before them.
std::string parent_path(std::string_view path);
bool is_inside(std::string_view path, std::string_view module);  // or the module itself
std::string layer_of(
    std::string_view path);  // "model.layers.0" of "model.layers.0.mlp.gate"; or ""
std::string common_path(std::string_view a, std::string_view b);

bool is_torch_module(std::string_view type);  // nn.Linear and the like

}  // namespace tk::emit

// Module paths.
#include <algorithm>
#include <array>

#include "emit/regions.h"

namespace tk::emit {
namespace {

bool is_number(std::string_view s) {
  return !s.empty() && s.find_first_not_of("0123456789") == std::string_view::npos;
}

// Ends of the path's parts: "model.layers.0.mlp" has "model", "model.layers.0" and the whole.
std::vector<std::size_t> ends_of(std::string_view path) {
  std::vector<std::size_t> ends;
  std::size_t at = 0;
  while (at < path.size()) {
    std::size_t end = path.find('.', at);
    if (end == std::string_view::npos) end = path.size();
    if (!ends.empty() && is_number(path.substr(at, end - at)))
      ends.back() = end;
    else
      ends.push_back(end);
    at = end + 1;
  }
  return ends;
}

}  // namespace

std::string parent_path(std::string_view path) {
  const std::vector<std::size_t> ends = ends_of(path);
  return ends.size() < 2 ? "" : std::string(path.substr(0, ends[ends.size() - 2]));
}

bool is_inside(std::string_view path, std::string_view module) {
  if (module.empty()) return true;
  return path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.');
}

std::string common_path(std::string_view a, std::string_view b) {
  std::string found;
  for (const std::size_t end : ends_of(a)) {
    if (!is_inside(b, a.substr(0, end))) break;
    found = a.substr(0, end);
  }
  return found;
}

std::string layer_of(std::string_view path) {
  std::size_t start = 0;
  for (const std::size_t end : ends_of(path)) {
    const std::string_view part = path.substr(start, end - start);
    if (is_number(part.substr(part.rfind('.') + 1))) return std::string(path.substr(0, end));
    start = end + 1;
  }
  return "";
}

std::string Paths::weight(const Value& v) const {
  const std::string name =
      !wrapper.empty() && v.name.starts_with(wrapper) ? v.name.substr(wrapper.size()) : v.name;
  const auto it = tied.find(name);
  return it == tied.end() ? name : it->second;
}

Paths paths_of(const Graph& graph) {
  std::set<std::string, std::less<>> modules;
  for (const Node* n : nodes(graph))
    if (n->loc != nullptr) modules.insert(n->loc->module);
  // A wrapper holds the model under one name; its weights then have a part more than the modules.
  std::string wrapper;
  for (const auto& w : graph.weights()) {
    const std::size_t dot = w->name.find('.');
    if (dot == std::string::npos) return {};
    const std::string first = w->name.substr(0, dot + 1);
    if (!wrapper.empty() && first != wrapper) return {};
    wrapper = first;
  }
  int with = 0;
  int without = 0;
  for (const auto& w : graph.weights()) {
    const std::string module = w->name.substr(0, w->name.rfind('.'));
    with += static_cast<int>(modules.count(module));
    if (module.size() > wrapper.size())
      without += static_cast<int>(modules.count(module.substr(wrapper.size())));
  }
  Paths paths{without > with ? wrapper : "", {}};
  // A shared table goes by the embedding's name: checkpoints leave the head's out.
  for (const Node* n : nodes(graph)) {
    if (!n->is("aten.embedding") || n->loc == nullptr || n->in(0)->kind != ValueKind::weight)
      continue;
    const std::string name = paths.weight(*n->in(0));
    const std::string own = n->loc->module + ".weight";
    const bool embeds = n->loc->module_type.find("Embedding") != std::string::npos;
    if (!is_inside(name, n->loc->module) && embeds) paths.tied[name] = own;
  }
  return paths;
}

void collect_types(const Graph& graph, ModuleTypes* types) {
  for (const Node* n : nodes(graph))
    if (n->loc != nullptr && !n->loc->module_type.empty())
      types->emplace(n->loc->module, n->loc->module_type);
}

bool is_torch_module(std::string_view type) {
  static constexpr std::array names = {"Linear",     "Embedding", "Dropout",  "Identity",
                                       "SiLU",       "GELU",      "ReLU",     "Sigmoid",
                                       "Softmax",    "LayerNorm", "RMSNorm",  "ModuleList",
                                       "Sequential", "Tanh",      "Softplus", "ModuleDict"};
  return std::find(names.begin(), names.end(), type) != names.end();
}

}  // namespace tk::emit

// What bodies need to know of their graph.
#include <algorithm>

#include "base/error.h"
#include "emit/body.h"

namespace tk::emit {

namespace {

// "k_cache" of "layers.3.key".
std::string cache_name(const std::string& state) {
  const std::string last = state.substr(state.rfind('.') + 1);
  if (last == "key") return "k_cache";
  if (last == "value") return "v_cache";
  if (last == "latent") return "nope_cache";
  return last + "_cache";
}

// A module that holds the caches of several layers needs their whole names.
void name_caches(const Region& r, Phase* phase) {
  std::map<std::string, std::set<const Value*>> by_name;
  for (const Node* n : r.nodes)
    for (const Value* v : n->inputs)
      if (v != nullptr && phase->regions.role(v) == Role::state) {
        const Value* state = phase->regions.states.at(v);
        by_name[cache_name(state->name)].insert(state);
      }
  for (const auto& [name, states] : by_name)
    for (const Value* s : states) {
      std::string whole = s->name + "_cache";
      std::replace(whole.begin(), whole.end(), '.', '_');
      phase->caches[s] = states.size() == 1 ? name : whole;
    }
  for (const auto& c : r.children) name_caches(*c, phase);
}

}  // namespace

std::string relative(std::string_view path, std::string_view module) {
  std::string_view rest = path;
  if (!module.empty()) rest = path.substr(std::min(path.size(), module.size() + 1));
  std::string out;
  std::size_t at = 0;
  while (at < rest.size()) {
    std::size_t end = rest.find('.', at);
    if (end == std::string_view::npos) end = rest.size();
    const std::string_view part = rest.substr(at, end - at);
    if (part.find_first_not_of("0123456789") == std::string_view::npos)
      out += cat("[", part, "]");
    else
      out += cat(out.empty() ? "" : ".", part);
    at = end + 1;
  }
  return out;
}

Phase phase_of(const Graph& graph, const ModuleTypes& types, const std::set<std::string>& flat) {
  Phase phase;
  phase.graph = &graph;
  phase.paths = paths_of(graph);
  phase.regions = find_regions(graph, phase.paths, types, flat);
  name_caches(*phase.regions.root, &phase);
  for (const Node* n : nodes(graph)) {
    if (n->is("aten.embedding")) phase.hidden_size = n->in(0)->type.dim(1);
    for (const auto& [name, value] : n->attrs)
      if (n->op->name.starts_with("npu.") || n->op->name.starts_with("tk."))
        phase.set_attrs.insert(cat(n->op->name, ".", name));
  }
  return phase;
}

}  // namespace tk::emit

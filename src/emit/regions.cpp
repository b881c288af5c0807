// How nodes become calls of modules. A module stays one when what it computes is one piece (no way
// leads out of it and back in) and touches no weight of another; else its nodes go to its parent.
#include "emit/regions.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "base/error.h"
#include "emit/express.h"
#include "emit/shape_up.h"

namespace tk::emit {
namespace {

constexpr std::string_view step_inputs[] = {"slot_mapping", "block_table", "query_lens", "kv_lens",
                                            "logit_rows"};

class Finder {
 public:
  Finder(const Graph& graph, const Paths& paths, const ModuleTypes& types,
         const std::set<std::string>& flat)
      : graph_(graph), paths_(paths), types_(types), flat_(flat) {}

  Regions run() {
    find_roles();
    find_positional();
    out_.root = std::make_unique<Region>();
    by_path_[""] = out_.root.get();
    place_nodes();
    while (dissolve_some()) {
    }
    order(out_.root.get());
    place_folded();
    find_interfaces();
    return std::move(out_);
  }

 private:
  void find_roles() {
    auto& roles = out_.roles;
    for (const auto& v : graph_.weights()) roles[v.get()] = Role::weight;
    for (const auto& v : graph_.states()) {
      roles[v.get()] = Role::state;
      out_.states[v.get()] = v.get();
    }
    for (const auto& v : graph_.inputs())
      roles[v.get()] = std::find(std::begin(step_inputs), std::end(step_inputs), v->name) !=
                               std::end(step_inputs)
                           ? Role::step
                           : Role::plain;
    for (const Node* n : nodes(graph_)) {
      bool folded = !symbolic(*n) && n->op != &none;
      bool step = is_plain_view(*n);
      for (const Value* v : n->inputs) {
        if (v == nullptr) continue;
        folded = folded && (roles.at(v) == Role::weight || roles.at(v) == Role::folded);
        step = step && roles.at(v) == Role::step;
      }
      for (const auto& v : n->outputs)
        roles[v.get()] = folded ? Role::folded : step ? Role::step : Role::plain;
      for (std::size_t i = 0; i < n->outputs.size(); ++i) {
        const Value* from = nullptr;
        if (i < n->op->updates.size() && n->op->updates[i] >= 0) {
          from = n->inputs[static_cast<std::size_t>(n->op->updates[i])];
        } else if (n->is("aten.reshape")) {
          from = n->inputs[0];
        }
        if (from == nullptr || roles.at(from) != Role::state) continue;
        roles[n->outputs[i].get()] = Role::state;
        out_.states[n->outputs[i].get()] = out_.states.at(from);
      }
    }
  }

  static bool symbolic(const Node& n) {
    for (const auto& v : n.outputs)
      for (const Sym& s : v->type.shape)
        if (!s.is_const()) return true;
    return false;
  }

  bool is_folded(const Node& n) const { return out_.roles.at(n.out()) == Role::folded; }
  // Views of the step's tables and of caches are written where they are used.
  bool is_silent(const Node& n) const {
    const Role role = out_.roles.at(n.out());
    return role == Role::step || (role == Role::state && is_plain_view(n));
  }

  Region* region(const std::string& path) {
    const auto it = by_path_.find(path);
    if (it != by_path_.end()) return it->second;
    Region* parent = region(parent_path(path));
    auto made = std::make_unique<Region>();
    made->path = path;
    made->parent = parent;
    if (const auto type = types_.find(path); type != types_.end()) made->type = type->second;
    Region* r = made.get();
    parent->children.push_back(std::move(made));
    return by_path_[path] = r;
  }

  void place_nodes() {
    std::unordered_map<const Node*, std::string> place;
    std::vector<const Node*> order;
    for (const Node* n : nodes(graph_)) order.push_back(n);
    // Nodes without a place of their own belong where they are used.
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const Node& n = **it;
      std::string path;
      const bool placed = n.loc != nullptr && !n.loc->module.empty() && !is_silent(n);
      if (placed) {
        path = n.loc->module;
      } else if (n.loc == nullptr || is_silent(n)) {
        bool first = true;
        for (const auto& v : n.outputs)
          for (const Use& use : v->uses) {
            const std::string used = use.node == nullptr ? "" : place.at(use.node);
            path = first ? used : common_path(path, used);
            first = false;
          }
      }
      if (n.op == &none) path = parent_path(layer_of(path));
      for (const std::string& f : flat_)
        if (is_inside(path, f)) path = parent_path(f);
      place[&n] = path;
    }
    // What all layers share was computed in the first: it belongs before them.
    for (const Node* n : order) {
      const std::string layer = layer_of(place.at(n));
      if (layer.empty()) continue;
      if (positional_.count(n->out()) != 0) {
        place[n] = parent_path(layer);
        continue;
      }
      if (!is_plain_view(*n) && !is_light(*n)) continue;
      const bool made_here = std::any_of(n->inputs.begin(), n->inputs.end(), [&](const Value* v) {
        return v != nullptr && v->kind == ValueKind::node && !is_folded(*v->node) &&
               is_inside(place.at(v->node), layer);
      });
      if (made_here) continue;
      std::string all = place.at(n);
      for (const auto& v : n->outputs)
        for (const Use& use : v->uses)
          all = common_path(all, use.node == nullptr ? "" : place.at(use.node));
      if (!is_inside(all, layer)) place[n] = all;
    }
    for (const Node* n : order) {
      if (is_folded(*n)) continue;
      std::string path = place.at(n);
      for (const Value* v : n->inputs) lift(v, &path);
      Region* r = region(path);
      r->nodes.push_back(n);
      out_.of[n] = r;
      if (r->line == 0 && n->loc != nullptr && n->loc->module == path) {
        r->file = n->loc->file;
        r->line = n->loc->line;
      }
    }
  }

  // Values that come from the positions alone are the same in all layers.
  void find_positional() {
    for (const Node* n : nodes(graph_)) {
      if (is_folded(*n) || is_silent(*n) || n->op == &none) continue;
      bool any = false;
      bool all = true;
      for (const Value* v : n->inputs) {
        if (v == nullptr) continue;
        const bool positions =
            positional_.count(v) != 0 || (v->kind == ValueKind::input && v->name == "position_ids");
        const Role role = out_.roles.at(v);
        any = any || positions;
        all = all && (positions || role == Role::weight || role == Role::folded);
      }
      if (any && all)
        for (const auto& v : n->outputs) positional_.insert(v.get());
    }
  }

  // A region reaches its own weights and those of its children.
  void lift(const Value* v, std::string* path) {
    if (v == nullptr) return;
    if (out_.roles.at(v) == Role::weight) {
      const std::string name = paths_.weight(*v);
      const std::size_t dot = name.rfind('.');
      const std::string module = dot == std::string::npos ? "" : name.substr(0, dot);
      if (!is_inside(module, *path)) *path = common_path(*path, module);
    }
    if (out_.roles.at(v) == Role::folded)
      for (const Value* from : v->node->inputs) lift(from, path);
  }

  // One child that cannot stand alone goes into its parent; false when all can.
  bool dissolve_some() {
    std::vector<Region*> all;
    const std::function<void(Region*)> collect = [&](Region* r) {
      for (const auto& c : r->children) collect(c.get());
      if (r->parent != nullptr) all.push_back(r);
    };
    collect(out_.root.get());
    bool changed = false;
    for (Region* r : all)
      if (!stands_alone(*r)) {
        dissolve(r);
        changed = true;
      }
    if (changed) return true;
    std::sort(all.begin(), all.end(),
              [](const Region* a, const Region* b) { return a->path.size() < b->path.size(); });
    if (Region* stuck = order(out_.root.get())) {
      dissolve(stuck);
      return true;
    }
    return false;
  }

  bool stands_alone(const Region& r) const {
    const auto silent = [&](const Node* n) { return is_silent(*n); };
    if (r.children.empty() && std::all_of(r.nodes.begin(), r.nodes.end(), silent)) return false;
    if (is_torch_module(r.type)) {
      if (!r.children.empty() || r.nodes.size() != 1) return false;
      const Node& n = *r.nodes[0];
      const auto own = [&](int i, std::string_view name) {
        return n.in(i) != nullptr && out_.roles.at(n.in(i)) == Role::weight &&
               paths_.weight(*n.in(i)) == cat(r.path, ".", name);
      };
      if (r.type == "Linear" && n.is("aten.linear"))
        return own(1, "weight") && (n.in(2) == nullptr || own(2, "bias"));
      if (r.type == "Embedding" && n.is("aten.embedding")) return own(0, "weight");
      return false;
    }
    if (r.children.empty() && std::all_of(r.nodes.begin(), r.nodes.end(), [&](const Node* n) {
          return is_plain_view(*n) || silent(n);
        }))
      return false;
    return true;
  }

  void dissolve(Region* r) {
    Region* parent = r->parent;
    for (const Node* n : r->nodes) {
      parent->nodes.push_back(n);
      out_.of[n] = parent;
    }
    std::sort(parent->nodes.begin(), parent->nodes.end(),
              [](const Node* a, const Node* b) { return a->order < b->order; });
    for (auto& c : r->children) {
      c->parent = parent;
      parent->children.push_back(std::move(c));
    }
    by_path_.erase(r->path);
    const auto it = std::find_if(parent->children.begin(), parent->children.end(),
                                 [&](const auto& c) { return c.get() == r; });
    parent->children.erase(it);
  }

  // The item of `r` that holds the node; -1 when it is outside.
  static Region* child_on_the_way(Region* from, const Region* r) {
    Region* at = from;
    while (at != nullptr && at->parent != r) at = at->parent;
    return at;
  }

  // Orders the items of all regions; returns a child that makes a cycle, or null.
  Region* order(Region* r) {
    std::vector<Item> items;
    std::unordered_map<const Node*, int> of_node;
    std::unordered_map<const Region*, int> of_child;
    for (const Node* n : r->nodes) {
      of_node[n] = static_cast<int>(items.size());
      items.push_back({n, nullptr});
    }
    for (const auto& c : r->children) {
      of_child[c.get()] = static_cast<int>(items.size());
      items.push_back({nullptr, c.get()});
    }
    const auto item_of = [&](const Node* n) {
      const auto own = of_node.find(n);
      if (own != of_node.end()) return own->second;
      const auto where = out_.of.find(n);
      if (where == out_.of.end()) return -1;
      Region* child = child_on_the_way(where->second, r);
      return child == nullptr ? -1 : of_child.at(child);
    };
    std::vector<std::int64_t> first(items.size(), INT64_MAX);
    std::vector<std::set<int>> after(items.size());
    std::vector<int> waits(items.size(), 0);
    for (const Node* n : nodes(graph_)) {
      if (is_folded(*n)) continue;
      const int i = item_of(n);
      if (i < 0) continue;
      auto& f = first[static_cast<std::size_t>(i)];
      // What comes from positions alone goes first: it would stand between layers else.
      f = std::min(f, positional_.count(n->out()) != 0 ? INT64_MIN : n->order);
      for (const Value* v : n->inputs) {
        if (v == nullptr || v->kind != ValueKind::node) continue;
        const int from = item_of(v->node);
        if (from >= 0 && from != i && after[static_cast<std::size_t>(from)].insert(i).second)
          ++waits[static_cast<std::size_t>(i)];
      }
    }
    using Ready = std::pair<std::int64_t, int>;
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    for (std::size_t i = 0; i < items.size(); ++i)
      if (waits[i] == 0) ready.emplace(first[i], static_cast<int>(i));
    r->items.clear();
    std::vector<bool> done(items.size(), false);
    while (!ready.empty()) {
      const auto i = static_cast<std::size_t>(ready.top().second);
      ready.pop();
      done[i] = true;
      r->items.push_back(items[i]);
      for (const int next : after[i])
        if (--waits[static_cast<std::size_t>(next)] == 0)
          ready.emplace(first[static_cast<std::size_t>(next)], next);
    }
    if (r->items.size() != items.size()) {
      Region* worst = nullptr;  // the smallest child of the cycle: least is lost
      for (std::size_t i = 0; i < items.size(); ++i)
        if (!done[i] && items[i].child != nullptr &&
            (worst == nullptr || items[i].child->path.size() > worst->path.size()))
          worst = items[i].child;
      TK_CHECK(worst != nullptr, "a cycle of nodes in ", r->path);
      return worst;
    }
    for (const auto& c : r->children)
      if (Region* stuck = order(c.get())) return stuck;
    return nullptr;
  }

  void place_folded() {
    for (const Node* n : nodes(graph_)) {
      if (!is_folded(*n)) continue;
      for (const auto& v : n->outputs) {
        Region* home = nullptr;
        for (const Use& use : v->uses) {
          if (use.node != nullptr && is_folded(*use.node)) continue;
          Region* r = use.node == nullptr ? out_.root.get() : out_.of.at(use.node);
          home = home == nullptr ? r : common(home, r);
        }
        if (home != nullptr) out_.folded.emplace_back(v.get(), home);
      }
    }
  }

  static Region* common(Region* a, Region* b) {
    std::set<Region*> above;
    for (Region* r = a; r != nullptr; r = r->parent) above.insert(r);
    while (above.count(b) == 0) b = b->parent;
    return b;
  }

  static bool contains(const Region* r, const Region* inner) {
    while (inner != nullptr && inner != r) inner = inner->parent;
    return inner == r;
  }

  void find_interfaces() {
    std::unordered_map<const Value*, Region*> held;  // folded values by their region
    for (const auto& [v, r] : out_.folded) held[v] = r;
    const auto crosses = [&](const Value* v, const Region* r) {
      const Role role = out_.roles.at(v);
      if (role == Role::weight || role == Role::step || role == Role::state) return false;
      if (role == Role::folded) return !contains(r, held.at(v));
      return v->kind == ValueKind::input || !contains(r, out_.of.at(v->node));
    };
    for (const Node* n : nodes(graph_)) {
      if (is_folded(*n)) continue;
      Region* home = out_.of.at(n);
      for (const Value* v : n->inputs) {
        if (v == nullptr) continue;
        if (out_.roles.at(v) == Role::step)
          for (Region* r = home; r != nullptr; r = r->parent) r->uses_step = true;
        for (Region* r = home; r != nullptr; r = r->parent)
          if (crosses(v, r) && std::find(r->inputs.begin(), r->inputs.end(), v) == r->inputs.end())
            r->inputs.push_back(v);
      }
      for (const auto& v : n->outputs) {
        if (out_.roles.at(v.get()) != Role::plain) continue;
        for (Region* r = home; r != nullptr; r = r->parent) {
          const bool leaves = std::any_of(v->uses.begin(), v->uses.end(), [&](const Use& use) {
            return use.node == nullptr || !contains(r, out_.of.at(use.node));
          });
          // A norm gives the stream on in all layers, or the last one would read otherwise.
          const bool norm = n->op == &residual_norm && r == home && r->nodes.size() == 1;
          if (leaves || norm) r->outputs.push_back(v.get());
        }
      }
    }
    streams_last(out_.root.get());
  }

  // "hidden_states, residual" reads better than the other way.
  static void streams_last(Region* r) {
    std::stable_partition(r->outputs.begin(), r->outputs.end(), [](const Value* v) {
      return v->node->op != &residual_norm || v->index != 1;
    });
    for (const auto& c : r->children) streams_last(c.get());
  }

  const Graph& graph_;
  const Paths& paths_;
  const ModuleTypes& types_;
  const std::set<std::string>& flat_;
  Regions out_;
  std::map<std::string, Region*> by_path_;
  std::set<const Value*> positional_;
};

}  // namespace

Regions find_regions(const Graph& graph, const Paths& paths, const ModuleTypes& types,
                     const std::set<std::string>& flat) {
  return Finder(graph, paths, types, flat).run();
}

}  // namespace tk::emit

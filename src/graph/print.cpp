#include <unordered_map>

#include "base/error.h"
#include "graph/graph.h"

namespace tk {
namespace {

// Inputs keep their names, weights are %w0.., states %s0.., results are numbered.
class Names {
 public:
  std::string of(const Value* v) {
    if (v == nullptr) return "none";
    switch (v->kind) {
      case ValueKind::input:
        return "%" + v->name;
      case ValueKind::weight:
        return cat("%w", v->index);
      case ValueKind::state:
        return cat("%s", v->index);
      case ValueKind::node:
        break;
    }
    auto it = numbers_.find(v);
    return it == numbers_.end() ? cat("%", v->node->op->name, ".", v->index) : cat("%", it->second);
  }
  void define(const Node& n) {
    for (const auto& v : n.outputs) {
      const int number = static_cast<int>(numbers_.size());
      numbers_[v.get()] = number;
    }
  }

 private:
  std::unordered_map<const Value*, int> numbers_;
};

std::string line_of(const Node& n, Names* names) {
  std::string s;
  for (std::size_t i = 0; i < n.outputs.size(); ++i)
    s += cat(i != 0 ? ", " : "", names->of(n.outputs[i].get()));
  s += cat(" = ", n.op->name, "(");
  for (std::size_t i = 0; i < n.inputs.size(); ++i)
    s += cat(i != 0 ? ", " : "", names->of(n.inputs[i]));
  s += ")";
  if (!n.attrs.empty()) {
    s += " {";
    bool first = true;
    for (const auto& [key, value] : n.attrs) {
      s += cat(first ? "" : ", ", key, "=", str(value));
      first = false;
    }
    s += "}";
  }
  return s;
}

std::string place_of(const Loc* loc) {
  if (loc == nullptr) return "";
  std::string s;
  if (!loc->module.empty()) s += cat("  @\"", loc->module, "\"");
  if (!loc->module_type.empty()) s += cat(" ", loc->module_type);
  if (!loc->file.empty()) s += cat(" (", loc->file, ":", loc->line, ")");
  return s;
}

}  // namespace

std::string print(const Node& node) {
  Names names;
  std::string s = line_of(node, &names);
  for (const auto& v : node.outputs) s += cat(" : ", v->type.str());
  return s + place_of(node.loc);
}

std::string print(const Graph& graph) {
  Names names;
  std::string s = cat("graph @", graph.name, "(");
  for (std::size_t i = 0; i < graph.inputs().size(); ++i) {
    const Value* v = graph.inputs()[i].get();
    s += cat(i != 0 ? ", " : "", names.of(v), ": ", v->type.str());
  }
  s += ") {\n";
  for (const auto& [symbol, range] : graph.ranges)
    s += cat("  range ", symbol, " ", range.min, " ", range.max, "\n");
  for (const auto& v : graph.weights())
    s += cat("  weight ", names.of(v.get()), ": ", v->type.str(), " \"", v->name, "\"\n");
  for (const auto& v : graph.states())
    s += cat("  state ", names.of(v.get()), ": ", v->type.str(), " \"", v->name, "\"\n");
  for (Node* n : nodes(graph)) {
    names.define(*n);
    s += cat("  ", line_of(*n, &names), place_of(n->loc), "\n");
  }
  s += "  return ";
  for (std::size_t i = 0; i < graph.outputs().size(); ++i)
    s += cat(i != 0 ? ", " : "", names.of(graph.outputs()[i]));
  return s + "\n}\n";
}

}  // namespace tk

#include "graph/graph.h"

#include <algorithm>

#include "base/error.h"
#include "graph/effects.h"

namespace tk {

Graph::Graph() = default;
Graph::~Graph() {
  for (Node* n = first_; n != nullptr;) {
    Node* next = n->next;
    delete n;
    n = next;
  }
}

Graph::Graph(Graph&& other) noexcept { *this = std::move(other); }

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(name, other.name);
  std::swap(ranges, other.ranges);
  std::swap(inputs_, other.inputs_);
  std::swap(weights_, other.weights_);
  std::swap(states_, other.states_);
  std::swap(outputs_, other.outputs_);
  std::swap(locs_, other.locs_);
  std::swap(first_, other.first_);
  std::swap(last_, other.last_);
  std::swap(n_nodes_, other.n_nodes_);
  return *this;
}

namespace {

Value* add_named(std::vector<std::unique_ptr<Value>>* list, ValueKind kind, std::string_view name,
                 Type type) {
  auto v = std::make_unique<Value>();
  v->type = std::move(type);
  v->kind = kind;
  v->index = static_cast<int>(list->size());
  v->name = name;
  list->push_back(std::move(v));
  return list->back().get();
}

Value* find_named(const std::vector<std::unique_ptr<Value>>& list, std::string_view name) {
  for (const auto& v : list)
    if (v->name == name) return v.get();
  return nullptr;
}

void reindex(const std::vector<std::unique_ptr<Value>>& list) {
  int i = 0;
  for (const auto& v : list) v->index = i++;
}

}  // namespace

Value* Graph::add_input(std::string_view n, Type type) {
  return add_named(&inputs_, ValueKind::input, n, std::move(type));
}
Value* Graph::add_weight(std::string_view n, Type type) {
  return add_named(&weights_, ValueKind::weight, n, std::move(type));
}
Value* Graph::add_state(std::string_view n, Type type) {
  return add_named(&states_, ValueKind::state, n, std::move(type));
}
Value* Graph::find_weight(std::string_view n) const { return find_named(weights_, n); }
Value* Graph::find_input(std::string_view n) const { return find_named(inputs_, n); }

void Graph::erase_input(Value* value) {
  TK_CHECK(value->uses.empty(), value->name);
  std::erase_if(inputs_, [&](const auto& v) { return v.get() == value; });
  reindex(inputs_);
}

void Graph::erase_unused_weights() {
  std::erase_if(weights_, [](const auto& v) { return v->uses.empty(); });
  reindex(weights_);
}

const Loc* Graph::loc(Loc where) {
  auto it = locs_.find(where);
  if (it == locs_.end()) {
    auto copy = std::make_unique<Loc>(where);
    it = locs_.emplace(std::move(where), std::move(copy)).first;
  }
  return it->second.get();
}

void Graph::link(Node* node, Node* before) {
  node->next = before;
  node->prev = before != nullptr ? before->prev : last_;
  (node->prev != nullptr ? node->prev->next : first_) = node;
  (before != nullptr ? before->prev : last_) = node;
  constexpr std::int64_t gap = 1 << 20;
  const std::int64_t low = node->prev != nullptr ? node->prev->order : 0;
  if (before == nullptr) {
    node->order = low + gap;
  } else {
    node->order = low + (before->order - low) / 2;
    if (node->order == low || node->order == before->order) renumber();
  }
  ++n_nodes_;
}

void Graph::unlink(Node* node) {
  (node->prev != nullptr ? node->prev->next : first_) = node->next;
  (node->next != nullptr ? node->next->prev : last_) = node->prev;
  node->prev = node->next = nullptr;
  --n_nodes_;
}

void Graph::renumber() {
  std::int64_t order = 0;
  for (Node* n = first_; n != nullptr; n = n->next) n->order = order += 1 << 20;
}

Node* Graph::insert(Node* before, const OpDef& op, std::vector<Value*> inputs, Attrs attrs,
                    const Loc* where) {
  while (!inputs.empty() && inputs.back() == nullptr) inputs.pop_back();
  const Schema& schema = op.parsed();
  for (const Schema::Arg& arg : schema.attrs) {
    const Attr* a = attrs.find(arg.name);
    if (a != nullptr && arg.has_default && !arg.none_default && *a == arg.value)
      attrs.erase(arg.name);
  }
  std::vector<Type> types = op.infer(Args(op, inputs, attrs));
  auto* node = new Node{&op, std::move(inputs), std::move(attrs), {}, where};
  for (std::size_t i = 0; i < types.size(); ++i) {
    auto v = std::make_unique<Value>();
    v->type = std::move(types[i]);
    v->node = node;
    v->index = static_cast<int>(i);
    node->outputs.push_back(std::move(v));
  }
  for (std::size_t i = 0; i < node->inputs.size(); ++i)
    if (node->inputs[i] != nullptr) node->inputs[i]->uses.push_back({node, static_cast<int>(i)});
  link(node, before);
  return node;
}

void Graph::move_before(Node* node, Node* before) {
  if (node == before || node->next == before) return;
  unlink(node);
  link(node, before);
}

void Graph::drop_use(Value* value, const Use& use) {
  // From the back: what was added last goes first when dead nodes are erased.
  auto it = std::find(value->uses.rbegin(), value->uses.rend(), use);
  TK_CHECK(it != value->uses.rend(), "use list");
  value->uses.erase(std::next(it).base());
}

void Graph::add_output(Value* value) {
  value->uses.push_back({nullptr, static_cast<int>(outputs_.size())});
  outputs_.push_back(value);
}

void Graph::set_output(int i, Value* value) {
  drop_use(outputs_[static_cast<std::size_t>(i)], {nullptr, i});
  outputs_[static_cast<std::size_t>(i)] = value;
  value->uses.push_back({nullptr, i});
}

void Graph::set_input(Node* node, int i, Value* value) {
  auto& slot = node->inputs[static_cast<std::size_t>(i)];
  if (slot == value) return;
  if (slot != nullptr) drop_use(slot, {node, i});
  slot = value;
  if (value != nullptr) value->uses.push_back({node, i});
}

void Graph::replace_uses(Value* old_value, Value* new_value) {
  if (old_value == new_value) return;
  for (const Use& use : old_value->uses) {
    auto& slot = use.node != nullptr ? use.node->inputs[static_cast<std::size_t>(use.index)]
                                     : outputs_[static_cast<std::size_t>(use.index)];
    slot = new_value;
    new_value->uses.push_back(use);
  }
  old_value->uses.clear();
}

void Graph::erase(Node* node) {
  for (const auto& v : node->outputs) TK_CHECK(v->uses.empty(), print(*node), " is still used");
  for (std::size_t i = 0; i < node->inputs.size(); ++i)
    if (node->inputs[i] != nullptr) drop_use(node->inputs[i], {node, static_cast<int>(i)});
  unlink(node);
  delete node;
}

std::size_t Graph::erase_dead() {
  std::size_t n = 0;
  for (Node* node = last_; node != nullptr;) {
    Node* prev = node->prev;
    const bool used = std::any_of(node->outputs.begin(), node->outputs.end(),
                                  [](const auto& v) { return !v->uses.empty(); });
    if (!used && !changes_state(*node)) {
      erase(node);
      ++n;
    }
    node = prev;
  }
  return n;
}

void Graph::reinfer(Node* from) {
  std::vector<Node*> changed{from};
  for (Node* n = from; n != nullptr; n = n->next) {
    if (n != from && std::none_of(n->inputs.begin(), n->inputs.end(), [&](const Value* v) {
          return v != nullptr && v->node != nullptr &&
                 std::find(changed.begin(), changed.end(), v->node) != changed.end();
        }))
      continue;
    const std::vector<Type> types = n->op->infer(n->args());
    TK_CHECK(types.size() == n->outputs.size(), print(*n), " changed its number of results");
    bool differs = false;
    for (std::size_t i = 0; i < types.size(); ++i) {
      differs |= !(n->outputs[i]->type == types[i]);
      n->outputs[i]->type = types[i];
    }
    if (differs && n != from) changed.push_back(n);
  }
}

namespace {
using Env = std::map<std::string, Sym, std::less<>>;

Type subst_type(const Type& type, const Env& env) {
  if (env.empty()) return type;
  Type out{type.dtype, {}};
  for (const Sym& d : type.shape) out.shape.push_back(d.subst(env));
  return out;
}

Attrs subst_attrs(const Attrs& attrs, const Env& env) {
  if (env.empty()) return attrs;
  Attrs out;
  for (const auto& [key, value] : attrs) {
    if (const Sym* s = std::get_if<Sym>(&value)) {
      out.set(key, s->subst(env));
    } else if (const SymDims* dims = std::get_if<SymDims>(&value)) {
      SymDims copy;
      for (const Sym& d : *dims) copy.push_back(d.subst(env));
      out.set(key, copy);
    } else {
      out.set(key, value);
    }
  }
  return out;
}
}  // namespace

Graph Graph::clone(std::unordered_map<const Value*, Value*>* map) const { return subst({}, map); }

Graph Graph::subst(const Env& env, std::unordered_map<const Value*, Value*>* map) const {
  Graph out;
  out.name = name;
  for (const auto& [symbol, range] : ranges)
    if (env.find(symbol) == env.end()) out.ranges[symbol] = range;
  std::unordered_map<const Value*, Value*> local;
  auto& to = map != nullptr ? *map : local;
  for (const auto& v : inputs_) to[v.get()] = out.add_input(v->name, subst_type(v->type, env));
  for (const auto& v : weights_) to[v.get()] = out.add_weight(v->name, subst_type(v->type, env));
  for (const auto& v : states_) to[v.get()] = out.add_state(v->name, subst_type(v->type, env));
  for (Node* n = first_; n != nullptr; n = n->next) {
    std::vector<Value*> inputs;
    inputs.reserve(n->inputs.size());
    for (Value* v : n->inputs) inputs.push_back(v == nullptr ? nullptr : to.at(v));
    const Loc* where = n->loc != nullptr ? out.loc(*n->loc) : nullptr;
    Node* copy = nullptr;
    if (env.empty()) {  // types are known: no inference
      copy = new Node{n->op, std::move(inputs), n->attrs, {}, where};
      for (const auto& v : n->outputs) {
        auto c = std::make_unique<Value>();
        c->type = v->type;
        c->node = copy;
        c->index = v->index;
        copy->outputs.push_back(std::move(c));
      }
      for (std::size_t i = 0; i < copy->inputs.size(); ++i)
        if (copy->inputs[i] != nullptr)
          copy->inputs[i]->uses.push_back({copy, static_cast<int>(i)});
      out.link(copy, nullptr);
    } else {
      copy = out.insert(nullptr, *n->op, std::move(inputs), subst_attrs(n->attrs, env), where);
    }
    for (std::size_t i = 0; i < n->outputs.size(); ++i)
      to[n->outputs[i].get()] = copy->outputs.at(i).get();
  }
  for (Value* v : outputs_) out.add_output(to.at(v));
  return out;
}

Node* Builder::node(std::string_view op_name, std::vector<Value*> inputs, Attrs attrs) {
  const OpDef* def = find_op(op_name);
  TK_CHECK(def != nullptr, "no operator ", op_name);
  return graph.insert(before, *def, std::move(inputs), std::move(attrs), loc);
}

}  // namespace tk

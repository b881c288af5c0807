#include "moves/flatten/permutes.h"

#include <algorithm>

#include "base/error.h"
#include "moves/flatten/locality.h"

namespace tk {
namespace {

using Order = std::vector<int>;

bool is_permute(const Node* n) {
  return n != nullptr && (n->is("aten.permute") || n->is("aten.transpose"));
}

bool is_identity(const Order& order) {
  for (std::size_t i = 0; i < order.size(); ++i)
    if (order[i] != static_cast<int>(i)) return false;
  return true;
}

SymDims dims_of(const Order& order) {
  SymDims dims;
  for (int i : order) dims.emplace_back(i);
  return dims;
}

// Only axes of size 1 change places: a reshape, which needs no copy.
bool moves_units_only(const Order& order, const SymDims& shape) {
  int last = -1;
  for (int i : order) {
    if (shape[static_cast<std::size_t>(i)].is(1)) continue;
    if (i < last) return false;
    last = i;
  }
  return true;
}

class Sinker {
 public:
  explicit Sinker(Graph& graph) : graph_(graph) {}

  std::size_t run() {
    // Backwards: a permute meets the operators before it in one sweep, which adds new permutes
    // before itself only.
    for (Node* n = graph_.last(); n != nullptr;) {
      Node* prev = n->prev;
      if (is_permute(n)) {
        if (Node* resume = visit(n)) prev = resume;
      }
      n = prev;
    }
    return count_;
  }

 private:
  Value* permuted(Node* before, Value* v, const Order& order, const Loc* loc) {
    if (is_identity(order)) return v;
    return Builder{graph_, before, loc}.op("aten.permute", {v}, {{"dims", dims_of(order)}});
  }

  // Returns the node from which the sweep goes on, or null for the one before n.
  Node* visit(Node* n) {
    const Order order = axis_order(*n);
    Value* in = n->in(0);
    if (is_identity(order)) return replace(n, in);
    if (moves_units_only(order, in->type.shape)) {
      Value* v =
          Builder{graph_, n, n->loc}.op("aten.reshape", {in}, {{"shape", n->out()->type.shape}});
      return replace(n, v);
    }
    Node* above = in->node;
    if (above == nullptr) return nullptr;
    if (is_permute(above)) {
      const Order first = axis_order(*above);
      Order both;
      for (int i : order) both.push_back(first[static_cast<std::size_t>(i)]);
      Value* v = permuted(n, above->in(0), both, n->loc);
      return replace(n, v);
    }
    // All users must want the same order, or the work would be done twice.
    for (const Use& use : in->uses)
      if (!is_permute(use.node) || axis_order(*use.node) != order) return nullptr;
    return push(n, above, order);
  }

  Node* replace(Node* n, Value* v) {
    Node* resume = v->node != nullptr && v->node == n->prev ? v->node : n->prev;
    graph_.replace_uses(n->out(), v);
    graph_.erase(n);
    ++count_;
    return resume;
  }

  // Rebuilds `above` on permuted inputs in place of the permutes after it.
  Node* push(Node* n, Node* above, const Order& order) {
    const TokenRule rule = token_rule(above->op->name);
    const int rank = static_cast<int>(order.size());
    if (above->outputs.size() != 1) return nullptr;
    Attrs attrs = above->attrs;
    const auto new_place = [&](std::int64_t axis) {
      if (axis < 0) axis += rank;
      return static_cast<std::int64_t>(
          std::find(order.begin(), order.end(), static_cast<int>(axis)) - order.begin());
    };
    const auto remap = [&](const char* key) {
      const Attr* a = above->args().attr(key);
      if (a == nullptr) return false;
      if (const Sym* s = std::get_if<Sym>(a)) {
        attrs.set(key, Sym(new_place(s->value())));
        return true;
      }
      SymDims dims;
      for (const Sym& s : std::get<SymDims>(*a)) dims.emplace_back(new_place(s.value()));
      attrs.set(key, dims);
      return true;
    };
    const bool keeps_rank =
        std::all_of(above->inputs.begin(), above->inputs.end(),
                    [&](const Value* v) { return v == nullptr || v->type.rank() <= rank; });
    if (!keeps_rank || above->out()->type.rank() != rank) return nullptr;
    switch (rule) {
      case TokenRule::elementwise:
        break;
      case TokenRule::cat:
        remap("dim");
        break;
      case TokenRule::expand: {
        if (!above->is("aten.expand")) return nullptr;
        SymDims size;
        for (int i : order) size.push_back(above->out()->type.shape[static_cast<std::size_t>(i)]);
        attrs.set("size", size);
        break;
      }
      case TokenRule::along: {
        const bool known =
            above->is("aten.slice") || above->is("aten.softmax") || above->is("aten.narrow") ||
            ((above->is("aten.mean") || above->is("aten.sum") || above->is("aten.amax")) &&
             above->args().flag("keepdim"));
        if (!known || !remap("dim")) return nullptr;
        break;
      }
      default:
        return nullptr;
    }
    std::vector<Value*> inputs;
    for (Value* v : above->inputs) {
      if (v == nullptr) {
        inputs.push_back(nullptr);
        continue;
      }
      // Broadcasting counts from the right: missing axes become units first.
      Value* full = v;
      if (v->type.rank() < rank && v->type.rank() > 0) {
        Order tail;
        const int missing = rank - v->type.rank();
        SymDims shape(static_cast<std::size_t>(missing), Sym(1));
        shape.insert(shape.end(), v->type.shape.begin(), v->type.shape.end());
        // An operand over trailing axes that stay where they are needs nothing.
        bool stays = true;
        for (int i = missing; i < rank; ++i) stays &= order[static_cast<std::size_t>(i)] == i;
        if (!stays)
          full = Builder{graph_, n, above->loc}.op("aten.reshape", {v}, {{"shape", shape}});
      }
      inputs.push_back(full->type.rank() == rank ? permuted(n, full, order, above->loc) : full);
    }
    // The new node stands before the first of the permutes that it replaces.
    Node* first = n;
    for (const Use& use : above->out()->uses)
      if (use.node->order < first->order) first = use.node;
    if (first != n) return nullptr;  // the sweep reaches the first of them later
    Node* copy = graph_.insert(n, *above->op, std::move(inputs), std::move(attrs), above->loc);
    std::vector<Use> uses = above->out()->uses;
    for (const Use& use : uses) {
      graph_.replace_uses(use.node->out(), copy->out());
    }
    for (const Use& use : uses) graph_.erase(use.node);
    graph_.erase(above);
    ++count_;
    return copy->prev != nullptr ? copy->prev : copy;
  }

  Graph& graph_;
  std::size_t count_ = 0;
};

}  // namespace

std::size_t sink_permutes(Graph& graph) { return Sinker(graph).run(); }

}  // namespace tk

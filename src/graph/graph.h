// The Graph: typed SSA nodes in topological order, symbolic shapes, and for each node the module
// path and the file:line it comes from.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/op.h"
#include "graph/type.h"

namespace tk {

struct Node;
class Graph;

// Where a node comes from. Interned per graph (Graph::loc).
struct Loc {
  std::string module;       // "model.layers.0.self_attn"
  std::string module_type;  // "LlamaAttention"
  std::string file;         // "modeling_llama.py"
  int line = 0;
  friend bool operator==(const Loc&, const Loc&) = default;
  friend auto operator<=>(const Loc&, const Loc&) = default;
};

struct Use {
  Node* node;  // null: a graph output
  int index;   // input of the node, or position among the outputs
  friend bool operator==(const Use&, const Use&) = default;
};

enum class ValueKind : std::uint8_t { node, input, weight, state };

struct Value {
  Type type;
  ValueKind kind = ValueKind::node;
  Node* node = nullptr;  // of kind node
  int index = 0;         // which result of the node, or position among inputs, weights, states
  std::string name;      // of inputs, weights (the checkpoint's name) and states
  std::vector<Use> uses;

  bool has_one_use() const { return uses.size() == 1; }
};

struct Node {
  const OpDef* op;
  std::vector<Value*> inputs;  // null for an absent optional one
  Attrs attrs;
  std::vector<std::unique_ptr<Value>> outputs;
  const Loc* loc;
  Node* prev = nullptr;
  Node* next = nullptr;
  std::int64_t order = 0;  // increasing along the graph; gaps are normal

  Value* out(int i = 0) const { return outputs[static_cast<std::size_t>(i)].get(); }
  Value* in(int i) const {
    return i < static_cast<int>(inputs.size()) ? inputs[static_cast<std::size_t>(i)] : nullptr;
  }
  Args args() const { return {*op, inputs, attrs}; }
  bool is(std::string_view name) const { return op->name == name; }
};

struct Range {
  std::int64_t min = 0, max = INT64_MAX;
};

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  std::string name = "main";
  std::map<std::string, Range, std::less<>> ranges;  // of symbols

  Value* add_input(std::string_view name, Type type);
  Value* add_weight(std::string_view name, Type type);
  Value* add_state(std::string_view name, Type type);  // memory that lives across runs
  const std::vector<std::unique_ptr<Value>>& inputs() const { return inputs_; }
  const std::vector<std::unique_ptr<Value>>& weights() const { return weights_; }
  const std::vector<std::unique_ptr<Value>>& states() const { return states_; }
  Value* find_weight(std::string_view name) const;
  Value* find_input(std::string_view name) const;
  void erase_input(Value* value);  // must be unused
  void erase_unused_weights();

  const Loc* loc(Loc where);

  // Inserts before `before` (null: at the end). Infers the result types (TK0312 when the operator
  // refuses) and drops attributes that equal the schema's default.
  Node* insert(Node* before, const OpDef& op, std::vector<Value*> inputs, Attrs attrs,
               const Loc* loc);
  // An unlinked move: keeps the order valid; the caller guarantees definitions come before uses.
  void move_before(Node* node, Node* before);

  Node* first() const { return first_; }
  Node* last() const { return last_; }
  std::size_t n_nodes() const { return n_nodes_; }

  const std::vector<Value*>& outputs() const { return outputs_; }
  void add_output(Value* value);
  void set_output(int i, Value* value);

  void set_input(Node* node, int i, Value* value);
  void replace_uses(Value* old_value, Value* new_value);
  void erase(Node* node);    // its results must be unused
  std::size_t erase_dead();  // nodes without used results; returns how many

  // Infers the types of the node again, and of everything after that depends on it.
  void reinfer(Node* from);

  // A deep copy; `map` receives old value -> new value.
  Graph clone(std::unordered_map<const Value*, Value*>* map = nullptr) const;

  // A copy with symbols replaced in every type and attribute.
  Graph subst(const std::map<std::string, Sym, std::less<>>& env,
              std::unordered_map<const Value*, Value*>* map = nullptr) const;

 private:
  void link(Node* node, Node* before);
  void unlink(Node* node);
  void renumber();
  static void drop_use(Value* value, const Use& use);

  std::vector<std::unique_ptr<Value>> inputs_, weights_, states_;
  std::vector<Value*> outputs_;
  std::map<Loc, std::unique_ptr<Loc>> locs_;
  Node* first_ = nullptr;
  Node* last_ = nullptr;
  std::size_t n_nodes_ = 0;
};

// Iteration that allows erasing the current node:  for (Node* n : nodes(g))
class NodeRange {
 public:
  class Iterator {
   public:
    explicit Iterator(Node* n) : node_(n), next_(n != nullptr ? n->next : nullptr) {}
    Node* operator*() const { return node_; }
    Iterator& operator++() {
      node_ = next_;
      next_ = node_ != nullptr ? node_->next : nullptr;
      return *this;
    }
    bool operator!=(const Iterator& o) const { return node_ != o.node_; }

   private:
    Node* node_;
    Node* next_;
  };
  explicit NodeRange(const Graph& g) : first_(g.first()) {}
  Iterator begin() const { return Iterator(first_); }
  Iterator end() const { return Iterator(nullptr); }

 private:
  Node* first_;
};
inline NodeRange nodes(const Graph& g) { return NodeRange(g); }

// Builds nodes at one place with one location.
struct Builder {
  Graph& graph;
  Node* before;  // null: at the end
  const Loc* loc;

  Node* node(std::string_view op, std::vector<Value*> inputs, Attrs attrs = {});
  Value* op(std::string_view op, std::vector<Value*> inputs, Attrs attrs = {}) {
    return node(op, std::move(inputs), std::move(attrs))->out();
  }
};

// Type checks, use lists, order, schema. Throws InternalError naming the node (and the pass, when
// given): a graph that fails is a bug of ours.
void verify(const Graph& graph, std::string_view after_pass = "");

// The text form (docs/text-form.md). parse(print(g)) prints the same.
std::string print(const Graph& graph);
std::string print(const Node& node);
Graph parse_graph(std::string_view text,
                  std::string_view file = "<text>");  // throws TK0310, TK0312

}  // namespace tk

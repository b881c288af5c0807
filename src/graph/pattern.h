// Patterns of dataflow, as values: `call("aten.mul", {in("x"), w})`. A pattern is matched against
// the value it ends in, along the edges of the graph, never along the node list.
//
// The names of operators and the C++ operators (+, *) that stand for them are not here but in
// moves/fuse/vocabulary.h: this file knows no particular operator.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace tk {

struct PatNode;

// A handle; copies mean the same part of the pattern, so the same name is the same value.
class Pat {
 public:
  Pat() = default;  // an input that must be absent
  explicit Pat(std::shared_ptr<const PatNode> node) : node_(std::move(node)) {}
  const PatNode* get() const { return node_.get(); }
  const PatNode* operator->() const { return node_.get(); }
  explicit operator bool() const { return node_ != nullptr; }

  // The same with a condition on the node; `text` says what it demands ("the last axis"). The
  // attributes that the pattern does not mention are then the condition's business.
  Pat that(std::string text, std::function<bool(const Node&)> holds) const;
  // The same, but attributes that the pattern does not mention are free.
  Pat any_attrs() const;
  // The same, but uses of the value outside the match do not hinder: it simply stays (views,
  // casts: recomputing them costs nothing that matters).
  Pat may_escape() const;

 private:
  std::shared_ptr<const PatNode> node_;
};

// A number in the pattern, bound to whatever the graph has. `sample` is for the self-test.
struct ConstNode {
  std::string name;
  Attr sample;
};
class Const {
 public:
  explicit Const(std::shared_ptr<const ConstNode> node) : node_(std::move(node)) {}
  const ConstNode* get() const { return node_.get(); }
  const std::shared_ptr<const ConstNode>& shared() const { return node_; }

 private:
  std::shared_ptr<const ConstNode> node_;
};

struct PatAttr {
  std::string name;
  Attr value;  // demanded exactly (2 and 2.0 are the same number) ...
  std::shared_ptr<const ConstNode> constant;  // ... unless this is bound instead
  PatAttr(std::string n, Attr v) : name(std::move(n)), value(std::move(v)) {}
  PatAttr(std::string n, const Const& c);
};

// One call of an operator; several patterns may be results of the same call.
struct PatCall {
  std::string op;
  std::vector<Pat> inputs;
  std::vector<PatAttr> attrs;
  bool commutative = false;  // inputs 0 and 1 may be swapped
  bool loose = false;        // attributes not mentioned are free; else they are the defaults
  bool may_escape = false;
  std::string condition;
  std::function<bool(const Node&)> holds;
  // For the self-test: makes the call when its attributes depend on the types of its inputs.
  std::function<Node*(Builder&, const std::vector<Value*>&)> make;
};

struct PatNode {
  enum class Kind : std::uint8_t { any, result, one_of };
  Kind kind = Kind::any;
  std::string name;                     // of any
  bool weight = false;                  // any, but only of weights
  std::shared_ptr<const PatCall> call;  // of result
  int index = 0;
  std::vector<Pat> choices;  // of one_of, tried in order
};

Pat in(std::string name);                       // any value
Pat weight(std::string name);                   // a weight, or what comes from weights alone
Const constant(std::string name, Attr sample);  // any number
Pat call(std::string op, std::vector<Pat> inputs, std::vector<PatAttr> attrs = {});
Pat commutative(const Pat& result);       // of a call: its two inputs may be swapped
Pat result(const Pat& first, int index);  // another result of the call of `first`
Pat one_of(std::vector<Pat> choices);
// For operators whose attributes depend on types: how the self-test makes the call.
Pat made_by(const Pat& result, std::function<Node*(Builder&, const std::vector<Value*>&)> make);

// What a pattern was matched to.
class Match {
 public:
  Value* operator[](const Pat& p) const;  // internal error when not bound
  bool has(const Pat& p) const;           // false for parts in a choice that was not taken
  Node* node(const Pat& p) const { return (*this)[p]->node; }
  Node* node_of(const PatCall& c) const;  // null when not bound
  bool has(const Const& c) const;
  const Attr& attr(const Const& c) const;
  double f64(const Const& c) const;
  std::int64_t i64(const Const& c) const;

  std::vector<Value*> roots;
  std::vector<Node*> nodes;  // the matched nodes, in the graph's order

 private:
  friend class Matcher;
  std::vector<std::pair<const PatNode*, Value*>> values_;
  std::vector<std::pair<const PatCall*, Node*>> calls_;
  std::vector<std::pair<const ConstNode*, Attr>> constants_;
};

// A condition on the whole match, named.
struct Guard {
  std::string text;
  std::function<bool(const Match&)> holds;
};

struct PatternQuery {
  const std::vector<Pat>& roots;
  const std::vector<Guard>& guards;
};

// Why a match failed: the deepest reason, given after the most calls had been matched (trying
// swapped inputs afterwards would hide the last one).
struct Why {
  std::string text;
  std::size_t depth = 0;
};

// Matches roots[0] to `value`, the other roots to values connected with it, all guards being true.
// Swapped inputs and choices are tried one after the other until all of it fits. `why` may be null.
bool match_pattern(const PatternQuery& query, Value* value, Match* match, Why* why);

// The first matched value with a use outside of the match that is neither a root nor may escape,
// and that use. {nullptr, ...} when there is none. Values computed from weights alone may always
// be used elsewhere.
struct Escape {
  Value* value = nullptr;
  Use use{nullptr, 0};
};
Escape find_escape(const std::vector<Pat>& roots, const Match& match);

// True for weights and for what is computed from weights alone.
bool from_weights_only(const Value* value);

// Builds the pattern in a graph: inputs from `leaf` (which is asked once for each place), constants
// by their samples, choices by `choice` (their number, modulo how many there are). For self-tests.
struct PatternInstance {
  std::vector<Value*> roots;
};
PatternInstance instantiate(Builder& builder, const std::vector<Pat>& roots,
                            const std::function<Value*(const PatNode&)>& leaf, int choice);
// How many choices the widest one_of has.
int n_choices(const std::vector<Pat>& roots);
// The names of the inputs in order of their first appearance, roots[0] first, left to right.
std::vector<std::string> input_names(const std::vector<Pat>& roots);

std::string print(const Pat& pattern);  // "aten.mul(w, aten.rsqrt(x))"

}  // namespace tk

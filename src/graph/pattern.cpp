#include "graph/pattern.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"

namespace tk {
namespace {

// A copy of the call that `p` is a result of, to be changed.
Pat changed(const Pat& p, const std::function<void(PatCall&)>& change) {
  TK_CHECK(p && p->kind == PatNode::Kind::result, "only a call can be refined");
  auto copy = std::make_shared<PatCall>(*p->call);
  change(*copy);
  auto node = std::make_shared<PatNode>(*p.get());
  node->call = std::move(copy);
  return Pat(std::move(node));
}

}  // namespace

PatAttr::PatAttr(std::string n, const Const& c)
    : name(std::move(n)), value(c.get()->sample), constant(c.shared()) {}

Pat Pat::that(std::string text, std::function<bool(const Node&)> holds) const {
  return changed(*this, [&](PatCall& c) {
    c.condition = std::move(text);
    c.holds = std::move(holds);
    c.loose = true;
  });
}
Pat Pat::any_attrs() const {
  return changed(*this, [](PatCall& c) { c.loose = true; });
}
Pat Pat::may_escape() const {
  return changed(*this, [](PatCall& c) { c.may_escape = true; });
}

Pat in(std::string name) {
  auto node = std::make_shared<PatNode>();
  node->name = std::move(name);
  return Pat(std::move(node));
}

Pat weight(std::string name) {
  auto node = std::make_shared<PatNode>();
  node->name = std::move(name);
  node->weight = true;
  return Pat(std::move(node));
}

Const constant(std::string name, Attr sample) {
  return Const(std::make_shared<ConstNode>(ConstNode{std::move(name), std::move(sample)}));
}

Pat call(std::string op, std::vector<Pat> inputs, std::vector<PatAttr> attrs) {
  auto c = std::make_shared<PatCall>();
  c->op = std::move(op);
  c->inputs = std::move(inputs);
  c->attrs = std::move(attrs);
  while (!c->inputs.empty() && !c->inputs.back()) c->inputs.pop_back();
  auto node = std::make_shared<PatNode>();
  node->kind = PatNode::Kind::result;
  node->call = std::move(c);
  return Pat(std::move(node));
}

Pat commutative(const Pat& p) {
  return changed(p, [](PatCall& c) { c.commutative = true; });
}

Pat made_by(const Pat& p, std::function<Node*(Builder&, const std::vector<Value*>&)> make) {
  return changed(p, [&](PatCall& c) { c.make = std::move(make); });
}

Pat result(const Pat& first, int index) {
  TK_CHECK(first && first->kind == PatNode::Kind::result, "result of a call");
  auto node = std::make_shared<PatNode>(*first.get());
  node->index = index;
  return Pat(std::move(node));
}

Pat one_of(std::vector<Pat> choices) {
  auto node = std::make_shared<PatNode>();
  node->kind = PatNode::Kind::one_of;
  node->choices = std::move(choices);
  return Pat(std::move(node));
}

// ---- Match

namespace {
template <typename Key, typename T>
T* lookup(std::vector<std::pair<const Key*, T>>& list, const Key* key) {
  for (auto& [k, v] : list)
    if (k == key) return &v;
  return nullptr;
}
template <typename Key, typename T>
const T* lookup(const std::vector<std::pair<const Key*, T>>& list, const Key* key) {
  for (const auto& [k, v] : list)
    if (k == key) return &v;
  return nullptr;
}
}  // namespace

bool Match::has(const Pat& p) const {
  if (!p) return false;
  if (p->kind == PatNode::Kind::result) return lookup(calls_, p->call.get()) != nullptr;
  return lookup(values_, p.get()) != nullptr;
}

Value* Match::operator[](const Pat& p) const {
  TK_CHECK(has(p), "a part of the pattern that was not matched: ", print(p));
  if (p->kind == PatNode::Kind::result) return (*lookup(calls_, p->call.get()))->out(p->index);
  return *lookup(values_, p.get());
}

Node* Match::node_of(const PatCall& c) const {
  Node* const* n = lookup(calls_, &c);
  return n != nullptr ? *n : nullptr;
}

bool Match::has(const Const& c) const { return lookup(constants_, c.get()) != nullptr; }

const Attr& Match::attr(const Const& c) const {
  const Attr* a = lookup(constants_, c.get());
  TK_CHECK(a != nullptr, "constant '", c.get()->name, "' was not matched");
  return *a;
}

double Match::f64(const Const& c) const {
  const Attr& a = attr(c);
  if (const auto* d = std::get_if<double>(&a)) return *d;
  if (const auto* s = std::get_if<Sym>(&a)) return static_cast<double>(s->value());
  if (const auto* b = std::get_if<bool>(&a)) return *b ? 1 : 0;
  TK_CHECK(false, "constant '", c.get()->name, "' is no number: ", str(a));
  return 0;
}

std::int64_t Match::i64(const Const& c) const {
  const Attr& a = attr(c);
  const auto* s = std::get_if<Sym>(&a);
  TK_CHECK(s != nullptr && s->is_const(), "constant '", c.get()->name, "' is no integer: ", str(a));
  return s->value();
}

// ---- Matching

namespace {

bool is_number(const Attr& a, double* out) {
  if (const auto* d = std::get_if<double>(&a)) {
    *out = *d;
    return true;
  }
  if (const auto* s = std::get_if<Sym>(&a); s != nullptr && s->is_const()) {
    *out = static_cast<double>(s->value());
    return true;
  }
  return false;
}

bool same_attr(const Attr& a, const Attr& b) {
  double x = 0;
  double y = 0;
  if (is_number(a, &x) && is_number(b, &y)) return x == y;
  return a == b;
}

std::string name_in_messages(const Value* v) {
  if (v == nullptr) return "none";
  switch (v->kind) {
    case ValueKind::input:
      return cat("input '", v->name, "'");
    case ValueKind::weight:
      return cat("weight '", v->name, "'");
    case ValueKind::state:
      return cat("state '", v->name, "'");
    case ValueKind::node:
      break;
  }
  std::string s = cat("the ", v->node->op->name, " of type ", v->type.str());
  if (v->node->loc != nullptr && !v->node->loc->file.empty())
    s += cat(" at ", v->node->loc->file, ":", v->node->loc->line);
  return s;
}

}  // namespace

// Depth-first search with a trail. Goals are a linked list on the C++ stack: what is still to be
// matched once this goal is.
class Matcher {
 public:
  Matcher(const PatternQuery& query, Match* match, Why* why)
      : query_(query), match_(*match), why_(why) {}

  bool run(Value* value) {
    match_ = Match();
    const Goal first{query_.roots[0].get(), value, nullptr};
    return solve(&first);
  }

 private:
  struct Goal {
    const PatNode* pat;
    Value* value;
    const Goal* next;
  };
  struct Mark {
    std::size_t values, calls, constants, roots;
  };

  Mark mark() const {
    return {match_.values_.size(), match_.calls_.size(), match_.constants_.size(),
            match_.roots.size()};
  }
  bool undo(const Mark& m) {
    match_.values_.resize(m.values);
    match_.calls_.resize(m.calls);
    while (match_.constants_.size() > m.constants) match_.constants_.pop_back();
    match_.roots.resize(m.roots);
    return false;
  }
  // The deepest reason wins: the one given after the most calls had been matched.
  template <typename... Args>
  bool fail(const Args&... args) {
    return fail_at(match_.calls_.size(), args...);
  }
  template <typename... Args>
  bool fail_at(std::size_t depth, const Args&... args) {
    if (why_ != nullptr && (why_->text.empty() || depth > why_->depth)) {
      why_->depth = depth;
      why_->text = cat(args...);
    }
    return false;
  }

  bool solve(const Goal* goal) {
    if (goal == nullptr) return next_root();
    const PatNode& p = *goal->pat;
    switch (p.kind) {
      case PatNode::Kind::any:
        return solve_any(p, *goal);
      case PatNode::Kind::one_of: {
        if (Value* const* bound = lookup(match_.values_, &p))
          return *bound == goal->value
                     ? solve(goal->next)
                     : fail(name_in_messages(goal->value), " is not the same value as ",
                            name_in_messages(*bound));
        for (const Pat& choice : p.choices) {
          const Mark m = mark();
          match_.values_.emplace_back(&p, goal->value);
          const Goal chosen{choice.get(), goal->value, goal->next};
          if (solve(&chosen)) return true;
          undo(m);
        }
        return false;
      }
      case PatNode::Kind::result:
        return solve_call(p, *goal);
    }
    return false;
  }

  bool solve_any(const PatNode& p, const Goal& goal) {
    if (Value* const* bound = lookup(match_.values_, &p)) {
      if (*bound != goal.value)
        return fail(name_in_messages(goal.value), " is not the same value as '", p.name, "' (",
                    name_in_messages(*bound), ")");
      return solve(goal.next);
    }
    if (p.weight && !from_weights_only(goal.value))
      return fail(name_in_messages(goal.value), " is no weight, as '", p.name, "' must be");
    const Mark m = mark();
    match_.values_.emplace_back(&p, goal.value);
    return solve(goal.next) || undo(m);
  }

  bool solve_call(const PatNode& p, const Goal& goal) {
    const PatCall& c = *p.call;
    Node* n = goal.value->node;
    if (n == nullptr || n->op->name != c.op)
      return fail(name_in_messages(goal.value), " is not ", c.op);
    if (goal.value->index != p.index)
      return fail("result ", goal.value->index, " of ", c.op, " is used, not ", p.index);
    if (Node* const* bound = lookup(match_.calls_, &c)) {
      if (*bound != n) return fail("there are two different ", c.op, " where one is expected");
      return solve(goal.next);
    }
    for (const auto& [call, node] : match_.calls_)
      if (node == n) return fail("one ", c.op, " would be matched twice");
    if (n->inputs.size() != c.inputs.size())
      return fail(name_in_messages(goal.value), " has ", n->inputs.size(), " inputs, not ",
                  c.inputs.size());
    const Mark m = mark();
    if (!attrs_match(c, *n)) return undo(m);
    if (c.holds && !c.holds(*n))
      return fail("condition '", c.condition, "' is false of ", name_in_messages(goal.value));
    match_.calls_.emplace_back(&c, n);
    if (inputs_match(c, *n, goal.next, false)) return true;
    if (c.commutative && inputs_match(c, *n, goal.next, true)) return true;
    return undo(m);
  }

  bool attrs_match(const PatCall& c, const Node& n) {
    const Args args = n.args();
    for (const PatAttr& a : c.attrs) {
      const Attr* found = args.attr(a.name);
      if (a.constant == nullptr) {
        if (found == nullptr || !same_attr(*found, a.value))
          return fail(c.op, " has ", a.name, "=", found == nullptr ? "none" : str(*found), ", not ",
                      str(a.value));
        continue;
      }
      double number = 0;
      if (found == nullptr || !is_number(*found, &number))
        return fail(c.op, " has no number for '", a.name, "'");
      if (const Attr* bound = lookup(match_.constants_, a.constant.get())) {
        if (!same_attr(*bound, *found))
          return fail(a.name, "=", str(*found), " is not '", a.constant->name, "' (", str(*bound),
                      ")");
      } else {
        match_.constants_.emplace_back(a.constant.get(), *found);
      }
    }
    if (c.loose) return true;
    for (const auto& [key, value] : n.attrs)
      if (std::none_of(c.attrs.begin(), c.attrs.end(),
                       [&, &k = key](const PatAttr& a) { return a.name == k; }))
        return fail(c.op, " has ", key, "=", str(value));
    return true;
  }

  bool inputs_match(const PatCall& c, const Node& n, const Goal* next, bool swapped) {
    const std::size_t count = c.inputs.size();
    std::vector<Goal> goals(count);
    const Goal* chain = next;
    for (std::size_t k = count; k-- > 0;) {
      const std::size_t at = swapped && k < 2 ? 1 - k : k;
      Value* v = n.inputs[at];
      if (!c.inputs[k]) {
        if (v != nullptr) return fail(c.op, " has an input ", at, ", none is expected");
        continue;
      }
      if (v == nullptr) return fail(c.op, " has no input ", at);
      goals[k] = {c.inputs[k].get(), v, chain};
      chain = &goals[k];
    }
    return solve(chain);
  }

  // All goals of one root are met: on to the next root, then to the guards.
  bool next_root() {
    const std::size_t i = match_.roots.size();
    if (i < query_.roots.size()) {
      const Pat& root = query_.roots[i];
      if (match_.has(root)) {
        const Mark m = mark();
        match_.roots.push_back(match_[root]);
        return next_root() || undo(m);
      }
      if (i == 0) TK_CHECK(false, "the first root must be a call");
      for (Value* candidate : candidates(root)) {
        const Mark m = mark();
        const Goal goal{root.get(), candidate, nullptr};
        if (solve(&goal)) return true;
        undo(m);
      }
      return fail("no value like ", print(root), " near ", name_in_messages(match_.roots[0]));
    }
    for (const Guard& g : query_.guards)
      if (!g.holds(match_))  // everything had been matched
        return fail_at(match_.calls_.size() + 1, "guard '", g.text, "' is false");
    for (const auto& [call, node] : match_.calls_) match_.nodes.push_back(node);
    std::sort(match_.nodes.begin(), match_.nodes.end(),
              [](const Node* a, const Node* b) { return a->order < b->order; });
    return true;
  }

  // Values that may be the root: from each part of its pattern that is bound already, up along
  // the uses.
  std::vector<Value*> candidates(const Pat& root) {
    std::vector<Value*> found;
    climb(root, &found);
    return found;
  }
  void climb(const Pat& p, std::vector<Value*>* found) {
    if (!p) return;
    if (match_.has(p)) {
      found->push_back(match_[p]);
      return;
    }
    if (p->kind == PatNode::Kind::one_of) {
      for (const Pat& choice : p->choices) climb(choice, found);
      return;
    }
    if (p->kind == PatNode::Kind::any) return;
    for (const Pat& input : p->call->inputs) {
      std::vector<Value*> below;
      climb(input, &below);
      for (const Value* v : below) {
        for (const Use& use : v->uses) {
          if (use.node == nullptr || use.node->op->name != p->call->op) continue;
          Value* up = use.node->out(p->index);
          if (std::find(found->begin(), found->end(), up) == found->end()) found->push_back(up);
        }
      }
    }
  }

  const PatternQuery& query_;
  Match& match_;
  Why* why_;
};

bool match_pattern(const PatternQuery& query, Value* value, Match* match, Why* why) {
  return Matcher(query, match, why).run(value);
}

bool from_weights_only(const Value* value) {
  std::vector<const Value*> open{value};
  std::unordered_set<const Value*> seen;
  while (!open.empty()) {
    const Value* v = open.back();
    open.pop_back();
    if (v == nullptr || !seen.insert(v).second) continue;
    if (v->kind == ValueKind::input || v->kind == ValueKind::state) return false;
    if (v->kind == ValueKind::node)
      open.insert(open.end(), v->node->inputs.begin(), v->node->inputs.end());
  }
  return true;
}

namespace {
void calls_of(const Pat& p, std::vector<const PatCall*>* out) {
  if (!p) return;
  if (p->kind == PatNode::Kind::one_of)
    for (const Pat& choice : p->choices) calls_of(choice, out);
  if (p->kind != PatNode::Kind::result) return;
  if (std::find(out->begin(), out->end(), p->call.get()) != out->end()) return;
  out->push_back(p->call.get());
  for (const Pat& input : p->call->inputs) calls_of(input, out);
}
}  // namespace

Escape find_escape(const std::vector<Pat>& roots, const Match& match) {
  std::vector<const PatCall*> calls;
  for (const Pat& root : roots) calls_of(root, &calls);
  std::unordered_set<const Node*> inside(match.nodes.begin(), match.nodes.end());
  std::unordered_set<const Node*> free;
  for (const PatCall* c : calls)
    if (const Node* n = match.node_of(*c); n != nullptr && c->may_escape) free.insert(n);
  // What stays behind must not keep a part of the chain alive that was to be replaced.
  std::unordered_set<const Node*> stays;
  for (const Node* n : match.nodes)
    if (free.count(n) != 0 && std::all_of(n->inputs.begin(), n->inputs.end(), [&](const Value* v) {
          return v == nullptr || inside.count(v->node) == 0 || stays.count(v->node) != 0;
        }))
      stays.insert(n);
  for (Node* n : match.nodes) {
    if (stays.count(n) != 0) continue;
    for (const auto& v : n->outputs) {
      if (std::find(match.roots.begin(), match.roots.end(), v.get()) != match.roots.end()) continue;
      for (const Use& use : v->uses) {
        if (use.node != nullptr && inside.count(use.node) != 0) continue;
        if (from_weights_only(v.get())) continue;
        return {v.get(), use};
      }
    }
  }
  return {};
}

// ---- Printing and building

std::vector<std::string> input_names(const std::vector<Pat>& roots) {
  std::vector<std::string> names;
  const std::function<void(const Pat&)> visit = [&](const Pat& p) {
    if (!p) return;
    if (p->kind == PatNode::Kind::any) {
      if (std::find(names.begin(), names.end(), p->name) == names.end()) names.push_back(p->name);
    } else if (p->kind == PatNode::Kind::one_of) {
      for (const Pat& choice : p->choices) visit(choice);
    } else {
      for (const Pat& input : p->call->inputs) visit(input);
    }
  };
  for (const Pat& root : roots) visit(root);
  return names;
}

int n_choices(const std::vector<Pat>& roots) {
  std::size_t most = 1;
  const std::function<void(const Pat&)> visit = [&](const Pat& p) {
    if (!p || p->kind == PatNode::Kind::any) return;
    if (p->kind == PatNode::Kind::one_of) {
      most = std::max(most, p->choices.size());
      for (const Pat& choice : p->choices) visit(choice);
    } else {
      for (const Pat& input : p->call->inputs) visit(input);
    }
  };
  for (const Pat& root : roots) visit(root);
  return static_cast<int>(most);
}

PatternInstance instantiate(Builder& builder, const std::vector<Pat>& roots,
                            const std::function<Value*(const PatNode&)>& leaf, int choice) {
  std::vector<std::pair<const PatCall*, Node*>> made;
  const std::function<Value*(const Pat&)> build = [&](const Pat& p) -> Value* {
    if (!p) return nullptr;
    if (p->kind == PatNode::Kind::any) return leaf(*p.get());
    if (p->kind == PatNode::Kind::one_of)
      return build(p->choices[static_cast<std::size_t>(choice) % p->choices.size()]);
    if (Node* const* n = lookup(made, p->call.get())) return (*n)->out(p->index);
    std::vector<Value*> inputs;
    for (const Pat& input : p->call->inputs) inputs.push_back(build(input));
    Node* n = nullptr;
    if (p->call->make) {
      n = p->call->make(builder, inputs);
    } else {
      Attrs attrs;
      for (const PatAttr& a : p->call->attrs) attrs.set(a.name, a.value);
      n = builder.node(p->call->op, inputs, std::move(attrs));
    }
    made.emplace_back(p->call.get(), n);
    return n->out(p->index);
  };
  PatternInstance out;
  for (const Pat& root : roots) out.roots.push_back(build(root));
  return out;
}

std::string print(const Pat& p) {
  if (!p) return "none";
  if (p->kind == PatNode::Kind::any) return p->name;
  std::string s;
  if (p->kind == PatNode::Kind::one_of) {
    for (const Pat& choice : p->choices) s += cat(s.empty() ? "" : " | ", print(choice));
    return cat("(", s, ")");
  }
  s = cat(p->call->op, "(");
  bool first = true;
  for (const Pat& input : p->call->inputs) {
    s += cat(first ? "" : ", ", print(input));
    first = false;
  }
  for (const PatAttr& a : p->call->attrs) {
    s += cat(first ? "" : ", ", a.name, "=", a.constant ? a.constant->name : str(a.value));
    first = false;
  }
  s += ")";
  if (p->index != 0) s += cat(".", p->index);
  if (!p->call->condition.empty()) s += cat(" [", p->call->condition, "]");
  return s;
}

}  // namespace tk

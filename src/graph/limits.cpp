#include "graph/limits.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <variant>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/limit_expr.h"
#include "graph/limit_value.h"

namespace tk {
using namespace limit;

namespace {

using Kind = LimitExpr::Kind;

const LimitExpr& parsed(std::string_view text) {
  static std::mutex mutex;
  static std::map<std::string_view, LimitExpr> cache;
  const std::lock_guard lock(mutex);
  auto it = cache.find(text);
  if (it == cache.end()) it = cache.emplace(text, parse_limit(text)).first;
  return it->second;
}

bool is_function(std::string_view name) {
  constexpr std::string_view names[] = {"abs",        "all", "any",   "ceil", "diff",
                                        "increasing", "len", "max",   "min",  "nondecreasing",
                                        "prod",       "sum", "unique"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

void collect_unknown(const OpDef& op, const LimitExpr& e, std::vector<std::string>* names) {
  const auto known = [&](std::string_view n) {
    if (op.npu != nullptr)
      for (const Symbol& s : op.npu->symbols)
        if (s.name == n) return true;
    return op.parsed().tensor_index(n) >= 0 || op.parsed().find_attr(n) != nullptr ||
           dtype_named(n).has_value() || is_fact(n) || n == "soc" || n == "True" || n == "False" ||
           n == "None";
  };
  if (e.kind == Kind::name && !known(e.text)) names->push_back(e.text);
  if (e.kind == Kind::call && !is_function(e.text)) names->push_back(e.text + "()");
  for (const LimitExpr& a : e.args) collect_unknown(op, a, names);
}

class Evaluator {
 public:
  Evaluator(const LimitScope& scope, std::string_view text) : scope_(scope), text_(text) {}

  Val eval(const LimitExpr& e) {
    if (e.is_path()) {
      Val v = path(e);
      note(std::string(e.source), v);
      return v;
    }
    switch (e.kind) {
      case Kind::number:
        return literal(e.text);
      case Kind::string:
        return {e.text};
      case Kind::name:
        return e.text == "None" ? Val{None{}} : Val{e.text == "True"};
      case Kind::list: {
        List items;
        for (const LimitExpr& a : e.args) items.push_back(eval(a));
        return list_of(std::move(items));
      }
      case Kind::subscript:
      case Kind::slice:
      case Kind::attribute:
        return path(e);
      case Kind::call:
        return call(e);
      case Kind::unary:
        return unary(e);
      case Kind::binary: {
        const Val left = eval(e.args[0]);  // first: the values that are shown are in order
        return binary(e.text, left, eval(e.args[1]));
      }
      case Kind::compare:
        return compare(e);
      case Kind::logical:
        return logical(e);
      case Kind::condition: {
        const auto c = truth(eval(e.args[1]));
        return c ? eval(e.args[*c ? 0 : 2]) : Val{Unknown{}};
      }
      case Kind::none:
        break;
    }
    return {None{}};
  }

  std::optional<bool> truth(const Val& v) const {
    if (v.unknown()) return std::nullopt;
    if (v.none()) return false;
    if (const auto* b = v.get<bool>()) return *b;
    if (const auto n = number(v)) return *n != 0;
    if (v.get<Sym>() != nullptr) return std::nullopt;
    if (const auto* s = v.get<std::string>()) return !s->empty();
    if (const auto* l = v.get<std::shared_ptr<List>>()) return !(*l)->empty();
    return true;
  }

  const std::vector<std::pair<std::string, Val>>& seen() const { return seen_; }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw InternalError(__FILE__, __LINE__,
                        cat("limit '", text_, "' of ", scope_.args.op().name, ": ", what));
  }

  void note(std::string name, const Val& v) {
    if (inside_symbol_ > 0) return;
    for (const auto& [n, old] : seen_)
      if (n == name) return;
    seen_.emplace_back(std::move(name), v);
  }

  Val literal(const std::string& text) const {
    if (text.find_first_of(".e") != std::string::npos) return {std::stod(text)};
    std::int64_t i = 0;
    const auto r = std::from_chars(text.data(), text.data() + text.size(), i);
    if (r.ec != std::errc() || r.ptr != text.data() + text.size()) fail(cat("number ", text));
    return integer(i);
  }

  Val path(const LimitExpr& e) {
    if (const auto it = scope_.facts.find(e.source); it != scope_.facts.end())
      return of_attr(&it->second);
    switch (e.kind) {
      case Kind::name:
        return name(e.text);
      case Kind::attribute:
        return attribute(eval_quietly(e.args[0]), e.text);
      case Kind::subscript:
        return subscript(eval_quietly(e.args[0]), eval_quietly(e.args[1]));
      default: {
        const Val base = eval_quietly(e.args[0]);
        return slice(base, e.args[1], e.args[2]);
      }
    }
  }
  Val eval_quietly(const LimitExpr& e) {
    ++inside_symbol_;
    Val v = eval(e);
    --inside_symbol_;
    return v;
  }

  Val name(const std::string& n) {
    const OpDef& op = scope_.args.op();
    if (op.npu != nullptr)
      for (const Symbol& s : op.npu->symbols)
        if (s.name == n) return symbol(s);
    if (scope_.unknown.contains(n)) return {Unknown{}};
    if (const int i = op.parsed().tensor_index(n); i >= 0) {
      if (!scope_.args.has(i)) return {None{}};
      const auto at = static_cast<std::size_t>(i);
      return {
          TensorRef{&scope_.args.in(i), at < scope_.values.size() ? &scope_.values[at] : nullptr}};
    }
    if (op.parsed().find_attr(n) != nullptr) return of_attr(scope_.args.attr(n));
    if (const auto d = dtype_named(n)) return {*d};
    if (n == "soc") return scope_.soc.empty() ? Val{Unknown{}} : Val{std::string(scope_.soc)};
    if (is_fact(n)) return {Unknown{}};
    fail(cat("unknown name '", n, "'"));
  }

  Val symbol(const Symbol& s) {
    const auto it = symbols_.find(s.name);
    if (it != symbols_.end()) return it->second;
    if (!evaluating_.insert(s.name).second) fail(cat("symbol ", s.name, " needs itself"));
    Val v = eval_quietly(parsed(s.expr));
    evaluating_.erase(s.name);
    symbols_.emplace(s.name, v);
    return v;
  }

  Val attribute(const Val& base, const std::string& what) const {
    if (base.unknown() || base.none()) return base;
    const auto* t = base.get<TensorRef>();
    if (t == nullptr) fail(cat(".", what, " of ", text_of(base)));
    if (what == "dtype") return {t->type->dtype};
    if (what == "ndim") return integer(t->type->rank());
    if (what == "numel") return {t->type->numel()};
    if (what == "itemsize") return integer(static_cast<std::int64_t>(size_of(t->type->dtype)));
    if (what == "contiguous")
      return t->data == nullptr || t->data->data == nullptr ? Val{Unknown{}}
                                                            : Val{t->data->contiguous()};
    if (what != "shape") fail(cat("a tensor has no ", what));
    List items;
    for (const Sym& s : t->type->shape) items.push_back({s});
    return list_of(std::move(items));
  }

  Val subscript(const Val& base, const Val& index) const {
    if (base.unknown() || base.none() || index.unknown())
      return base.none() ? base : Val{Unknown{}};
    const auto items = items_of(base);
    if (items == nullptr) {
      if (base.get<TensorRef>() != nullptr) return {Unknown{}};
      fail(cat("[...] of ", text_of(base)));
    }
    const auto i = number(index);
    if (!i) return {Unknown{}};
    const auto n = static_cast<double>(items->size());
    const double at = *i < 0 ? *i + n : *i;
    if (at < 0 || at >= n) return {None{}};  // no such axis: no value, and a comparison fails
    return (*items)[static_cast<std::size_t>(at)];
  }

  Val slice(const Val& base, const LimitExpr& low, const LimitExpr& high) {
    const auto items = items_of(base);
    if (items == nullptr) return base.none() ? base : Val{Unknown{}};
    const auto n = static_cast<std::int64_t>(items->size());
    const auto bound = [&](const LimitExpr& e, std::int64_t other) -> std::optional<std::int64_t> {
      if (e.kind == Kind::none) return other;
      const auto v = number(eval_quietly(e));
      if (!v) return std::nullopt;
      const auto i = static_cast<std::int64_t>(*v);
      return std::clamp<std::int64_t>(i < 0 ? i + n : i, 0, n);
    };
    const auto from = bound(low, 0);
    const auto to = bound(high, n);
    if (!from || !to) return {Unknown{}};
    List part;
    for (std::int64_t i = *from; i < *to; ++i)
      part.push_back((*items)[static_cast<std::size_t>(i)]);
    return list_of(std::move(part));
  }

  Val unary(const LimitExpr& e) {
    const Val v = eval(e.args[0]);
    if (e.text == "not") {
      const auto t = truth(v);
      return t ? Val{!*t} : Val{Unknown{}};
    }
    return binary("-", integer(0), v);
  }

  Val binary(const std::string& op, const Val& a, const Val& b) const {
    if (a.unknown() || b.unknown()) return {Unknown{}};
    if (a.none() || b.none()) return {None{}};
    const auto la = items_of(a);
    const auto lb = items_of(b);
    if (op == "+" && la != nullptr && lb != nullptr) {
      List both = *la;
      both.insert(both.end(), lb->begin(), lb->end());
      return list_of(std::move(both));
    }
    if (a.get<TensorRef>() != nullptr || b.get<TensorRef>() != nullptr) return {Unknown{}};
    const auto* x = a.get<Sym>();
    const auto* y = b.get<Sym>();
    if (x != nullptr && y != nullptr) {
      if (op == "+") return {*x + *y};
      if (op == "-") return {*x - *y};
      if (op == "*") return {*x * *y};
      if (y->is(0)) return {None{}};  // as a size of 0: no value, and a comparison fails
      if (op == "//") return {floordiv(*x, *y)};
      if (op == "%") return {mod(*x, *y)};
    }
    const auto p = number(a);
    const auto q = number(b);
    if (!p || !q) {
      if (x != nullptr || y != nullptr) return {Unknown{}};
      fail(cat(text_of(a), " ", op, " ", text_of(b)));
    }
    if (op == "+") return {*p + *q};
    if (op == "-") return {*p - *q};
    if (op == "*") return {*p * *q};
    if (*q == 0) return {None{}};
    if (op == "/") return {*p / *q};
    if (op == "//") return {std::floor(*p / *q)};
    return {*p - std::floor(*p / *q) * *q};
  }

  std::optional<bool> holds(const std::string& op, const Val& a, const Val& b) const {
    if (op == "is" || op == "is not") {
      if (a.unknown() || b.unknown()) return std::nullopt;
      const auto same = b.none() || a.none() ? std::optional(a.none() && b.none()) : equal(a, b);
      if (!same) return std::nullopt;
      return *same == (op == "is");
    }
    if (op == "in" || op == "not in") {
      if (b.none()) return false;
      if (a.unknown() || b.unknown()) return std::nullopt;
      const auto items = items_of(b);
      if (items == nullptr) return std::nullopt;
      std::optional<bool> found = false;
      for (const Val& item : *items) {
        const auto e = equal(a, item);
        if (e && *e) {
          found = true;
          break;
        }
        if (!e) found = std::nullopt;
      }
      if (!found) return std::nullopt;
      return *found == (op == "in");
    }
    if (op == "==" || op == "!=") {
      const auto e = equal(a, b);
      if (!e) return std::nullopt;
      return *e == (op == "==");
    }
    if (a.none() || b.none()) return false;
    const auto o = order(a, b);
    if (!o) return std::nullopt;
    return op == "<" ? *o < 0 : op == "<=" ? *o <= 0 : op == ">" ? *o > 0 : *o >= 0;
  }

  Val compare(const LimitExpr& e) {
    Val left = eval(e.args[0]);
    bool unknown = false;
    for (std::size_t i = 0; i < e.ops.size(); ++i) {
      Val right = eval(e.args[i + 1]);
      const auto h = holds(e.ops[i], left, right);
      if (h && !*h) return {false};
      unknown |= !h;
      left = std::move(right);
    }
    return unknown ? Val{Unknown{}} : Val{true};
  }

  Val logical(const LimitExpr& e) {
    const bool decides = e.text == "or";
    bool unknown = false;
    for (const LimitExpr& a : e.args) {
      const auto t = truth(eval(a));
      if (t && *t == decides) return {decides};
      unknown |= !t;
    }
    return unknown ? Val{Unknown{}} : Val{!decides};
  }

  Val call(const LimitExpr& e);

  const LimitScope& scope_;
  std::string_view text_;
  int inside_symbol_ = 0;
  std::map<std::string_view, Val> symbols_;
  std::set<std::string_view> evaluating_;
  std::vector<std::pair<std::string, Val>> seen_;
};

// abs, all, any, ceil, diff, increasing, len, max, min, nondecreasing, prod, sum, unique.
Val Evaluator::call(const LimitExpr& e) {
  List args;
  for (const LimitExpr& a : e.args) args.push_back(eval(a));
  if (args.empty()) fail(cat(e.text, "() without arguments"));
  const Val& first = args.front();
  if (e.text == "ceil" || e.text == "abs") {
    const auto n = number(first);
    if (!n) return {Unknown{}};
    if (e.text == "abs")
      return first.get<Sym>() != nullptr ? integer(std::abs(first.get<Sym>()->value()))
                                         : Val{std::abs(*n)};
    return integer(static_cast<std::int64_t>(std::ceil(*n)));
  }
  if (first.none() && args.size() == 1) return first;
  const bool several = args.size() > 1;  // max(a, b)
  const std::shared_ptr<List> items = several ? std::make_shared<List>(args) : items_of(first);
  if (items == nullptr) {
    if (!first.unknown() && first.get<TensorRef>() == nullptr)
      fail(cat(e.text, "(", text_of(first), ")"));
    if (const auto* t = first.get<TensorRef>(); t != nullptr && e.text == "len")
      return t->type->rank() == 0 ? Val{None{}} : Val{t->type->shape[0]};
    return {Unknown{}};
  }
  for (const Val& v : *items)
    if (v.unknown() && e.text != "len") return {Unknown{}};
  if (e.text == "len") return integer(static_cast<std::int64_t>(items->size()));
  if (e.text == "sum" || e.text == "prod") {
    Val total = integer(e.text == "sum" ? 0 : 1);
    for (const Val& v : *items) total = binary(e.text == "sum" ? "+" : "*", total, v);
    return total;
  }
  if (e.text == "min" || e.text == "max") {
    if (items->empty()) return {Unknown{}};  // what all of no values meet is met
    Val best = items->front();
    for (const Val& v : *items) {
      const auto o = order(v, best);
      if (!o) return {Unknown{}};
      if (e.text == "min" ? *o < 0 : *o > 0) best = v;
    }
    return best;
  }
  if (e.text == "all" || e.text == "any") {
    for (const Val& v : *items) {
      const auto t = truth(v);
      if (!t) return {Unknown{}};
      if (*t == (e.text == "any")) return {e.text == "any"};
    }
    return {e.text == "all"};
  }
  if (e.text == "diff") {  // of running totals: what each adds
    List steps;
    Val last = integer(0);
    for (const Val& v : *items) {
      steps.push_back(binary("-", v, last));
      last = v;
    }
    return list_of(std::move(steps));
  }
  std::vector<double> numbers;
  for (const Val& v : *items) {
    const auto n = number(v);
    if (!n) return {Unknown{}};
    numbers.push_back(*n);
  }
  if (e.text == "unique") {
    std::sort(numbers.begin(), numbers.end());
    return {std::adjacent_find(numbers.begin(), numbers.end()) == numbers.end()};
  }
  if (e.text == "nondecreasing") return {std::is_sorted(numbers.begin(), numbers.end())};
  if (e.text == "increasing")
    return {std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>()) ==
            numbers.end()};
  fail(cat("unknown function ", e.text));
}

LimitState state_of(const std::optional<bool>& truth) {
  return !truth ? LimitState::unknown : *truth ? LimitState::holds : LimitState::violated;
}

LimitState state(const LimitScope& scope, const Limit& limit) {
  Evaluator e(scope, limit.expr);
  return state_of(e.truth(e.eval(parsed(limit.expr))));
}

bool applies(const Limit& limit, std::string_view soc) {
  return limit.soc.empty() || soc.empty() || limit.soc == soc;
}

void collect_literals(const LimitExpr& e, std::vector<std::int64_t>* numbers,
                      std::vector<std::string>* strings) {
  if (e.kind == Kind::number && e.text.find_first_of(".e") == std::string::npos)
    numbers->push_back(std::stoll(e.text));
  if (e.kind == Kind::string) strings->push_back(e.text);
  for (const LimitExpr& a : e.args) collect_literals(a, numbers, strings);
}

}  // namespace

LimitResult check_limit(const LimitScope& scope, const Limit& limit) {
  Evaluator e(scope, limit.expr);
  LimitResult r{&limit, state_of(e.truth(e.eval(parsed(limit.expr)))), ""};
  for (const auto& [name, value] : e.seen())
    if (!dtype_named(name))
      r.values += cat(r.values.empty() ? "" : ", ", name, " = ", text_of(value));
  return r;
}

std::vector<LimitResult> check_limits(const LimitScope& scope) {
  std::vector<LimitResult> results;
  const NpuFacts* facts = scope.args.op().npu;
  if (facts == nullptr) return results;
  for (const Limit& limit : facts->limits)
    if (applies(limit, scope.soc)) results.push_back(check_limit(scope, limit));
  return results;
}

std::string value_of_symbol(const LimitScope& scope, const Symbol& symbol) {
  Evaluator e(scope, symbol.expr);
  if (const auto it = scope.facts.find(symbol.name); it != scope.facts.end())
    return text_of(of_attr(&it->second));
  return text_of(e.eval(parsed(symbol.expr)));
}

std::vector<std::string> unknown_names(const OpDef& op, std::string_view expr) {
  std::vector<std::string> names;
  collect_unknown(op, parsed(expr), &names);
  return names;
}

std::optional<LimitChange> smallest_change(const LimitScope& scope, const Limit& limit) {
  Evaluator first(scope, limit.expr);
  first.eval(parsed(limit.expr));
  std::vector<std::int64_t> numbers;
  std::vector<std::string> strings;
  collect_literals(parsed(limit.expr), &numbers, &strings);

  const auto broken = [&](const LimitScope& s) {
    std::set<const Limit*> set;
    for (const Limit& l : scope.args.op().npu->limits)
      if (applies(l, scope.soc) && state(s, l) == LimitState::violated) set.insert(&l);
    return set;
  };
  const std::set<const Limit*> before = broken(scope);
  const auto works = [&](const std::string& name, const Attr& value) {
    LimitScope s = scope;
    s.facts.insert_or_assign(name, value);
    if (state(s, limit) != LimitState::holds) return false;
    const auto after = broken(s);
    return std::includes(before.begin(), before.end(), after.begin(), after.end());
  };

  std::optional<LimitChange> best;
  const auto offer = [&](const std::string& name, const Val& from, const Attr& to,
                         std::int64_t distance) {
    const auto size = [](const LimitChange& c) { return std::abs(c.distance); };
    LimitChange c{name, text_of(from), text_of(of_attr(&to)), distance};
    if (!best || size(c) < size(*best)) best = c;
  };
  for (const auto& [name, value] : first.seen()) {
    if (const auto* s = value.get<Sym>(); s != nullptr && s->is_const()) {
      const std::int64_t now = s->value();
      std::vector<std::int64_t> tries = numbers;
      for (std::int64_t d = 1; d <= 512; ++d) {
        tries.push_back(now + d);
        tries.push_back(now - d);
      }
      for (const std::int64_t n : numbers)
        if (n > 1) {
          tries.push_back((now + n - 1) / n * n);
          tries.push_back(now / n * n);
        }
      std::sort(tries.begin(), tries.end(), [&](std::int64_t a, std::int64_t b) {
        return std::abs(a - now) != std::abs(b - now) ? std::abs(a - now) < std::abs(b - now)
                                                      : a > b;  // padding before cutting
      });
      for (const std::int64_t n : tries)
        if (n >= 0 && n != now && works(name, Sym(n))) {
          offer(name, value, Sym(n), n - now);
          break;
        }
    } else if (value.get<std::string>() != nullptr) {
      for (const std::string& t : strings)
        if (works(name, t)) offer(name, value, t, 1);
    } else if (value.get<DType>() != nullptr && !dtype_named(name)) {
      for (const DType d :
           {DType::bf16, DType::f16, DType::f32, DType::i8, DType::i32, DType::i64, DType::boolean})
        if (works(name, d)) {
          offer(name, value, d, 1);
          break;
        }
    } else if (const auto* b = value.get<bool>()) {
      if (works(name, !*b)) offer(name, value, !*b, 1);
    }
  }
  return best;
}

}  // namespace tk

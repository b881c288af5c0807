#include "moves/flatten/locality.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "moves/flatten/located.h"

namespace tk {
namespace {

Axis plain(const Sym& size) { return size.is(1) ? Axis{} : Axis{{Tag::plain, size, nullptr}}; }

Layout plain_layout(const SymDims& shape) {
  Layout l;
  for (const Sym& d : shape) l.push_back(plain(d));
  return l;
}

bool is_sort_of_tokens(const Axis& axis) { return carries_tokens(axis) || carries_batch(axis); }

class Proof {
 public:
  Proof(const Graph& graph, const TokenSymbols& symbols) : graph_(graph) { out_.symbols = symbols; }

  Locality run() {
    for (const auto& v : graph_.inputs())
      put(v.get(), {layout_of_sizes(v->type.shape, out_.symbols)});
    for (const auto& v : graph_.weights()) put(v.get(), {plain_layout(v->type.shape)});
    for (Node* n : nodes(graph_)) visit(*n);
    report();
    return std::move(out_);
  }

 private:
  struct Offender {
    const Node* node;
    std::string why;
  };

  const TokenFacts& of(const Value* v) const { return out_.facts.at(v); }
  void put(const Value* v, TokenFacts facts) { out_.facts[v] = std::move(facts); }

  void mixes(const Node& n, std::string why) {
    offenders_.push_back({&n, std::move(why)});
    for (const auto& v : n.outputs) put(v.get(), {layout_of_sizes(v->type.shape, out_.symbols)});
  }

  void report() const {
    if (offenders_.empty()) return;
    const auto describe = [](const Offender& o) {
      std::string s = cat(o.node->op->name, " ", o.why);
      if (o.node->loc != nullptr && !o.node->loc->file.empty())
        s += cat(" at ", o.node->loc->file, ":", o.node->loc->line);
      if (o.node->loc != nullptr && !o.node->loc->module.empty())
        s += cat(" (", o.node->loc->module, ")");
      return s;
    };
    const Node& first = *offenders_.front().node;
    UserError error = located(
        {"TK0401", cat("the model can't be cached as it is: ", describe(offenders_.front()))},
        first);
    // The same operator in every layer is one line.
    std::map<std::string, int> others;
    for (std::size_t i = 1; i < offenders_.size(); ++i) {
      const Offender& o = offenders_[i];
      std::string key = cat(o.node->op->name, " ", o.why);
      if (o.node->loc != nullptr && !o.node->loc->file.empty())
        key += cat(" at ", o.node->loc->file, ":", o.node->loc->line);
      ++others[key];
    }
    int shown = 0;
    for (const auto& [text, times] : others) {
      if (++shown > 8) break;
      error = UserError(std::move(error).note(
          cat("also ", text, times > 1 ? cat(" (", times, " times)") : std::string())));
    }
    throw std::move(error).help(
        "only attention may mix tokens; recurrent state (linear attention, convolution over the "
        "sequence) and lengths read from positions are not supported as a cache yet");
  }

  bool tagged_inputs(const Node& n) const {
    return std::any_of(n.inputs.begin(), n.inputs.end(),
                       [&](const Value* v) { return v != nullptr && is_tagged(of(v).layout); });
  }

  void visit(const Node& n) {
    for (std::size_t i = 0; i < n.inputs.size(); ++i)
      if (n.inputs[i] != nullptr && of(n.inputs[i]).meaning == Meaning::counts &&
          !passes_counts(n, static_cast<int>(i)))
        return mixes(n, "uses a sum over tokens");
    const TokenRule rule = token_rule(n.op->name);
    if (n.in(0) != nullptr && of(n.in(0)).meaning == Meaning::counts && !n.is("aten._grouped_mm"))
      return put(n.out(), {plain_layout(n.out()->type.shape), Meaning::counts});
    // Without tokens in, sizes alone say what comes out.
    if (!tagged_inputs(n) && rule != TokenRule::create && rule != TokenRule::expand) {
      for (const auto& v : n.outputs) put(v.get(), {plain_layout(v->type.shape)});
      for (const auto& v : n.outputs)
        if (is_tagged(layout_of_sizes(v->type.shape, out_.symbols)))
          put(v.get(), {layout_of_sizes(v->type.shape, out_.symbols)});
      return;
    }
    switch (rule) {
      case TokenRule::unknown:
        return mixes(n, "is not known to keep tokens apart");
      case TokenRule::elementwise:
        return elementwise(n);
      case TokenRule::along:
        return along(n);
      case TokenRule::reshape:
        return reshape(n);
      case TokenRule::permute:
        return permute(n);
      case TokenRule::expand:
        return expand(n);
      case TokenRule::create:
        return create(n);
      case TokenRule::cat:
        return concatenate(n);
      case TokenRule::linear:
        return linear(n);
      case TokenRule::matmul:
        return matmul(n);
      case TokenRule::grouped_matmul:
        return grouped(n);
      case TokenRule::einsum:
        return einsum(n);
      case TokenRule::index:
        return index(n);
      case TokenRule::embedding:
        return lookup(n, 0, 1, 0);
      case TokenRule::index_select:
        return lookup(n, 0, 1, axes_of(n).front());
      case TokenRule::index_put:
        return index_put(n);
      case TokenRule::index_add:
        return index_add(n);
      case TokenRule::gather:
        return gather(n);
      case TokenRule::sort:
        return sort(n);
      case TokenRule::count:
        return count(n);
      case TokenRule::attention:
        return attention(n);
    }
  }

  // Casts and running totals keep being counts; a grouped matmul may use them.
  static bool passes_counts(const Node& n, int input) {
    if (n.is("aten._grouped_mm")) return input == 2;
    return n.is("aten.cumsum") || n.is("aten.to") || n.is("aten._to_copy");
  }

  void elementwise(const Node& n) {
    std::vector<const Layout*> layouts;
    for (const Value* v : n.inputs)
      if (v != nullptr) layouts.push_back(&of(v).layout);
    if (n.is("aten.type_as")) layouts.resize(1);
    auto layout = broadcast(layouts);
    if (!layout) return mixes(n, "combines different tokens");
    TokenFacts facts{*layout};
    const TokenFacts& first = of(n.in(0));
    if (n.is("aten.to") || n.is("aten._to_copy") || n.is("aten.clone") || n.is("aten.contiguous") ||
        n.is("aten.detach") || n.is("aten.alias")) {
      facts.meaning = first.meaning;
      facts.sort = first.sort;
    } else if (is_floor_division(n)) {
      divide(n, first, &facts);
    }
    for (const auto& v : n.outputs) put(v.get(), facts);
  }

  static bool is_floor_division(const Node& n) {
    if (n.is("aten.floor_divide")) return true;
    if (!n.is("aten.div") || !n.args().has_attr("rounding_mode")) return false;
    return n.args().text("rounding_mode") == "floor";
  }

  // perm // K and iota // K are the numbers of the tokens when K is what follows them in the axis.
  void divide(const Node& n, const TokenFacts& in, TokenFacts* facts) const {
    const Attr* other = n.args().attr("other");
    if (other == nullptr || !std::holds_alternative<Sym>(*other)) return;
    const Axis* axis = nullptr;
    if (in.meaning == Meaning::perm) {
      axis = &out_.sorted_axis.at(in.sort);
    } else if (in.meaning == Meaning::iota) {
      for (const Axis& a : in.layout)
        if (carries_tokens(a)) axis = &a;
    }
    if (axis == nullptr) return;
    Sym inner = 1;
    for (std::size_t i = 0; i < axis->size(); ++i)
      if ((*axis)[i].tag == Tag::plain) inner = inner * (*axis)[i].size;
    if (std::get<Sym>(*other) == inner) facts->meaning = Meaning::rows;
  }

  // Copies of tokens side by side (outermost first, or each followed by its copies) keep apart.
  bool copies(const Node& n) {
    const bool each = n.is("aten.repeat_interleave");
    if (!each && !n.is("aten.repeat")) return false;
    const TokenFacts& in = of(n.in(0));
    Layout layout = in.layout;
    if (each) {
      if (n.inputs.size() != 1 || !n.args().has_attr("dim")) return false;
      const auto at = static_cast<std::size_t>(axes_of(n).front());
      layout[at].push_back({Tag::plain, n.args().sym("repeats"), nullptr});
    } else {
      const SymDims times = n.args().syms("repeats");
      layout.insert(layout.begin(), times.size() - layout.size(), Axis{});
      for (std::size_t i = 0; i < times.size(); ++i)
        if (!times[i].is(1)) layout[i].insert(layout[i].begin(), {Tag::plain, times[i], nullptr});
    }
    for (Axis& axis : layout) axis = merged(std::move(axis));
    // Each copy of a token's number is that number still.
    const bool rows = in.meaning == Meaning::rows;
    put(n.out(), {std::move(layout), rows ? Meaning::rows : Meaning::none});
    return true;
  }

  void along(const Node& n) {
    if (copies(n)) return;
    const TokenFacts& in = of(n.in(0));
    const std::vector<int> axes = axes_of(n);
    const int rank = static_cast<int>(in.layout.size());
    for (int axis : axes)
      if (axis >= rank || is_sort_of_tokens(in.layout[static_cast<std::size_t>(axis)]))
        return mixes(n,
                     carries_tokens(in.layout[static_cast<std::size_t>(std::min(axis, rank - 1))])
                         ? "over tokens"
                         : "over the batch");
    for (const auto& v : n.outputs) {
      // Either the axes stay (with new sizes), or they are gone, or one is new at the end.
      Layout layout;
      const Type& type = v->type;
      const bool kept = type.rank() >= rank;
      for (int i = 0; i < rank; ++i) {
        const bool acted = std::find(axes.begin(), axes.end(), i) != axes.end();
        if (!acted) {
          layout.push_back(in.layout[static_cast<std::size_t>(i)]);
        } else if (kept) {
          layout.push_back(plain(type.dim(static_cast<int>(layout.size()))));
        }
      }
      while (static_cast<int>(layout.size()) < type.rank())
        layout.push_back(plain(type.dim(static_cast<int>(layout.size()))));
      put_checked(n, v.get(), std::move(layout));
    }
  }

  // Weight arguments of norms must not hold tokens; sizes must agree with the types.
  void put_checked(const Node& n, const Value* v, Layout layout) {
    for (std::size_t i = 1; i < n.inputs.size(); ++i)
      if (n.inputs[i] != nullptr && is_tagged(of(n.inputs[i]).layout))
        return mixes(n, "takes tokens where a weight is expected");
    for (std::size_t i = 0; i < layout.size(); ++i)
      if (!(size_of_axis(layout[i]) == v->type.shape[i]))
        return mixes(n, "changes the number of tokens");
    put(v, {std::move(layout)});
  }

  void reshape(const Node& n) {
    const TokenFacts& in = of(n.in(0));
    auto layout = reshaped(in.layout, n.out()->type.shape);
    if (!layout) return mixes(n, "merges tokens with something else");
    put(n.out(), {*layout, in.meaning, in.sort});
  }

  void permute(const Node& n) {
    const TokenFacts& in = of(n.in(0));
    Layout layout;
    for (int i : axis_order(n)) layout.push_back(in.layout[static_cast<std::size_t>(i)]);
    put(n.out(), {std::move(layout)});
  }

  void expand(const Node& n) {
    const TokenFacts& in = of(n.in(0));
    const SymDims& shape = n.out()->type.shape;
    Layout layout = layout_of_sizes(shape, out_.symbols);
    const std::size_t shift = shape.size() - in.layout.size();
    for (std::size_t i = 0; i < in.layout.size(); ++i)
      if (!in.layout[i].empty()) layout[i + shift] = in.layout[i];
    put(n.out(), {std::move(layout), in.meaning, in.sort});
  }

  void create(const Node& n) {
    TokenFacts facts{layout_of_sizes(n.out()->type.shape, out_.symbols)};
    // "like" keeps what its model's axes are.
    if (n.in(0) != nullptr && of(n.in(0)).layout.size() == facts.layout.size())
      for (std::size_t i = 0; i < facts.layout.size(); ++i)
        if (n.in(0)->type.shape[i] == n.out()->type.shape[i])
          facts.layout[i] = of(n.in(0)).layout[i];
    if (n.is("aten.arange") && is_tagged(facts.layout)) {
      const Args args = n.args();
      const Attr* start = args.attr("start");
      const Attr* step = args.attr("step");
      const bool from_zero =
          start == nullptr || (std::holds_alternative<Sym>(*start) && std::get<Sym>(*start).is(0));
      const bool by_one =
          step == nullptr || (std::holds_alternative<Sym>(*step) && std::get<Sym>(*step).is(1));
      if (!from_zero || !by_one) return mixes(n, "counts tokens from another start or in steps");
      facts.meaning = Meaning::iota;
      if (facts.layout[0].size() == 2 && carries_batch(facts.layout[0]) &&
          carries_tokens(facts.layout[0]))
        facts.meaning = Meaning::rows;  // B*S long: the token's own number
    }
    put(n.out(), std::move(facts));
  }

  void concatenate(const Node& n) {
    const auto axis = static_cast<std::size_t>(axes_of(n).front());
    Layout layout = of(n.in(0)).layout;
    for (const Value* v : n.inputs) {
      const Layout& l = of(v).layout;
      if (is_sort_of_tokens(l.at(axis))) return mixes(n, "over tokens");
      for (std::size_t i = 0; i < layout.size(); ++i) {
        if (i == axis || l[i] == layout[i]) continue;
        if (!is_sort_of_tokens(layout[i]) && is_sort_of_tokens(l[i])) {
          layout[i] = l[i];
        } else if (is_sort_of_tokens(l[i])) {
          return mixes(n, "combines different tokens");
        }
      }
    }
    layout[axis] = plain(n.out()->type.shape[axis]);
    put(n.out(), {std::move(layout)});
  }

  void linear(const Node& n) {
    Layout layout = of(n.in(0)).layout;
    if (is_sort_of_tokens(layout.back()) || is_tagged(of(n.in(1)).layout))
      return mixes(n, "multiplies over tokens");
    layout.back() = plain(n.out()->type.shape.back());
    put(n.out(), {std::move(layout)});
  }

  void matmul(const Node& n) {
    const Layout& a = of(n.in(0)).layout;
    const Layout& b = of(n.in(1)).layout;
    if (a.size() < 2 || b.size() < 2) {
      const Layout& m = a.size() >= 2 ? a : b;
      const bool vector_last = b.size() < 2;
      if (is_tagged(vector_last ? b : a) || is_sort_of_tokens(m[m.size() - (vector_last ? 1 : 2)]))
        return mixes(n, "multiplies over tokens");
      Layout layout = m;
      layout.erase(layout.end() - (vector_last ? 1 : 2));
      return put(n.out(), {std::move(layout)});
    }
    if (is_sort_of_tokens(a.back()) || is_sort_of_tokens(b[b.size() - 2]))
      return mixes(n, "multiplies over tokens and is not a recognised attention");
    if (carries_tokens(a[a.size() - 2]) && carries_tokens(b.back()))
      return mixes(n, "multiplies tokens with tokens and is not a recognised attention");
    const Layout batch_a(a.begin(), a.end() - 2);
    const Layout batch_b(b.begin(), b.end() - 2);
    auto layout = broadcast({&batch_a, &batch_b});
    if (!layout) return mixes(n, "combines different tokens");
    layout->push_back(a[a.size() - 2]);
    layout->push_back(b.back());
    put(n.out(), {*layout});
  }

  void grouped(const Node& n) {
    const Layout& x = of(n.in(0)).layout;
    if (x.size() != 2 || x[0].size() != 1 || x[0][0].tag != Tag::permuted ||
        is_tagged(of(n.in(1)).layout) || n.in(2) == nullptr ||
        of(n.in(2)).meaning != Meaning::counts)
      return mixes(n, "is not over tokens sorted by expert");
    put(n.out(), {{x[0], plain(n.out()->type.shape[1])}});
  }

  void einsum(const Node& n) {
    const std::string& equation = n.args().text("equation");
    std::string terms;
    for (char c : equation)
      if (c != ' ') terms += c;
    const std::size_t arrow = terms.find("->");
    if (arrow == std::string::npos || terms.find('.') != std::string::npos)
      return mixes(n, "is written without '->' or with '...'");
    std::map<char, Axis> axes;
    std::size_t operand = 0;
    std::size_t position = 0;
    for (char c : terms.substr(0, arrow)) {
      if (c == ',') {
        ++operand;
        position = 0;
        continue;
      }
      const Layout& l = of(n.inputs.at(operand)).layout;
      const Axis& axis = l.at(position++);
      auto [it, fresh] = axes.emplace(c, axis);
      if (fresh || it->second == axis || !is_sort_of_tokens(axis)) continue;
      if (is_sort_of_tokens(it->second)) return mixes(n, "combines different tokens");
      it->second = axis;
    }
    const std::string result = terms.substr(arrow + 2);
    for (const auto& [letter, axis] : axes)
      if (is_sort_of_tokens(axis) && result.find(letter) == std::string::npos)
        return mixes(n, "sums over tokens");
    Layout layout;
    int token_axes = 0;
    for (char c : result) {
      layout.push_back(axes.at(c));
      token_axes += carries_tokens(layout.back()) ? 1 : 0;
    }
    if (token_axes > 1) return mixes(n, "multiplies tokens with tokens");
    put(n.out(), {std::move(layout)});
  }

  // table[..., ids, ...] along an axis without tokens.
  void lookup(const Node& n, int table, int ids, int axis) {
    const Layout& t = of(n.in(table)).layout;
    const TokenFacts& i = of(n.in(ids));
    Layout layout(t.begin(), t.begin() + axis);
    const auto at = static_cast<std::size_t>(axis);
    if (is_sort_of_tokens(t[at])) {
      if (!selects_rows(t[at], i)) return mixes(n, "looks tokens up by a computed index");
    } else if (is_tagged(i.layout) && is_tagged(t)) {
      return mixes(n, "looks up different tokens");
    }
    layout.insert(layout.end(), selected(t[at], i).begin(), selected(t[at], i).end());
    layout.insert(layout.end(), t.begin() + axis + 1, t.end());
    put(n.out(), {std::move(layout), selected_meaning(n, i)});
  }

  // Whether an index picks, for each of its elements, the token that the element belongs to.
  bool selects_rows(const Axis& axis, const TokenFacts& ids) const {
    const bool all_rows =
        axis.size() == 2 && axis[0].tag == Tag::batch && axis[1].tag == Tag::token;
    if (ids.meaning == Meaning::rows) return all_rows;
    if (ids.meaning == Meaning::iota) return axis == tagged_axis(ids.layout);
    if (ids.meaning == Meaning::perm) return out_.sorted_axis.at(ids.sort) == axis;
    if (ids.meaning == Meaning::inverse)
      return axis.size() == 1 && axis[0].tag == Tag::permuted && axis[0].sort == ids.sort;
    return false;
  }

  static Axis tagged_axis(const Layout& layout) {
    for (const Axis& a : layout)
      if (is_sort_of_tokens(a)) return a;
    return {};
  }

  const Layout& selected(const Axis&, const TokenFacts& ids) const { return ids.layout; }

  // rows[perm] still are rows, in the permuted order.
  Meaning selected_meaning(const Node& n, const TokenFacts& ids) const {
    if (of(n.in(0)).meaning == Meaning::rows && ids.meaning == Meaning::perm) return Meaning::rows;
    return Meaning::none;
  }

  void index(const Node& n) {
    const Layout& self = of(n.in(0)).layout;
    std::vector<int> places;
    for (int i = 1; i < static_cast<int>(n.inputs.size()); ++i)
      if (n.in(i) != nullptr) places.push_back(i - 1);
    if (places.size() == 1) return lookup(n, 0, places[0] + 1, places[0]);
    std::vector<const Layout*> layouts;
    for (int p : places) {
      const TokenFacts& ids = of(n.in(p + 1));
      layouts.push_back(&ids.layout);
      const Axis& axis = self[static_cast<std::size_t>(p)];
      if (is_sort_of_tokens(axis) && !selects_rows(axis, ids))
        return mixes(n, "looks tokens up by a computed index");
      if (ids.meaning == Meaning::perm && !is_sort_of_tokens(axis))
        return mixes(n, "uses a permutation of tokens as data");
    }
    auto picked = broadcast(layouts);
    const bool adjacent = places.back() - places.front() + 1 == static_cast<int>(places.size());
    if (!picked || !adjacent) return mixes(n, "looks up different tokens");
    Layout layout(self.begin(), self.begin() + places.front());
    layout.insert(layout.end(), picked->begin(), picked->end());
    layout.insert(layout.end(), self.begin() + places.back() + 1, self.end());
    put(n.out(), {std::move(layout)});
  }

  // empty[perm] = arange is the inverse permutation.
  void index_put(const Node& n) {
    if (n.inputs.size() == 3 && n.in(2) != nullptr && of(n.in(2)).meaning == Meaning::perm &&
        n.in(0)->type.rank() == 1 &&
        (of(n.in(1)).meaning == Meaning::iota || of(n.in(1)).meaning == Meaning::rows)) {
      const Node* sort = of(n.in(2)).sort;
      return put(n.out(), {{out_.sorted_axis.at(sort)}, Meaning::inverse, sort});
    }
    mixes(n, "writes tokens by a computed index");
  }

  // sum.index_add(0, rows of the sorted tokens, y): back to the tokens.
  void index_add(const Node& n) {
    const int axis = axes_of(n).front();
    const Layout& self = of(n.in(0)).layout;
    const TokenFacts& ids = of(n.in(1));
    const Layout& source = of(n.in(2)).layout;
    const auto at = static_cast<std::size_t>(axis);
    if (ids.meaning != Meaning::rows || source[at] != tagged_axis(ids.layout) ||
        !selects_rows(self[at], ids))
      return mixes(n, "adds tokens up by a computed index");
    put(n.out(), {self});
  }

  void gather(const Node& n) {
    const auto axis = static_cast<std::size_t>(axes_of(n).front());
    const bool scatter = n.is("aten.scatter");
    Layout layout = of(n.in(0)).layout;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      if (n.inputs[i] == nullptr) continue;
      const Layout& l = of(n.inputs[i]).layout;
      if (is_sort_of_tokens(l[axis])) return mixes(n, "over tokens");
      for (std::size_t j = 0; j < layout.size(); ++j) {
        if (j == axis || l[j] == layout[j]) continue;
        if (is_sort_of_tokens(l[j]) && is_sort_of_tokens(layout[j]))
          return mixes(n, "combines different tokens");
        if (is_sort_of_tokens(l[j])) layout[j] = l[j];
      }
    }
    if (!scatter) layout[axis] = plain(n.out()->type.shape[axis]);
    put(n.out(), {std::move(layout)});
  }

  void sort(const Node& n) {
    const TokenFacts& in = of(n.in(0));
    const auto axis = static_cast<std::size_t>(axes_of(n).front());
    if (in.meaning == Meaning::perm && n.is("aten.argsort"))
      return put(n.out(), {{out_.sorted_axis.at(in.sort)}, Meaning::inverse, in.sort});
    if (!is_sort_of_tokens(in.layout[axis])) {
      for (const auto& v : n.outputs) put(v.get(), {in.layout});
      return;
    }
    if (in.layout.size() != 1) return mixes(n, "over tokens");
    out_.sorted_axis[&n] = in.layout[0];
    const Layout layout{{{Tag::permuted, n.out()->type.shape[0], &n}}};
    const bool both = n.outputs.size() == 2;
    if (both) put(n.out(0), {layout});
    put(n.out(both ? 1 : 0), {layout, Meaning::perm, &n});
  }

  void count(const Node& n) { put(n.out(), {plain_layout(n.out()->type.shape), Meaning::counts}); }

  void attention(const Node& n) {
    for (int i = 0; i < 3; ++i) {
      const Layout& l = of(n.in(i)).layout;
      const auto only = [](const Axis& a, Tag tag) { return a.size() == 1 && a[0].tag == tag; };
      if (l.size() != 4 || !(only(l[0], Tag::batch) || l[0].empty()) || !only(l[2], Tag::token) ||
          is_sort_of_tokens(l[1]) || is_sort_of_tokens(l[3]))
        return mixes(n,
                     cat("needs queries, keys and values [batch, heads, token, D], got ", str(l)));
    }
    Layout layout = of(n.in(0)).layout;
    layout[3] = plain(n.out()->type.shape[3]);
    put(n.out(), {std::move(layout)});
  }

  const Graph& graph_;
  Locality out_;
  std::vector<Offender> offenders_;
};

}  // namespace

Locality prove_token_locality(const Graph& graph, const TokenSymbols& symbols) {
  return Proof(graph, symbols).run();
}

}  // namespace tk

#include "moves/flatten/attention.h"

#include <cmath>
#include <optional>

#include "base/error.h"

namespace tk {
namespace {

bool is_any(const Node* n, std::initializer_list<std::string_view> names) {
  if (n == nullptr) return false;
  for (std::string_view name : names)
    if (n->op->name == name) return true;
  return false;
}

// Casts and copies do not change which values are meant; roundings on the way are the model's own
// and are repeated by the fused operator's output dtype.
const Value* through_casts(const Value* v) {
  while (is_any(v->node, {"aten.to", "aten._to_copy", "aten.dropout", "aten.contiguous",
                          "aten.clone", "aten.alias", "aten.detach", "aten.type_as"}))
    v = v->node->in(0);
  return v;
}
Value* through_casts(Value* v) {
  return const_cast<Value*>(through_casts(const_cast<const Value*>(v)));
}

bool swaps_last_two(const Node* n) {
  if (n == nullptr) return false;
  const int rank = n->in(0)->type.rank();
  if (n->is("aten.transpose")) {
    std::int64_t a = n->args().i64("dim0");
    std::int64_t b = n->args().i64("dim1");
    if (a < 0) a += rank;
    if (b < 0) b += rank;
    return std::min(a, b) == rank - 2 && std::max(a, b) == rank - 1;
  }
  if (n->is("aten.mT")) return true;
  if (!n->is("aten.permute")) return false;
  const auto dims = n->args().ints("dims");
  for (int i = 0; i < rank; ++i) {
    const std::int64_t d = dims[static_cast<std::size_t>(i)] < 0
                               ? dims[static_cast<std::size_t>(i)] + rank
                               : dims[static_cast<std::size_t>(i)];
    const std::int64_t want = i < rank - 2 ? i : (i == rank - 2 ? rank - 1 : rank - 2);
    if (d != want) return false;
  }
  return true;
}

bool is_reshape(const Node* n) {
  return is_any(
      n, {"aten.reshape", "aten.view", "aten._unsafe_view", "aten.unsqueeze", "aten.flatten"});
}

// [B, Hkv, S, D] repeated to [B, H, S, D] by expand and reshape, or by repeat_interleave: the
// value before. Otherwise the value itself.
Value* without_repeated_heads(Value* v) {
  const Type& full = v->type;
  if (full.rank() != 4) return v;
  Value* x = v;
  while (is_any(x->node, {"aten.contiguous", "aten.clone"})) x = x->node->in(0);
  if (x->node != nullptr && x->node->is("aten.repeat_interleave") && x->node->inputs.size() == 1) {
    const Args args = x->node->args();
    if (args.has_attr("dim") && (args.i64("dim") == 1 || args.i64("dim") == -3))
      return x->node->in(0);
    return v;
  }
  if (!is_reshape(x->node)) return v;
  Value* five = x->node->in(0);
  while (is_any(five->node, {"aten.contiguous", "aten.clone"})) five = five->node->in(0);
  if (five->node == nullptr || !five->node->is("aten.expand")) return v;
  Value* one = five->node->in(0);
  const SymDims& e = five->type.shape;
  const SymDims& o = one->type.shape;
  if (e.size() != 5 || o.size() != 5 || !o[2].is(1)) return v;
  const bool rest_equal = e[0] == o[0] && e[1] == o[1] && e[3] == o[3] && e[4] == o[4];
  if (!rest_equal || !(e[1] * e[2] == full.dim(1)) || !(e[3] == full.dim(2)) ||
      !(e[4] == full.dim(3)))
    return v;
  if (is_reshape(one->node) && one->node->in(0)->type.rank() == 4 &&
      one->node->in(0)->type.shape == SymDims{o[0], o[1], o[3], o[4]})
    return one->node->in(0);
  return nullptr;  // found, but the value before has no node of its own
}

// The unrepeated heads as a value, made by a reshape when the capture has none.
Value* heads_of(Graph& graph, Node* before, Value* v) {
  if (Value* plain = without_repeated_heads(v)) return plain;
  Value* x = v;
  while (is_any(x->node, {"aten.contiguous", "aten.clone"})) x = x->node->in(0);
  Value* one = x->node->in(0)->node->in(0);
  const SymDims& o = one->type.shape;
  return Builder{graph, before, before->loc}.op("aten.reshape", {one},
                                                {{"shape", SymDims{o[0], o[1], o[3], o[4]}}});
}

Node* emit(Graph& graph, Node* at, Value* q, Value* k, Value* v, Value* mask, Value* sinks,
           double scale, double softcap, bool causal) {
  Attrs attrs{{"scale", scale}, {"softcap", softcap}, {"causal", causal}};
  return Builder{graph, at, at->loc}.node(
      "tk.attention", {q, heads_of(graph, at, k), heads_of(graph, at, v), mask, sinks},
      std::move(attrs));
}

bool rewrite_sdpa(Graph& graph, Node* n) {
  const Args args = n->args();
  if (args.f64("dropout_p") != 0) return false;
  Value* q = n->in(0);
  if (q->type.rank() != 4 || !q->type.dim(3).is_const()) return false;
  const double scale = args.has_attr("scale")
                           ? args.f64("scale")
                           : 1.0 / std::sqrt(static_cast<double>(q->type.dim(3).value()));
  Node* a =
      emit(graph, n, q, n->in(1), n->in(2), n->in(3), nullptr, scale, 0, args.flag("is_causal"));
  graph.replace_uses(n->out(), a->out());
  graph.erase(n);
  return true;
}

// A number in a binary node with one tensor.
std::optional<double> scalar_operand(const Node* n) {
  const Attr* other = n->args().attr("other");
  if (other == nullptr || n->in(1) != nullptr) return std::nullopt;
  if (const auto* d = std::get_if<double>(other)) return *d;
  if (const auto* s = std::get_if<Sym>(other); s != nullptr && s->is_const())
    return static_cast<double>(s->value());
  return std::nullopt;
}

// What stands between Q K^T and the softmax, read backwards.
struct Scores {
  Value* query = nullptr;
  Value* key = nullptr;  // [B, H, S, D]
  Value* mask = nullptr;
  double scale = 1;
  double softcap = 0;
};

// x is scaled by `factor` (mul or div by a number); moves x before it.
bool take_scale(Value** x, double* scale) {
  Node* n = (*x)->node;
  if (!is_any(n, {"aten.mul", "aten.div"})) return false;
  const auto k = scalar_operand(n);
  if (!k || (n->is("aten.div") && n->args().has_attr("rounding_mode"))) return false;
  *scale = n->is("aten.mul") ? *scale * *k : *scale / *k;
  *x = n->in(0);
  return true;
}

std::optional<Scores> read_scores(Value* x) {
  Scores s;
  x = through_casts(x);
  // mask: added, or where(mask, x, -inf), or masked_fill(x, mask, -inf)
  if (is_any(x->node, {"aten.add"}) && x->node->in(1) != nullptr && x->type.rank() == 4) {
    for (int i = 0; i < 2; ++i) {
      Value* inner = x->node->in(i);
      if (auto rest = read_scores(inner); rest && rest->mask == nullptr) {
        rest->mask = x->node->in(1 - i);
        return rest;
      }
    }
    return std::nullopt;
  }
  double after = 1;  // scale applied after the soft-cap's tanh
  while (take_scale(&x, &after)) x = through_casts(x);
  if (x->node != nullptr && x->node->is("aten.tanh")) {
    s.softcap = after;
    after = 1;
    x = through_casts(x->node->in(0));
    while (take_scale(&x, &after)) x = through_casts(x);
    after *= s.softcap;  // tanh(y / cap) * cap: what is left is the scale of y
  }
  s.scale = after;
  if (!is_any(x->node, {"aten.matmul", "aten.bmm"})) return std::nullopt;
  s.query = x->node->in(0);
  Value* transposed = through_casts(x->node->in(1));
  if (!swaps_last_two(transposed->node)) return std::nullopt;
  s.key = transposed->node->in(0);
  if (s.query->type.rank() != 4 || s.key->type.rank() != 4) return std::nullopt;
  // A scale on the query or the key before the product is left where it is.
  return s;
}

// Sinks: cat([scores, sinks expanded], -1) before the softmax and a slice of all but the last
// after.
struct Sinks {
  Value* scores;
  Value* values;  // [H]
};

std::optional<Sinks> read_sinks(Value* x) {
  Node* n = x->node;
  if (n == nullptr || !n->is("aten.cat") || n->inputs.size() != 2) return std::nullopt;
  const std::int64_t dim = n->args().i64("dim");
  if (dim != -1 && dim != 3) return std::nullopt;
  Value* sinks = through_casts(n->in(1));
  if (!sinks->type.dim(-1).is(1)) return std::nullopt;
  while (is_any(sinks->node, {"aten.expand", "aten.reshape", "aten.view", "aten.unsqueeze"}))
    sinks = sinks->node->in(0);
  sinks = through_casts(sinks);
  if (sinks->type.rank() != 1 || !(sinks->type.dim(0) == x->type.dim(1))) return std::nullopt;
  return Sinks{n->in(0), sinks};
}

// softmax(x - max(x)) is softmax(x).
Value* without_max(Value* x) {
  Node* n = x->node;
  if (n == nullptr || !n->is("aten.sub") || n->in(1) == nullptr) return x;
  const Value* top = through_casts(static_cast<const Value*>(n->in(1)));
  if (!is_any(top->node, {"aten.max", "aten.amax"}) || top->node->in(0) != n->in(0)) return x;
  return n->in(0);
}

// matmul(probabilities, V) with probabilities = softmax(...).
bool rewrite_eager(Graph& graph, Node* n) {
  Value* p = through_casts(n->in(0));
  if (p->type.rank() != 4 || n->in(1)->type.rank() != 4) return false;
  bool sliced = false;
  if (p->node != nullptr && p->node->is("aten.slice")) {
    const Args args = p->node->args();
    const std::int64_t dim = args.i64("dim");
    const Attr* end = args.attr("end");
    const bool all_but_last =
        (dim == 3 || dim == -1) && end != nullptr &&
        (std::get<Sym>(*end).is(-1) || std::get<Sym>(*end) == p->node->in(0)->type.dim(3) - Sym(1));
    if (!all_but_last) return false;
    sliced = true;
    p = through_casts(p->node->in(0));
  }
  if (!is_any(p->node, {"aten.softmax", "aten._softmax"})) return false;
  const std::int64_t dim = p->node->args().i64("dim");
  if (dim != -1 && dim != 3) return false;
  Value* x = without_max(through_casts(p->node->in(0)));
  Value* sinks = nullptr;
  if (sliced) {
    const auto s = read_sinks(x);
    if (!s) return false;
    x = s->scores;
    sinks = s->values;
  }
  const auto scores = read_scores(x);
  if (!scores) return false;
  Node* a = emit(graph, n, scores->query, scores->key, n->in(1), scores->mask, sinks, scores->scale,
                 scores->softcap, false);
  graph.replace_uses(n->out(), a->out());
  return true;
}

}  // namespace

std::size_t recognise_attention(Graph& graph) {
  std::size_t count = 0;
  for (Node* n : nodes(graph)) {
    if (n->is("aten.scaled_dot_product_attention")) {
      count += rewrite_sdpa(graph, n) ? 1 : 0;
    } else if (is_any(n, {"aten.matmul", "aten.bmm"})) {
      count += rewrite_eager(graph, n) ? 1 : 0;
    }
  }
  graph.erase_dead();
  return count;
}

}  // namespace tk

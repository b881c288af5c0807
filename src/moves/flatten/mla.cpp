#include "moves/flatten/mla.h"

#include "base/error.h"

namespace tk {
namespace {

Value* through_copies(Value* v) {
  while (v->node != nullptr &&
         (v->node->is("aten.contiguous") || v->node->is("aten.clone") || v->node->is("aten.alias")))
    v = v->node->in(0);
  return v;
}

bool swaps_heads_and_tokens(const Node* n) {
  if (n == nullptr || n->in(0)->type.rank() != 4) return false;
  if (n->is("aten.transpose")) {
    auto a = n->args().i64("dim0");
    auto b = n->args().i64("dim1");
    if (a < 0) a += 4;
    if (b < 0) b += 4;
    return (a == 1 && b == 2) || (a == 2 && b == 1);
  }
  return n->is("aten.permute") && n->args().ints("dims") == std::vector<std::int64_t>{0, 2, 1, 3};
}

bool is_reshape(const Node* n) {
  return n != nullptr &&
         (n->is("aten.reshape") || n->is("aten.view") || n->is("aten._unsafe_view"));
}

std::int64_t constant_or(const Attr* a, std::int64_t none) {
  if (a == nullptr) return none;
  const Sym* s = std::get_if<Sym>(a);
  return s != nullptr && s->is_const() ? s->value() : -1;
}

}  // namespace

std::optional<Part> as_part(Value* v) {
  Node* n = v->node;
  if (n == nullptr) return std::nullopt;
  const bool slice = n->is("aten.slice") || n->is("aten.narrow");
  if (!slice && !n->is("aten.split_with_sizes") && !n->is("aten.split") && !n->is("aten.chunk"))
    return std::nullopt;
  const Args args = n->args();
  std::int64_t axis = args.i64("dim");
  if (axis < 0) axis += v->type.rank();
  const Sym& size = v->type.dim(static_cast<int>(axis));
  if (!size.is_const()) return std::nullopt;
  std::int64_t start = 0;
  if (slice) {
    if (n->is("aten.slice") && !(args.sym("step").is(1))) return std::nullopt;
    start = constant_or(args.attr("start"), 0);
    if (start < 0) return std::nullopt;
  } else {
    for (int i = 0; i < v->index; ++i) {
      const Sym& before = n->out(i)->type.dim(static_cast<int>(axis));
      if (!before.is_const()) return std::nullopt;
      start += before.value();
    }
  }
  return Part{n->in(0), static_cast<int>(axis), start, size.value()};
}

std::optional<MlaSite> find_mla(const Node& attention) {
  if (attention.in(4) != nullptr) return std::nullopt;  // sinks
  Value* key = through_copies(attention.in(1));
  Value* value = through_copies(attention.in(2));
  if (key->node == nullptr || !key->node->is("aten.cat") || key->node->inputs.size() != 2)
    return std::nullopt;
  const std::int64_t dim = key->node->args().i64("dim");
  if (dim != -1 && dim != 3) return std::nullopt;
  for (int nope_at = 0; nope_at < 2; ++nope_at) {
    Value* nope = through_copies(key->node->in(nope_at));
    Value* rope = through_copies(key->node->in(1 - nope_at));
    if (rope->node == nullptr || !rope->node->is("aten.expand")) continue;
    rope = rope->node->in(0);
    if (rope->type.rank() != 4 || !rope->type.dim(1).is(1)) continue;
    const auto k = as_part(nope);
    const auto v = as_part(value);
    if (!k || !v || k->source != v->source || k->axis != 3 || v->axis != 3 || k->start != 0 ||
        v->start != k->size)
      continue;
    Value* heads = through_copies(k->source);  // [B, H, S, nope + v]
    if (!swaps_heads_and_tokens(heads->node)) continue;
    Value* split = through_copies(heads->node->in(0));
    if (!is_reshape(split->node)) continue;
    Value* product = split->node->in(0);
    while (is_reshape(product->node)) product = product->node->in(0);
    if (product->node == nullptr || !product->node->is("aten.linear") ||
        product->node->in(2) != nullptr)
      continue;
    Value* weight = product->node->in(1);
    const SymDims& w = weight->type.shape;
    const SymDims& h = heads->type.shape;
    if (!h[1].is_const() || !h[3].is_const() || !w[0].is_const() || !w[1].is_const() ||
        !rope->type.dim(3).is_const())
      continue;
    if (w[0].value() != h[1].value() * h[3].value() || h[3].value() != k->size + v->size) continue;
    const std::int64_t rope_dim = rope->type.dim(3).value();
    // Not worth it when the latent is no smaller than the keys and values themselves.
    if (w[1].value() + rope_dim >= h[1].value() * (k->size + rope_dim + v->size)) continue;
    return MlaSite{
        product->node->in(0), rope,        weight, h[1].value(), k->size, v->size, rope_dim,
        w[1].value(),         nope_at == 1};
  }
  return std::nullopt;
}

}  // namespace tk

// Products with weights, and rows of them.
#include "moves/canonical/rules.h"

namespace tk::canonical {
namespace {

// The weight as linear wants it, [n, k]; a transpose of a weight is a node evaluated once.
Value* transposed(Builder& b, Value* weight) {
  const Node* first = made_by(weight, "aten.permute");
  if (first != nullptr) return first->in(0);  // of rank 2 and not the identity: its own inverse
  return b.op("aten.permute", {weight}, {{"dims", SymDims{1, 0}}});
}

bool is_weight_matrix(const Value* v) { return v->type.rank() == 2 && is_from_weights(v); }

}  // namespace

Replacement matmul_to_linear(Builder& b, const Node& n) {
  if (!is_weight_matrix(n.in(1)) || is_from_weights(n.in(0)) || type(n).rank() < 2) return {};
  return {b.op("aten.linear", {n.in(0), transposed(b, n.in(1))})};
}

Replacement addmm_to_linear(Builder& b, const Node& n) {
  const Args args = n.args();
  if (!is_weight_matrix(n.in(2)) || type(n).rank() != 1 || !is_from_weights(n.in(0))) return {};
  if (!is_number(*args.attr("beta"), 1) || !is_number(*args.attr("alpha"), 1)) return {};
  return {b.op("aten.linear", {n.in(1), transposed(b, n.in(2)), n.in(0)})};
}

// padding_idx says where no gradient goes.
Replacement drop_padding(Builder& b, const Node& n) {
  if (n.attrs.empty()) return {};
  return {b.op("aten.embedding", {n.in(0), n.in(1)})};
}

// transformers' own name for the same product.
Replacement spell_grouped_mm(Builder& b, const Node& n) {
  return {b.op("aten._grouped_mm", {n.in(0), n.in(1), n.in(2)})};
}

}  // namespace tk::canonical

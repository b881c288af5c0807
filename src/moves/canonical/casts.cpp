// Casts and copies.
#include "moves/canonical/rules.h"

namespace tk::canonical {

Replacement drop_alias(Builder&, const Node& n) { return {n.in(0)}; }

Replacement drop_dropout(Builder&, const Node& n) {
  const Args args = n.args();
  if (args.flag("train") && args.f64("p") != 0.0) return {};  // random: not ours to drop
  return {n.in(0)};
}

namespace {
Value* cast(Builder& b, Value* v, DType dtype) {
  if (v->type.dtype == dtype) return v;
  return b.op("aten.to", {v}, {{"dtype", dtype}});
}
}  // namespace

Replacement spell_cast(Builder& b, const Node& n) {
  return {cast(b, n.in(0), n.out()->type.dtype)};
}
Replacement spell_type_as(Builder& b, const Node& n) {
  return {cast(b, n.in(0), n.out()->type.dtype)};
}

Replacement spell_copy(Builder& b, const Node& n) {
  Value* v = cast(b, n.in(1), n.out()->type.dtype);
  if (v->type.shape != n.out()->type.shape)
    v = b.op("aten.expand", {v}, {{"size", n.out()->type.shape}});
  return {v};
}

Replacement drop_cast(Builder&, const Node& n) {
  if (type(n).dtype != n.out()->type.dtype) return {};
  return {n.in(0)};
}

bool holds(DType wide, DType narrow) {
  if (wide == narrow || narrow == DType::boolean) return true;
  switch (wide) {
    case DType::f64:
      return narrow != DType::i64 && narrow != DType::c64;
    case DType::f32:
      return narrow == DType::f16 || narrow == DType::bf16 || narrow == DType::i16 ||
             narrow == DType::i8 || narrow == DType::u8;
    case DType::i64:
      return narrow == DType::i32 || narrow == DType::i16 || narrow == DType::i8 ||
             narrow == DType::u8;
    case DType::i32:
      return narrow == DType::i16 || narrow == DType::i8 || narrow == DType::u8;
    case DType::i16:
      return narrow == DType::i8 || narrow == DType::u8;
    default:
      return false;
  }
}

// to(to(x, wide), any): the first one loses nothing.
Replacement merge_casts(Builder& b, const Node& n) {
  const Node* first = made_by(n.in(0), "aten.to");
  if (first == nullptr || !holds(first->out()->type.dtype, type(*first).dtype)) return {};
  return {cast(b, first->in(0), n.out()->type.dtype)};
}

}  // namespace tk::canonical

// Rotary position embedding as a product of complex numbers: neighbours are real and imaginary
// part, the factors cos + i sin come from a table (aten.polar).
#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {
namespace {

Pat paired(const Pat& x) {
  return reshape(x, [](const Type& t) {
    SymDims shape = t.shape;
    shape.back() = floordiv(shape.back(), 2);
    shape.emplace_back(2);
    return shape;
  });
}

Pat flattened(const Pat& x) {
  return reshape(x, [](const Type& t) {
    SymDims shape(t.shape.begin(), t.shape.end() - 2);
    shape.push_back(t.dim(-1) * t.dim(-2));
    return shape;
  });
}

// A node with that operator and attributes that uses v already, or a new one.
Value* used_or_new(Build& b, std::string_view op, Value* v, const Attrs& attrs) {
  for (const Use& use : v->uses)
    if (use.node != nullptr && use.node->is(op) && use.node->attrs == attrs &&
        use.node->order < b.before->order)
      return use.node->out();
  return b.op(op, {v}, attrs);
}

// The real (0) or imaginary (1) parts of `factors` [.., D/2], each twice: [.., D].
Value* table(Build& b, Value* factors, int part) {
  Value* parts = used_or_new(b, "aten.view_as_real", factors, {});
  const int rank = parts->type.rank();
  Value* column =
      used_or_new(b, "aten.slice", parts,
                  {{"dim", Sym(rank - 1)}, {"start", Sym(part)}, {"end", Sym(part + 1)}});
  SymDims twice = column->type.shape;
  twice.back() = 2;
  Value* pairs = used_or_new(b, "aten.expand", column, {{"size", twice}});
  SymDims flat(twice.begin(), twice.end() - 1);
  flat.back() = flat.back() + flat.back();
  return used_or_new(b, "aten.reshape", pairs, {{"shape", flat}});
}

// `narrow`: x is widened for the product, which exists for f32 alone, and the result rounded.
Rewrite complex_rotary(bool narrow) {
  const Pat x = in("x");
  const Pat factors = in("factors");
  const Pat as_pairs = paired(narrow ? cast_up(x) : x);
  const Pat product = call("aten.view_as_complex", {as_pairs}) * factors;
  const Pat flat = flattened(call("aten.view_as_real", {product}));
  const DType dtype = narrow ? DType::bf16 : DType::f32;
  return rewrite("real(complex(x) * factors) -> npu_rotary_mul(x, cos, sin, interleave)",
                 "npu.npu_rotary_mul")
      .match(narrow ? cast(flat) : flat)
      .when("neighbours of the last axis",
            [=](const Match& m) {
              SymDims whole = m[as_pairs]->type.shape;
              if (whole.size() < 2 || !whole.back().is(2)) return false;
              whole.pop_back();
              whole.back() = whole.back() + whole.back();
              return m[flat]->type.shape == whole;
            })
      .when("factors over the whole last axis",
            [=](const Match& m) {
              return m[factors]->type.dtype == DType::c64 && m[factors]->type.rank() >= 1 &&
                     m[factors]->type.shape.back() == m[as_pairs]->type.dim(-2);
            })
      .build([=](Build& b) {
        Value* f = b[factors];
        // The reshape into pairs may have taken the heads apart as well.
        const SymDims& shape = b[flat]->type.shape;
        Value* v = b[x];
        if (v->type.shape != shape) v = b.op("aten.reshape", {v}, {{"shape", shape}});
        return std::vector<Value*>{b.op("npu.npu_rotary_mul", {v, table(b, f, 0), table(b, f, 1)},
                                        {{"rotary_mode", std::string("interleave")}})};
      })
      .check({{"x", type(dtype, {3, 4, 16})}, {"factors", type(DType::c64, {3, 1, 8})}})
      .check({{"x", type(dtype, {Sym::symbol("T"), 2, 8})},
              {"factors", {DType::c64, {Sym::symbol("T"), 1, 4}}}});
}

}  // namespace

Move fuse_complex_rotary() {
  return move_of("fuse_complex_rotary",
                 "real(complex(x) * factors) -> npu.npu_rotary_mul(x, cos, sin, interleave)",
                 {complex_rotary(true), complex_rotary(false)});
}

}  // namespace tk::fuse

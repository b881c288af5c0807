#include "moves/fuse/vocabulary.h"

#include "base/error.h"

namespace tk::fuse {
namespace {

Pat binary(const char* op, const Pat& a, const Pat& b) { return call(op, {a, b}); }
Pat with_number(const char* op, const Pat& a, const Const& c) {
  return call(op, {a}, {{"other", c}});
}

std::int64_t normal_axis(std::int64_t dim, int rank) { return dim < 0 ? dim + rank : dim; }

// The attribute `dim` (one int or a list of one) is the last axis and `keepdim` as wanted.
bool reduces_last(const Node& n, bool keepdim) {
  const Args args = n.args();
  if (!args.has_attr("dim") || args.syms("dim").size() != 1) return false;
  const Sym dim = args.syms("dim")[0];
  const int rank = n.inputs[0]->type.rank();
  return dim.is_const() && normal_axis(dim.value(), rank) == rank - 1 &&
         args.flag("keepdim") == keepdim && !args.has_attr("dtype");
}

Pat reduction(const char* op, const Pat& x, bool keepdim) {
  const Pat p = call(op, {x}).that(keepdim ? "over the last axis, kept" : "over the last axis",
                                   [keepdim](const Node& n) { return reduces_last(n, keepdim); });
  return made_by(p, [op, keepdim](Builder& b, const std::vector<Value*>& in) {
    return b.node(op, in, {{"dim", SymDims{-1}}, {"keepdim", keepdim}});
  });
}

// start, end, step of a slice of the last axis, end cut to its size.
struct Cut {
  std::int64_t start, end, step, size;
};
bool last_axis_cut(const Node& n, Cut* cut) {
  if (!is_last_axis(n)) return false;
  const Args args = n.args();
  const Sym size = n.inputs[0]->type.shape.back();
  if (!size.is_const()) return false;
  auto number = [&](const char* name, std::int64_t otherwise, std::int64_t* out) {
    const Attr* a = args.attr(name);
    if (a == nullptr) {
      *out = otherwise;
      return true;
    }
    const Sym* s = std::get_if<Sym>(a);
    if (s == nullptr || !s->is_const()) return false;
    *out = s->value();
    return true;
  };
  cut->size = size.value();
  if (!number("start", 0, &cut->start) || !number("end", cut->size, &cut->end) ||
      !number("step", 1, &cut->step))
    return false;
  if (cut->start < 0) cut->start += cut->size;
  if (cut->end < 0) cut->end += cut->size;
  cut->end = std::min(cut->end, cut->size);
  return true;
}

Node* make_slice(Builder& b, Value* x, std::int64_t start, std::int64_t end, std::int64_t step) {
  return b.node("aten.slice", {x},
                {{"dim", Sym(-1)}, {"start", Sym(start)}, {"end", Sym(end)}, {"step", Sym(step)}});
}

}  // namespace

bool is_last_axis(const Node& n, std::string_view attr) {
  const Args args = n.args();
  if (!args.has_attr(attr)) return false;
  const Sym dim = args.sym(attr);
  const int rank = n.inputs[0]->type.rank();
  return dim.is_const() && normal_axis(dim.value(), rank) == rank - 1;
}

Pat operator+(const Pat& a, const Pat& b) { return commutative(binary("aten.add", a, b)); }
Pat operator*(const Pat& a, const Pat& b) { return commutative(binary("aten.mul", a, b)); }
Pat operator-(const Pat& a, const Pat& b) { return binary("aten.sub", a, b); }
Pat operator/(const Pat& a, const Pat& b) { return binary("aten.div", a, b); }
Pat operator+(const Pat& a, const Const& c) { return with_number("aten.add", a, c); }
Pat operator*(const Pat& a, const Const& c) { return with_number("aten.mul", a, c); }
Pat operator/(const Pat& a, const Const& c) { return with_number("aten.div", a, c); }

Pat unary(std::string op, const Pat& x) { return call(std::move(op), {x}); }

Pat square(const Pat& x) { return call("aten.pow", {x}, {{"exponent", Sym(2)}}); }
Pat reshape(const Pat& x, std::function<SymDims(const Type&)> shape) {
  return made_by(call("aten.reshape", {x}).any_attrs().may_escape(),
                 [shape = std::move(shape)](Builder& b, const std::vector<Value*>& in) {
                   return b.node("aten.reshape", in, {{"shape", shape(in[0]->type)}});
                 });
}
Pat mean_last(const Pat& x) { return reduction("aten.mean", x, true); }
Pat sum_last(const Pat& x) { return reduction("aten.sum", x, true); }
Pat sum_last_dropped(const Pat& x) { return reduction("aten.sum", x, false); }

Pat normed(const Pat& x, const Const& eps) {
  const Pat variance = mean_last(square(x)) + eps;
  return one_of({x * unary("aten.rsqrt", variance), x / unary("aten.sqrt", variance),
                 x * call("aten.pow", {variance}, {{"exponent", -0.5}})});
}

Pat cast(const Pat& x) {
  return made_by(call("aten.to", {x}).any_attrs().may_escape(),
                 [](Builder& b, const std::vector<Value*>& in) {
                   return b.node("aten.to", in, {{"dtype", b.graph.inputs()[0]->type.dtype}});
                 });
}
Pat cast_up(const Pat& x) { return call("aten.to", {x}, {{"dtype", DType::f32}}).may_escape(); }
Pat maybe_cast(const Pat& x) { return one_of({cast(x), x}); }
Pat maybe_up(const Pat& x) { return one_of({cast_up(x), x}); }

Pat half(const Pat& x, int which) {
  return made_by(
      call("aten.slice", {x})
          .that(which == 0 ? "the first half of the last axis" : "the second half of the last axis",
                [which](const Node& n) {
                  Cut c{};
                  return last_axis_cut(n, &c) && c.size % 2 == 0 && c.step == 1 &&
                         c.start == which * c.size / 2 && c.end == (which + 1) * c.size / 2;
                })
          .may_escape(),
      [which](Builder& b, const std::vector<Value*>& in) {
        const std::int64_t n = in[0]->type.shape.back().value() / 2;
        return make_slice(b, in[0], which * n, (which + 1) * n, 1);
      });
}

Pat stride2(const Pat& x, int which) {
  return made_by(call("aten.slice", {x})
                     .that(which == 0 ? "the even elements of the last axis"
                                      : "the odd elements of the last axis",
                           [which](const Node& n) {
                             Cut c{};
                             return last_axis_cut(n, &c) && c.size % 2 == 0 && c.step == 2 &&
                                    c.start == which && c.end >= c.size - 1 + which;
                           })
                     .may_escape(),
                 [which](Builder& b, const std::vector<Value*>& in) {
                   return make_slice(b, in[0], which, INT64_MAX, 2);
                 });
}

Pat joined(const Pat& a, const Pat& b) {
  return made_by(call("aten.cat", {a, b})
                     .that("along the last axis", [](const Node& n) { return is_last_axis(n); }),
                 [](Builder& builder, const std::vector<Value*>& in) {
                   return builder.node("aten.cat", in, {{"dim", Sym(-1)}});
                 });
}

Value* as_dtype(Builder& b, Value* v, DType dtype) {
  if (v->type.dtype == dtype) return v;
  if (v->node != nullptr && v->node->is("aten.to") && v->node->inputs[0]->type.dtype == dtype) {
    // A widened copy of the very value: i32 -> i64 -> i32, bf16 -> f32 -> bf16.
    const Value* source = v->node->inputs[0];
    if (promote(source->type.dtype, v->type.dtype) == v->type.dtype) return v->node->inputs[0];
  }
  return b.op("aten.to", {v}, {{"dtype", dtype}});
}

Type type(DType dtype, std::initializer_list<Sym> shape) { return {dtype, shape}; }

Rewrite rewrite(std::string doc, std::string target) {
  Rewrite r;
  r.doc = std::move(doc);
  r.target = std::move(target);
  return r;
}

}  // namespace tk::fuse

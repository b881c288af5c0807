// The gates of routed experts: softmax and top-k in either order, and the sigmoid gate with a bias
// for the choice and groups of experts.
#include <limits>

#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {
namespace {

bool over_last_axis(const Node& n) { return is_last_axis(n); }

// softmax over the last axis, whatever the dtype it is computed in.
Pat softmax(const Pat& x) {
  return made_by(call("aten.softmax", {x}).that("over the last axis", over_last_axis),
                 [](Builder& b, const std::vector<Value*>& in) {
                   return b.node("aten.softmax", in, {{"dim", Sym(-1)}, {"dtype", DType::f32}});
                 });
}

// topk over the last axis, largest first; whether sorted does not matter: weights and indices
// stay together.
Pat top_k(const Pat& x) {
  return made_by(call("aten.topk", {x})
                     .that("the largest of the last axis",
                           [](const Node& n) {
                             const Args a = n.args();
                             return is_last_axis(n) && a.flag("largest") && a.sym("k").is_const();
                           }),
                 [](Builder& b, const std::vector<Value*>& in) {
                   return b.node("aten.topk", in, {{"k", Sym(2)}, {"dim", Sym(-1)}});
                 });
}

std::int64_t k_of(const Match& m, const Pat& top) { return m.node(top)->args().i64("k"); }

// The operators take and give one dtype: logits are widened to what the model's weights are.
Value* logits_as(Build& b, const Pat& x, const Pat& weights) {
  Value* v = b[x];
  return v->type.dtype == b[weights]->type.dtype ? v : as_dtype(b, v, b[weights]->type.dtype);
}

// Indices are i32 in the operators, i64 in the graph.
Value* wide_ids(Build& b, Value* ids) { return b.op("aten.to", {ids}, {{"dtype", DType::i64}}); }

bool rank_2(const Match& m, const Pat& x) { return m[x]->type.rank() == 2; }

using Check = std::vector<std::pair<std::string, Type>>;
Check logits(DType d) { return {{"x", type(d, {5, 8})}}; }

Rewrite softmax_gate(const std::string& doc, const std::string& op, const Pat& x, const Pat& top,
                     const Pat& weights, const Attrs& attrs) {
  return rewrite(doc, op)
      .match(weights, result(top, 1))
      .when("logits are [T, E]", [=](const Match& m) { return rank_2(m, x); })
      .build([=](Build& b) {
        Attrs a = attrs;
        a.set("k", Sym(k_of(b, top)));
        Node* n = b.node(op, {logits_as(b, x, weights)}, a);
        return std::vector<Value*>{n->out(0), wide_ids(b, n->out(1))};
      })
      .check(logits(DType::f32))
      .check(logits(DType::bf16));
}

}  // namespace

Move fuse_moe_gate_softmax() {
  const Pat x = in("x");
  const std::string v1 = "npu.npu_moe_gating_top_k_softmax";
  const std::string v2 = "npu.npu_moe_gating_top_k_softmax_v2";
  const Pat all = softmax(x);
  const Pat best = top_k(all);
  const Pat best_logits = top_k(x);
  // softmax, top-k, division by the sum is top-k, softmax.
  Rewrite renormalised =
      softmax_gate("p = topk(softmax(x)); p / sum(p) -> npu_moe_gating_top_k_softmax_v2(renorm=1)",
                   v2, x, best, best / sum_last(best), {{"renorm", Sym(1)}});
  Rewrite top_first = softmax_gate("softmax(topk(x)) -> npu_moe_gating_top_k_softmax_v2(renorm=1)",
                                   v2, x, best_logits, softmax(best_logits), {{"renorm", Sym(1)}});
  Rewrite plain =
      softmax_gate("topk(softmax(x)) -> npu_moe_gating_top_k_softmax", v1, x, best, best, {});
  return move_of("fuse_moe_gate_softmax",
                 "softmax and top-k of router logits -> npu.npu_moe_gating_top_k_softmax(_v2)",
                 {renormalised, top_first, plain});
}

namespace {

struct Sigmoid {
  Pat x, bias, groups, in_group, group_top, top, weights;
};

Pat attr_free(const Pat& p, std::function<Node*(Builder&, const std::vector<Value*>&)> make) {
  return made_by(p.any_attrs(), std::move(make));
}

// The choices in groups that are not chosen become -inf. A group's score is the sum of its best.
Pat only_best_groups(Sigmoid* s, const Pat& choice) {
  s->groups = reshape(choice, [](const Type& t) { return SymDims{t.dim(0), 2, 4}; });
  s->in_group = top_k(s->groups);
  const Pat score = sum_last_dropped(s->in_group);
  s->group_top =
      result(attr_free(call("aten.topk", {score}),
                       [](Builder& b, const std::vector<Value*>& in) {
                         return b.node("aten.topk", in, {{"k", Sym(1)}, {"dim", Sym(-1)}});
                       }),
             1);
  const Pat zeros = call("aten.full_like", {score}, {{"fill_value", 0.0}});
  const Pat marks =
      made_by(call("aten.scatter", {zeros, s->group_top})
                  .that("ones along the last axis",
                        [](const Node& n) {
                          const Args a = n.args();
                          return is_last_axis(n) && a.has_attr("value") && a.f64("value") == 1.0;
                        }),
              [](Builder& b, const std::vector<Value*>& in) {
                return b.node("aten.scatter", in, {{"dim", Sym(1)}, {"value", Sym(1)}});
              });
  const Pat column = reshape(marks, [](const Type& t) { return SymDims{t.dim(0), t.dim(1), 1}; });
  const Pat wide =
      attr_free(call("aten.expand", {column}), [](Builder& b, const std::vector<Value*>& in) {
        return b.node("aten.expand", in, {{"size", SymDims{-1, 2, 4}}});
      });
  const Pat keep =
      call("aten.to", {reshape(wide, [](const Type& t) { return SymDims{t.dim(0), 8}; })},
           {{"dtype", DType::boolean}});
  return call("aten.masked_fill", {choice, unary("aten.bitwise_not", keep)},
              {{"value", -std::numeric_limits<double>::infinity()}});
}

// The weights are the scores of the chosen, without the bias, divided by their sum.
Sigmoid sigmoid_gate(bool grouped, const Const& eps) {
  Sigmoid s;
  s.x = in("x");
  s.bias = in("bias");
  const Pat scores = unary("aten.sigmoid", s.x);
  const Pat choice = scores + s.bias;
  s.top = result(top_k(grouped ? only_best_groups(&s, choice) : choice), 1);
  const Pat picked =
      made_by(call("aten.gather", {scores, s.top}).that("along the last axis", over_last_axis),
              [](Builder& b, const std::vector<Value*>& in) {
                return b.node("aten.gather", in, {{"dim", Sym(1)}});
              });
  const Pat sum = sum_last(picked);
  s.weights = picked / one_of({sum + eps, sum});
  return s;
}

Rewrite sigmoid_rewrite(bool grouped, bool scaled) {
  const Const eps = constant("eps", 1e-20);
  const Const factor = constant("factor", 2.5);
  const Sigmoid s = sigmoid_gate(grouped, eps);
  const Pat root = scaled ? s.weights * factor : s.weights;
  Rewrite r =
      rewrite(cat("sigmoid, bias for the choice", grouped ? ", groups" : "", ", top-k, division",
                  scaled ? ", factor" : "", " -> npu_moe_gating_top_k(norm_type=1)"),
              "npu.npu_moe_gating_top_k")
          .match(root, s.top)
          .when("logits are [T, E]", [=](const Match& m) { return rank_2(m, s.x); })
          .when("one bias per expert", [=](const Match& m) { return m[s.bias]->type.rank() == 1; });
  if (grouped)
    r.when("experts in equal groups, two of which count", [=](const Match& m) {
      const Type& g = m[s.groups]->type;
      return g.rank() == 3 && g.dim(1).is_const() && g.dim(2).is_const() &&
             g.dim(1) * g.dim(2) == m[s.x]->type.dim(1) && k_of(m, s.in_group) == 2;
    });
  r.build([=](Build& b) {
    const DType dtype = b[root]->type.dtype;
    Attrs attrs{{"k", Sym(k_of(b, s.top))}, {"norm_type", Sym(1)}};
    if (grouped) {
      attrs.set("group_count", b[s.groups]->type.dim(1));
      attrs.set("k_group", Sym(b.matched(s.group_top)->args().i64("k")));
      attrs.set("group_select_mode", Sym(1));
    }
    if (scaled) attrs.set("routed_scaling_factor", b.f64(factor));
    attrs.set("eps", b.has(eps) ? b.f64(eps) : 0.0);
    Node* n = b.node("npu.npu_moe_gating_top_k",
                     {as_dtype(b, b[s.x], dtype), as_dtype(b, b[s.bias], dtype)}, attrs);
    return std::vector<Value*>{n->out(0), wide_ids(b, n->out(1))};
  });
  r.check({{"x", type(DType::f32, {5, 8})}, {"bias", type(DType::f32, {8})}});
  return r;
}

}  // namespace

Move fuse_moe_gate() {
  return move_of("fuse_moe_gate",
                 "the sigmoid gate with a bias and groups -> npu.npu_moe_gating_top_k",
                 {sigmoid_rewrite(true, true), sigmoid_rewrite(true, false),
                  sigmoid_rewrite(false, true), sigmoid_rewrite(false, false)});
}

}  // namespace tk::fuse

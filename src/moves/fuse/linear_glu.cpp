// A gated unit after a product with merged weights, in one: for the CPU, whose kernels apply the
// gate before anything is stored.
#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {
namespace {

// The unit of a merged tensor, and the attributes of the fused operator that it becomes.
struct Unit {
  std::string formula;
  std::function<Pat(const Pat&)> of;
  std::function<Attrs(const Build&, const Pat&)> attrs;
};

bool over_last_axis(const Node& n) { return is_last_axis(n); }

std::vector<Unit> units() {
  return {
      {"npu_swiglu",
       [](const Pat& t) { return call("npu.npu_swiglu", {t}).that("last axis", over_last_axis); },
       [](const Build&, const Pat&) { return Attrs{}; }},
      {"npu_geglu",
       [](const Pat& t) {
         return made_by(call("npu.npu_geglu", {t})
                            .that("gelu of the first half of the last axis",
                                  [](const Node& n) {
                                    return is_last_axis(n) && n.args().flag("activate_left") &&
                                           n.out(1)->uses.empty();
                                  }),
                        [](Builder& b, const std::vector<Value*>& in) {
                          return b.node("npu.npu_geglu", in, {{"activate_left", true}});
                        });
       },
       [](const Build& b, const Pat& unit) {
         const bool tanh = b.matched(unit)->args().i64("approximate") == 1;
         return Attrs{{"act", std::string(tanh ? "gelu_tanh" : "gelu")}};
       }},
      {"npu_clipped_swiglu",
       [](const Pat& t) {
         return call("npu.npu_clipped_swiglu", {t}).that("last axis", over_last_axis);
       },
       [](const Build& b, const Pat& unit) {
         const Args a = b.matched(unit)->args();
         return Attrs{{"act", std::string("clipped")},
                      {"interleaved", a.flag("interleaved")},
                      {"limit", a.f64("limit")},
                      {"alpha", a.f64("alpha")},
                      {"up_offset", a.f64("bias")}};
       }},
  };
}

using Check = std::vector<std::pair<std::string, Type>>;

Rewrite dense(const Unit& unit, bool bias) {
  const Pat x = in("x");
  const Pat w = weight("w");
  const Pat c = bias ? weight("bias") : Pat();
  const Pat root = unit.of(call("aten.linear", {x, w, c}));
  Rewrite r = rewrite(cat(unit.formula, "(linear(x, w)) -> tk.linear_glu(x, w)"), "tk.linear_glu")
                  .match(root)
                  .build([=](Build& b) {
                    return std::vector<Value*>{b.op(
                        "tk.linear_glu", {b[x], b[w], bias ? b[c] : nullptr}, unit.attrs(b, root))};
                  });
  for (const DType d : {DType::f32, DType::bf16}) {
    Check types = {{"x", {d, {Sym::symbol("T"), 8}}}, {"w", type(d, {12, 8})}};
    if (bias) types.emplace_back("bias", type(d, {12}));
    r.check(types);
  }
  return r;
}

Rewrite grouped(const Unit& unit, bool bias) {
  const Pat x = in("x");
  const Pat w = weight("w");
  const Pat c = bias ? weight("bias") : Pat();
  const Pat counts = in("counts");
  const Pat root =
      unit.of(call("npu.npu_grouped_matmul", {x, w, c, counts},
                   {{"split_item", Sym(3)}, {"group_type", Sym(0)}, {"group_list_type", Sym(1)}}));
  Rewrite r = rewrite(cat(unit.formula, "(grouped_matmul(x, w)) -> tk.grouped_linear_glu(x, w)"),
                      "tk.grouped_linear_glu")
                  .match(root)
                  .build([=](Build& b) {
                    return std::vector<Value*>{b.op("tk.grouped_linear_glu",
                                                    {b[x], b[w], bias ? b[c] : nullptr, b[counts]},
                                                    unit.attrs(b, root))};
                  });
  for (const DType d : {DType::f32, DType::bf16}) {
    // Rows of the groups: 0, 1, 2.
    Check types = {
        {"x", type(d, {3, 8})}, {"w", type(d, {3, 8, 12})}, {"counts", type(DType::i64, {3})}};
    if (bias) types.emplace_back("bias", type(d, {3, 12}));
    r.check(types);
  }
  return r;
}

}  // namespace

Move fuse_linear_glu() {
  std::vector<Rewrite> all;
  for (const Unit& unit : units())
    for (const bool bias : {false, true}) {
      all.push_back(dense(unit, bias));
      all.push_back(grouped(unit, bias));
    }
  return move_of("fuse_linear_glu",
                 "the gated unit of a product with merged weights -> tk.linear_glu, "
                 "tk.grouped_linear_glu",
                 std::move(all));
}

}  // namespace tk::fuse

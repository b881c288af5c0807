// LayerNorm, and RMSNorm where the capture kept it whole.
#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {
namespace {

using Check = std::vector<std::pair<std::string, Type>>;

Rewrite norm(const std::string& op, bool has_weight, bool has_bias) {
  const Pat x = in("x");
  const Pat w = has_weight ? in("w") : Pat();
  const Pat c = has_bias ? in("bias") : Pat();
  const Pat root =
      made_by(call(op, {x, w, c}).any_attrs(), [op](Builder& b, const std::vector<Value*>& inputs) {
        return b.node(op, inputs, {{"normalized_shape", SymDims{8}}, {"eps", 1e-5}});
      });
  Rewrite r = rewrite(cat(op, " -> npu_layer_norm_eval"), "npu.npu_layer_norm_eval")
                  .match(root)
                  .build([=](Build& b) {
                    const Args a = b.matched(root)->args();
                    return std::vector<Value*>{b.op(
                        "npu.npu_layer_norm_eval",
                        {b[x], has_weight ? b[w] : nullptr, has_bias ? b[c] : nullptr},
                        {{"normalized_shape", a.syms("normalized_shape")}, {"eps", a.f64("eps")}})};
                  });
  for (const DType d : {DType::f32, DType::bf16}) {
    Check types = {{"x", {d, {Sym::symbol("T"), 8}}}};
    if (has_weight) types.emplace_back("w", type(d, {8}));
    if (has_bias) types.emplace_back("bias", type(d, {8}));
    r.check(types);
  }
  return r;
}

// Written out, without a bias: w * (x - mean) / sqrt(mean((x - mean)^2) + eps).
Rewrite written_out(bool cast_last) {
  const Pat x = in("x");
  const Pat w = in("w");
  const Const eps = constant("eps", 1e-5);
  const Pat wide = maybe_up(x);
  const Pat centred = wide - mean_last(wide);
  const Pat n = normed(centred, eps);
  const Pat root = cast_last ? cast(maybe_up(w) * n) : w * maybe_cast(n);
  return rewrite("w * (x - mean(x)) / sqrt(variance + eps) -> npu_layer_norm_eval(x, w)",
                 "npu.npu_layer_norm_eval")
      .match(root)
      .when("the weight spans the last axis",
            [=](const Match& m) {
              return m[w]->type.rank() == 1 && m[x]->type.rank() >= 1 &&
                     m[w]->type.shape[0] == m[x]->type.shape.back();
            })
      .build([=](Build& b) {
        return std::vector<Value*>{
            b.op("npu.npu_layer_norm_eval", {b[x], b[w]},
                 {{"normalized_shape", SymDims{b[w]->type.shape[0]}}, {"eps", b.f64(eps)}})};
      })
      .check({{"x", type(DType::f32, {2, 8})}, {"w", type(DType::f32, {8})}})
      .check({{"x", type(DType::bf16, {3, Sym::symbol("T"), 16})}, {"w", type(DType::bf16, {16})}});
}

}  // namespace

Move fuse_layer_norm() {
  std::vector<Rewrite> all;
  all.push_back(written_out(true));
  all.push_back(written_out(false));
  for (const char* op : {"aten.layer_norm", "aten.native_layer_norm"}) {
    all.push_back(norm(op, true, true));
    all.push_back(norm(op, true, false));
    all.push_back(norm(op, false, false));
  }
  return move_of("fuse_layer_norm",
                 "layer_norm(x, shape, w, b), whole or written out -> npu.npu_layer_norm_eval",
                 std::move(all));
}

}  // namespace tk::fuse

// RMSNorm in its spellings, with and without the sum in front of it.
#include "moves/fuse/moves.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {
namespace {

bool spans_last_axis(const Match& m, const Pat& w, const Pat& x) {
  return m[w]->type.rank() == 1 && m[x]->type.rank() >= 1 &&
         m[w]->type.shape[0] == m[x]->type.shape.back();
}

Rewrite norm(const std::string& doc, const std::string& op, const Pat& root, const Pat& w,
             const Pat& x, const Const& eps) {
  return rewrite(doc, op)
      .match(root)
      .when("the weight spans the last axis",
            [=](const Match& m) { return spans_last_axis(m, w, x); })
      .build([=](Build& b) {
        return std::vector<Value*>{b.op(op, {b[x], b[w]}, {{"epsilon", b.f64(eps)}})};
      })
      .check({{"w", type(DType::f32, {8})}, {"x", type(DType::f32, {2, 8})}})
      .check({{"w", type(DType::bf16, {16})}, {"x", type(DType::bf16, {3, 5, 16})}})
      .check({{"w", type(DType::f32, {16})}, {"x", type(DType::f32, {Sym::symbol("T"), 4, 16})}});
}

}  // namespace

Move fuse_rms_norm() {
  const Pat w = in("w");
  const Pat x = in("x");
  const Const eps = constant("eps", 1e-6);
  const Const one = constant("one", 1.0);
  const Pat n = normed(maybe_up(x), eps);

  // Gemma keeps w - 1 in the checkpoint.
  Rewrite gemma = norm("cast(x / sqrt(mean(x^2) + eps) * (1 + w)) -> npu_gemma_rms_norm(x, w)",
                       "npu.npu_gemma_rms_norm", maybe_cast(n * (maybe_up(w) + one)), w, x, eps);
  gemma.when("the number added to the weight is 1",
             [=](const Match& m) { return m.f64(one) == 1.0; });
  Rewrite late = norm("cast(w * x / sqrt(mean(x^2) + eps)) -> npu_rms_norm(x, w)",
                      "npu.npu_rms_norm", cast(maybe_up(w) * n), w, x, eps);
  Rewrite early = norm("w * cast(x / sqrt(mean(x^2) + eps)) -> npu_rms_norm(x, w)",
                       "npu.npu_rms_norm", w * maybe_cast(n), w, x, eps);
  // The capture kept it whole. Without eps it is the dtype's own, which the operator lacks.
  const Pat whole = made_by(
      call("aten.rms_norm", {x, w}).any_attrs(), [](Builder& b, const std::vector<Value*>& inputs) {
        const SymDims shape{inputs[0]->type.shape.back()};
        return b.node("aten.rms_norm", inputs, {{"normalized_shape", shape}, {"eps", 1e-6}});
      });
  Rewrite kept =
      rewrite("aten.rms_norm(x, w) -> npu_rms_norm(x, w)", "npu.npu_rms_norm")
          .match(whole)
          .when("eps is given",
                [=](const Match& m) { return m.node(whole)->args().has_attr("eps"); })
          .build([=](Build& b) {
            return std::vector<Value*>{b.op("npu.npu_rms_norm", {b[x], b[w]},
                                            {{"epsilon", b.matched(whole)->args().f64("eps")}})};
          })
          .check({{"w", type(DType::f32, {8})}, {"x", type(DType::f32, {2, 8})}})
          .check({{"w", type(DType::bf16, {16})}, {"x", type(DType::bf16, {3, 16})}});
  // Reported, not rewritten: the operator demands a weight, and one of ones is not assumed.
  Rewrite bare =
      rewrite("x / sqrt(mean(x^2) + eps), without a weight", "npu.npu_rms_norm").match(n).report();
  return move_of("fuse_rms_norm", "w * x / sqrt(mean(x^2) + eps) -> npu.npu_rms_norm(x, w, eps)",
                 {gemma, late, early, kept, bare});
}

Move fuse_add_rms_norm() {
  const Pat w = in("w");
  const Pat known = weight("w");
  const Pat a = in("a");
  const Pat b = in("b");
  const Const eps = constant("eps", 1e-6);
  const Pat s = a + b;  // the second root: used outside as well
  const std::vector<std::pair<std::string, Type>> f32_types = {{"a", type(DType::f32, {2, 8})},
                                                               {"b", type(DType::f32, {2, 8})},
                                                               {"w", type(DType::f32, {8})}};
  const std::vector<std::pair<std::string, Type>> bf16_types = {
      {"a", type(DType::bf16, {3, 5, 16})},
      {"b", type(DType::bf16, {3, 5, 16})},
      {"w", type(DType::bf16, {16})}};
  auto same = [=](const Match& m) { return m[a]->type == m[b]->type; };

  Rewrite plain =
      rewrite("s = a + b; npu_rms_norm(s, w) -> npu_add_rms_norm(a, b, w), s kept",
              "npu.npu_add_rms_norm")
          .match(call("npu.npu_rms_norm", {s, w}, {{"epsilon", eps}}), s)
          .when("both are of one type", same)
          .build([=](Build& m) {
            Node* n = m.node("npu.npu_add_rms_norm", {m[a], m[b], m[w]}, {{"epsilon", m.f64(eps)}});
            return std::vector<Value*>{n->out(0), n->out(2)};
          })
          .check(f32_types)
          .check(bf16_types);
  // There is no fused operator with 1 + w: the weight is prepared once, in f32.
  Rewrite gemma =
      rewrite("s = a + b; npu_gemma_rms_norm(s, w) -> npu_add_rms_norm(a, b, 1 + w), s kept",
              "npu.npu_add_rms_norm")
          .match(call("npu.npu_gemma_rms_norm", {s, known}, {{"epsilon", eps}}), s)
          .when("both are of one type", same)
          .build([=](Build& m) {
            Value* gamma = m.op("aten.add", {as_dtype(m, m[known], DType::f32)}, {{"other", 1.0}});
            Node* n =
                m.node("npu.npu_add_rms_norm", {m[a], m[b], gamma}, {{"epsilon", m.f64(eps)}});
            return std::vector<Value*>{n->out(0), n->out(2)};
          })
          .check(f32_types)
          .check(bf16_types);
  return move_of("fuse_add_rms_norm", "s = a + b; rms_norm(s, w) -> npu.npu_add_rms_norm, s kept",
                 {plain, gemma});
}

}  // namespace tk::fuse

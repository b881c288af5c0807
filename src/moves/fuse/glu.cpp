// Gated linear units: SwiGLU, GeGLU and the clamped form, of one merged tensor or of two linears,
// whose weights are merged then.
#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {
namespace {

using Check = std::vector<std::pair<std::string, Type>>;
Check merged_f32() { return {{"t", type(DType::f32, {2, 8})}}; }
Check merged_bf16() { return {{"t", type(DType::bf16, {3, Sym::symbol("S"), 16})}}; }
Check linear_check(DType dtype, bool bias) {
  Check c = {
      {"x", type(dtype, {3, 8})}, {"gate", type(dtype, {6, 8})}, {"up", type(dtype, {6, 8})}};
  if (bias) {
    c.emplace_back("gate_bias", type(dtype, {6}));
    c.emplace_back("up_bias", type(dtype, {6}));
  }
  return c;
}

// What a gate function becomes.
struct Gate {
  Pat (*of)(const Pat&);
  const char* formula;
  const char* op;
  Value* (*build)(Build&, Value* merged);
};

Pat silu(const Pat& x) { return unary("aten.silu", x); }
// x * sigmoid(x), as some models write it.
Pat silu_spelt_out(const Pat& x) { return x * unary("aten.sigmoid", x); }
Pat gelu_erf(const Pat& x) {
  return call("aten.gelu", {x}, {{"approximate", std::string("none")}});
}
Pat gelu_tanh(const Pat& x) {
  return call("aten.gelu", {x}, {{"approximate", std::string("tanh")}});
}
Pat any_silu(const Pat& x) { return one_of({silu(x), silu_spelt_out(x)}); }

Value* swiglu(Build& b, Value* merged) { return b.op("npu.npu_swiglu", {merged}); }
// gelu of the first half: npu_geglu's own order is the other one.
Value* geglu(Build& b, Value* merged, int approximate) {
  return b.op("npu.npu_geglu", {merged},
              {{"approximate", Sym(approximate)}, {"activate_left", true}});
}
Value* geglu_erf(Build& b, Value* merged) { return geglu(b, merged, 0); }
Value* geglu_tanh(Build& b, Value* merged) { return geglu(b, merged, 1); }

Rewrite of_halves(const Gate& gate) {
  const Pat t = in("t");
  return rewrite(cat(gate.formula, "(t[:n/2]) * t[n/2:] -> ", gate.op, "(t)"), gate.op)
      .match(gate.of(half(t, 0)) * half(t, 1))
      .build([=](Build& b) { return std::vector<Value*>{gate.build(b, b[t])}; })
      .check(merged_f32())
      .check(merged_bf16());
}

Rewrite of_linears(const Gate& gate, bool bias) {
  const Pat x = in("x");
  const Pat wg = weight("gate");
  const Pat wu = weight("up");
  const Pat bg = bias ? weight("gate_bias") : Pat();
  const Pat bu = bias ? weight("up_bias") : Pat();
  return rewrite(cat(gate.formula, "(linear(x, gate)) * linear(x, up) -> ", gate.op,
                     "(linear(x, cat(gate, up)))"),
                 gate.op)
      .match(gate.of(call("aten.linear", {x, wg, bg})) * call("aten.linear", {x, wu, bu}))
      .when("the weights are alike",
            [=](const Match& m) {
              return m[wg]->type == m[wu]->type && (!bias || m[bg]->type == m[bu]->type);
            })
      .build([=](Build& b) {
        // The gate first: the fused operator gates by the first half.
        Value* w = b.op("aten.cat", {b[wg], b[wu]}, {{"dim", Sym(0)}});
        Value* c = bias ? b.op("aten.cat", {b[bg], b[bu]}, {{"dim", Sym(0)}}) : nullptr;
        return std::vector<Value*>{gate.build(b, b.op("aten.linear", {b[x], w, c}))};
      })
      .check(linear_check(DType::f32, bias))
      .check(linear_check(DType::bf16, bias));
}

Move gated(const std::string& name, const std::vector<Gate>& gates) {
  std::vector<Rewrite> all;
  for (const Gate& g : gates) {
    all.push_back(of_halves(g));
    all.push_back(of_linears(g, false));
    all.push_back(of_linears(g, true));
  }
  return move_of(name, cat(gates[0].formula, "(gate) * up -> ", gates[0].op, ", weights merged"),
                 std::move(all));
}

}  // namespace

Move fuse_swiglu() { return gated("fuse_swiglu", {{any_silu, "silu", "npu.npu_swiglu", swiglu}}); }

Move fuse_geglu() {
  return gated("fuse_geglu", {{gelu_tanh, "gelu_tanh", "npu.npu_geglu", geglu_tanh},
                              {gelu_erf, "gelu", "npu.npu_geglu", geglu_erf}});
}

// GPT-OSS: g = min(gate, limit), u = clamp(up, -limit, limit), (u + 1) * g * sigmoid(alpha * g).
Move fuse_clipped_swiglu() {
  std::vector<Rewrite> all;
  for (const bool interleaved : {true, false}) {
    const Pat t = in("t");
    const Const limit = constant("limit", 7.0);
    const Const low = constant("low", -7.0);
    const Const alpha = constant("alpha", 1.702);
    const Const bias = constant("bias", 1.0);
    const Pat gate = interleaved ? stride2(t, 0) : half(t, 0);
    const Pat up = interleaved ? stride2(t, 1) : half(t, 1);
    const Pat g = call("aten.clamp", {gate}, {{"max", limit}});
    const Pat u = call("aten.clamp", {up}, {{"min", low}, {"max", limit}});
    all.push_back(rewrite("(clamp(up) + bias) * g * sigmoid(alpha * g), g = min(gate, limit) -> "
                          "npu_clipped_swiglu(t)",
                          "npu.npu_clipped_swiglu")
                      .match((u + bias) * (g * unary("aten.sigmoid", g * alpha)))
                      .when("up is clamped to -limit, limit",
                            [=](const Match& m) { return m.f64(low) == -m.f64(limit); })
                      .build([=](Build& b) {
                        return std::vector<Value*>{b.op("npu.npu_clipped_swiglu", {b[t]},
                                                        {{"alpha", b.f64(alpha)},
                                                         {"limit", b.f64(limit)},
                                                         {"bias", b.f64(bias)},
                                                         {"interleaved", interleaved}})};
                      })
                      .check(merged_f32())
                      .check(merged_bf16()));
  }
  return move_of("fuse_clipped_swiglu", "the clamped SwiGLU -> npu.npu_clipped_swiglu(t)",
                 std::move(all));
}

}  // namespace tk::fuse

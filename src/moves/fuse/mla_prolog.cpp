// What stands before MLA's attention, in one call: the latent's norm, the rotation of its rope part
// and both cache writes; and with the query's down- and up-projection and its absorbed half, the
// whole prologue.
#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {
namespace {

using ShapeOf = std::function<SymDims(const Type&)>;

// One reshape of x, or two as they are left when shapes are made for an operator.
Pat views(const Pat& x, const ShapeOf& shape) {
  return one_of({reshape(reshape(x, shape), shape), reshape(x, shape)});
}

// The first part of x's last axis, of any length (0), or what is behind it (1).
Pat cut(const Pat& x, int which, std::int64_t sample) {
  const Pat slice =
      call("aten.slice", {x})
          .that(which == 0 ? "the first part of the last axis" : "the rest of the last axis",
                [which](const Node& n) {
                  const Args a = n.args();
                  if (!is_last_axis(n) || !a.sym("step").is(1)) return false;
                  if (which == 0) return a.sym("start").is(0);
                  return a.sym("end") == n.inputs[0]->type.shape.back();
                })
          .may_escape();
  return made_by(slice, [=](Builder& b, const std::vector<Value*>& in) {
    const Sym end = in[0]->type.shape.back();
    const Sym at = which == 0 ? Sym(sample) : end - Sym(sample);
    return b.node("aten.slice", in,
                  {{"dim", Sym(in[0]->type.rank() - 1)},
                   {"start", which == 0 ? Sym(0) : at},
                   {"end", which == 0 ? at : end}});
  });
}

Value* shaped(Build& b, Value* v, const SymDims& shape) {
  return v->type.shape == shape ? v : b.op("aten.reshape", {v}, {{"shape", shape}});
}

const ShapeOf with_head = [](const Type& t) {  // [T, D] as [T, 1, D]
  return t.rank() == 2 ? SymDims{t.dim(0), 1, t.dim(1)} : t.shape;
};
const ShapeOf as_call = [](const Type& t) {  // [T, D] as [1, T, 1, D]
  return t.rank() == 2 ? SymDims{1, t.dim(0), 1, t.dim(1)} : t.shape;
};
const ShapeOf from_call = [](const Type& t) {  // [1, T, 1, D] as [T, 1, D]
  return t.rank() == 4 ? SymDims{t.dim(0) * t.dim(1), t.dim(2), t.dim(3)} : t.shape;
};

// From [tokens, latent + rope] to the two caches. What goes there may be used by this step too.
struct LatentChain {
  Pat kv, gamma, cos, sin, slots, latent_cache, rope_cache;
  Pat latent, rope, latent_write, rope_write;
  Const epsilon;
};

LatentChain latent_chain(const Pat& kv, const Pat& cos, const Pat& sin) {
  const Const epsilon = constant("epsilon", 1e-5);
  const Pat gamma = in("gamma");
  const Pat slots = in("slots");
  const Pat latent_cache = in("latent_cache");
  const Pat rope_cache = in("rope_cache");
  const Pat latent =
      views(call("npu.npu_rms_norm", {cut(kv, 0, 6), gamma}, {{"epsilon", epsilon}}), with_head);
  const Pat rope =
      views(call("npu.npu_interleave_rope",
                 {views(cut(kv, 1, 4), as_call), views(cos, as_call), views(sin, as_call)}),
            from_call);
  return {kv,
          gamma,
          cos,
          sin,
          slots,
          latent_cache,
          rope_cache,
          latent,
          rope,
          call("tk.cache_write", {latent_cache, latent, slots}),
          call("tk.cache_write", {rope_cache, rope, slots}),
          epsilon};
}

bool parts_cover(const Match& m, const LatentChain& c) {
  const Sym rope = m[c.rope]->type.shape.back();
  return m[c.kv]->type.rank() == 2 &&
         m[c.kv]->type.shape.back() == m[c.latent]->type.shape.back() + rope &&
         m[c.cos]->type.numel() == m[c.kv]->type.dim(0) * rope &&
         m[c.sin]->type.numel() == m[c.cos]->type.numel();
}

constexpr std::int64_t fractal_nz = 29;

// A weight [out, in] of a linear as [in, out] in the format that the cube reads.
Value* as_nz(Build& b, Value* w) {
  Value* turned = b.op("aten.permute", {w}, {{"dims", SymDims{1, 0}}});
  return b.op("npu.npu_format_cast", {turned}, {{"acl_format", Sym(fractal_nz)}});
}

}  // namespace

// FS-C04. One request of all tokens: slots say where each goes.
Move fuse_latent_cache() {
  const LatentChain c = latent_chain(in("kv"), in("cos"), in("sin"));
  const auto used_elsewhere = [](const Value* v) { return v->uses.size() > 1; };
  Rewrite r = rewrite(
                  "rms_norm, interleave_rope and tk.cache_write of MLA's latent and rope part -> "
                  "npu_kv_rmsnorm_rope_cache",
                  "npu.npu_kv_rmsnorm_rope_cache")
                  .match(c.latent_write, c.rope_write, c.latent, c.rope)
                  .when("the latent and its rope part make up the row",
                        [=](const Match& m) { return parts_cover(m, c); })
                  .build([=](Build& b) {
                    const Sym tokens = b[c.kv]->type.dim(0);
                    const auto row = [&](const Pat& p, const Sym& size) {
                      return shaped(b, b[p], SymDims{1, 1, tokens, size});
                    };
                    const Sym rope = b[c.rope]->type.shape.back();
                    Attrs attrs{{"epsilon", b.f64(c.epsilon)}, {"cache_mode", std::string("PA")}};
                    if (used_elsewhere(b[c.latent]) || used_elsewhere(b[c.rope]))
                      attrs.set("is_output_kv", true);
                    Node* n =
                        b.node("npu.npu_kv_rmsnorm_rope_cache",
                               {row(c.kv, b[c.kv]->type.dim(1)), b[c.gamma], row(c.cos, rope),
                                row(c.sin, rope), b[c.slots], b[c.rope_cache], b[c.latent_cache]},
                               std::move(attrs));
                    return std::vector<Value*>{n->out(1), n->out(0),
                                               shaped(b, n->out(3), b[c.latent]->type.shape),
                                               shaped(b, n->out(2), b[c.rope]->type.shape)};
                  })
                  .check({{"kv", type(DType::f32, {5, 10})},
                          {"gamma", type(DType::f32, {6})},
                          {"cos", type(DType::f32, {5, 4})},
                          {"sin", type(DType::f32, {5, 4})},
                          {"slots", type(DType::i64, {5})},
                          {"latent_cache", type(DType::f32, {3, 4, 1, 6})},
                          {"rope_cache", type(DType::f32, {3, 4, 1, 4})}});
  return move_of("fuse_latent_cache",
                 "norm, rotation and cache writes of MLA's latent -> "
                 "npu.npu_kv_rmsnorm_rope_cache",
                 {r});
}

// FS-A07. Its query is the absorbed one, so this is for a step that attends to the latent.
Move fuse_mla_prolog() {
  const Pat x = in("x");
  const Pat w_dq = weight("w_dq");
  const Pat w_uq_qr = weight("w_uq_qr");
  const Pat w_uk = weight("w_uk");
  const Pat w_dkv_kr = weight("w_dkv_kr");
  const Pat gamma_q = in("gamma_q");
  const Pat cos = in("cos");
  const Pat sin = in("sin");
  const Const epsilon_q = constant("epsilon_q", 1e-5);
  const LatentChain c = latent_chain(call("aten.linear", {x, w_dkv_kr}), cos, sin);

  const ShapeOf heads = [](const Type& t) {  // [T, 2 * D] as [T, 2, D]
    if (t.rank() != 2) return t.shape;
    return SymDims{t.dim(0), 2, Sym(t.dim(1).value() / 2)};
  };
  const ShapeOf head_call = [](const Type& t) {  // [T, H, D] as [T, H, 1, D], tables [T, 1, 1, D]
    if (t.rank() == 2) return SymDims{t.dim(0), 1, 1, t.dim(1)};
    return t.rank() == 3 ? SymDims{t.dim(0), t.dim(1), 1, t.dim(2)} : t.shape;
  };
  const ShapeOf head_rows = [](const Type& t) {
    return t.rank() == 4 ? SymDims{t.dim(0), t.dim(1), t.dim(3)} : t.shape;
  };
  const Pat norm =
      call("npu.npu_rms_norm", {call("aten.linear", {x, w_dq}), gamma_q}, {{"epsilon", epsilon_q}});
  const Pat q = views(call("aten.linear", {norm, w_uq_qr}), heads);
  const SymDims heads_first{1, 0, 2};
  const Pat query = call("npu.npu_transpose_batchmatmul", {cut(q, 0, 8), w_uk},
                         {{"perm_x1", heads_first}, {"perm_y", heads_first}});
  const Pat query_rope =
      views(call("npu.npu_interleave_rope",
                 {views(cut(q, 1, 4), head_call), views(cos, head_call), views(sin, head_call)}),
            head_rows);
  Rewrite r = rewrite(
                  "MLA's projections, norms, rotations, absorbed query and cache writes -> "
                  "npu_mla_prolog_v3",
                  "npu.npu_mla_prolog_v3")
                  .match(query, query_rope, c.latent_write, c.rope_write)
                  .when("the latent and its rope part make up the row",
                        [=](const Match& m) { return parts_cover(m, c); })
                  .when("packed tokens", [=](const Match& m) { return m[x]->type.rank() == 2; })
                  .build([=](Build& b) {
                    const SymDims row{b[x]->type.dim(0), b[c.rope]->type.shape.back()};
                    Node* n = b.node(
                        "npu.npu_mla_prolog_v3",
                        {b[x], as_nz(b, b[w_dq]), as_nz(b, b[w_uq_qr]), b[w_uk],
                         as_nz(b, b[w_dkv_kr]), b[gamma_q], b[c.gamma], shaped(b, b[sin], row),
                         shaped(b, b[cos], row), b[c.latent_cache], b[c.rope_cache], b[c.slots]},
                        {{"rmsnorm_epsilon_cq", b.f64(epsilon_q)},
                         {"rmsnorm_epsilon_ckv", b.f64(c.epsilon)},
                         {"cache_mode", std::string("PA_BSND")}});
                    return std::vector<Value*>{n->out(0), n->out(1), n->out(5), n->out(6)};
                  })
                  .check({{"x", type(DType::f32, {5, 12})},
                          {"w_dq", type(DType::f32, {7, 12})},
                          {"w_uq_qr", type(DType::f32, {24, 7})},  // 2 heads of 8 + 4
                          {"w_uk", type(DType::f32, {2, 8, 6})},
                          {"w_dkv_kr", type(DType::f32, {10, 12})},  // 6 + 4
                          {"gamma_q", type(DType::f32, {7})},
                          {"gamma", type(DType::f32, {6})},
                          {"cos", type(DType::f32, {5, 4})},
                          {"sin", type(DType::f32, {5, 4})},
                          {"slots", type(DType::i64, {5})},
                          {"latent_cache", type(DType::f32, {3, 4, 1, 6})},
                          {"rope_cache", type(DType::f32, {3, 4, 1, 4})}});
  return move_of("fuse_mla_prolog",
                 "all that is before MLA's attention over the latent -> npu.npu_mla_prolog_v3", {r},
                 Phases::decode);
}

}  // namespace tk::fuse

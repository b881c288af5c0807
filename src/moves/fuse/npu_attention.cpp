// Attention over the cache by torch_npu, in the layouts that its kernels take, and the forms around
// it: keys of the step itself, keys and values written by one call.
#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/npu_parts.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {
namespace {

constexpr std::string_view fia = "npu.npu_fused_infer_attention_score_v2";

}  // namespace

// A prompt's own keys and values, before they go to the cache: no table, no gather. For prompts
// that start at position 0.
Move attend_own_keys() {
  const Pat q = in("q");
  const Pat k = in("k");
  const Pat v = in("v");
  const Pat k_cache = in("k_cache");
  const Pat v_cache = in("v_cache");
  const Pat slots = in("slots");
  const Pat table = in("table");
  const Pat q_lens = in("q_lens");
  const Pat kv_lens = in("kv_lens");
  const Pat sinks = in("sinks");
  std::vector<Rewrite> all;
  for (const bool with_sinks : {false, true}) {
    const Pat root = made_by(
        call("tk.paged_attention", {q, call("tk.cache_write", {k_cache, k, slots}),
                                    call("tk.cache_write", {v_cache, v, slots}), table, q_lens,
                                    kv_lens, Pat(), Pat(), with_sinks ? sinks : Pat()})
            .any_attrs(),
        [](Builder& b, const std::vector<Value*>& inputs) {
          return b.node("tk.paged_attention", inputs, {{"scale", 0.3}});
        });
    all.push_back(
        rewrite("tk.paged_attention over what was just written -> FIA v2 of the step's own k, v",
                std::string(fia))
            .match(root)
            .when("no softcap, no chunks: the operator has neither",
                  [=](const Match& m) { return has_operator(m.node(root)->args()); })
            .build([=](Build& b) {
              const Args a = b.matched(root)->args();
              Attrs attrs = mask_attrs(a, {{"num_query_heads", b[q]->type.dim(1)},
                                           {"num_key_value_heads", b[k]->type.dim(1)},
                                           {"softmax_scale", a.f64("scale")},
                                           {"input_layout", std::string("TND")}});
              return std::vector<Value*>{
                  b.op(fia,
                       {b[q], b[k], b[v], nullptr, nullptr,
                        a.text("mask") == "full" ? nullptr : triangle(b), b[q_lens], b[q_lens],
                        nullptr, with_sinks ? b[sinks] : nullptr},
                       std::move(attrs))};
            }));
    std::vector<std::pair<std::string, Type>> types = {
        {"q", type(DType::f32, {5, 4, 8})},          {"k", type(DType::f32, {5, 2, 8})},
        {"v", type(DType::f32, {5, 2, 8})},          {"k_cache", type(DType::f32, {3, 4, 2, 8})},
        {"v_cache", type(DType::f32, {3, 4, 2, 8})}, {"slots", type(DType::i64, {5})},
        {"table", type(DType::i32, {1, 2})},         {"q_lens", type(DType::i32, {1})},
        {"kv_lens", type(DType::i32, {1})}};
    if (with_sinks) types.emplace_back("sinks", type(DType::f32, {4}));
    all.back().check(types);
  }
  return move_of("attend_own_keys",
                 "attention of a whole prompt over the cache -> over its own keys and values",
                 std::move(all), Phases::prefill);
}

// The same for MLA: the step's own latent is expanded to keys and values, once, and the rope part
// stays apart.
Move attend_own_latent() {
  const Pat q = in("q_nope");
  const Pat q_rope = in("q_rope");
  const Pat latent = in("latent");
  const Pat rope = in("rope");
  const Pat latent_cache = in("latent_cache");
  const Pat rope_cache = in("rope_cache");
  const Pat w = weight("kv_b");
  const Pat slots = in("slots");
  const Pat table = in("table");
  const Pat q_lens = in("q_lens");
  const Pat kv_lens = in("kv_lens");
  const Pat root =
      made_by(call("tk.mla_paged_attention",
                   {q, q_rope, call("tk.cache_write", {latent_cache, latent, slots}),
                    call("tk.cache_write", {rope_cache, rope, slots}), w, table, q_lens, kv_lens})
                  .any_attrs(),
              [](Builder& b, const std::vector<Value*>& inputs) {
                return b.node("tk.mla_paged_attention", inputs, {{"scale", 0.3}});
              });
  Rewrite r =
      rewrite(
          "tk.mla_paged_attention over what was just written -> expand, FIA v2 with a rope part",
          std::string(fia))
          .match(root)
          .when("no softcap, no chunks: the operator has neither",
                [=](const Match& m) { return has_operator(m.node(root)->args()); })
          .build([=](Build& b) {
            const Args a = b.matched(root)->args();
            const SymDims& query = b[q]->type.shape;
            const Sym tokens = query[0];
            const Sym heads = query[1];
            const Sym nope = query[2];
            const Sym v_dim = b[root]->type.dim(2);
            const Sym rope_dim = b[q_rope]->type.dim(2);
            Value* rows = b.op("aten.reshape", {b[latent]},
                               {{"shape", SymDims{tokens, b[latent]->type.shape.back()}}});
            Value* expanded = b.op("aten.reshape", {b.op("aten.linear", {rows, b[w]})},
                                   {{"shape", SymDims{tokens, heads, nope + v_dim}}});
            Value* key =
                b.op("aten.slice", {expanded}, {{"dim", Sym(2)}, {"start", Sym(0)}, {"end", nope}});
            Value* value = b.op("aten.slice", {expanded},
                                {{"dim", Sym(2)}, {"start", nope}, {"end", nope + v_dim}});
            Value* key_rope =
                b.op("aten.expand", {b[rope]}, {{"size", SymDims{tokens, heads, rope_dim}}});
            Attrs attrs = mask_attrs(a, {{"num_query_heads", heads},
                                         {"num_key_value_heads", heads},
                                         {"softmax_scale", a.f64("scale")},
                                         {"input_layout", std::string("TND")}});
            return std::vector<Value*>{
                b.op(fia,
                     {b[q], key, value, b[q_rope], key_rope,
                      a.text("mask") == "full" ? nullptr : triangle(b), b[q_lens], b[q_lens]},
                     std::move(attrs))};
          })
          .check({{"q_nope", type(DType::f32, {5, 2, 8})},
                  {"q_rope", type(DType::f32, {5, 2, 4})},
                  {"latent", type(DType::f32, {5, 1, 6})},
                  {"rope", type(DType::f32, {5, 1, 4})},
                  {"latent_cache", type(DType::f32, {3, 4, 1, 6})},
                  {"rope_cache", type(DType::f32, {3, 4, 1, 4})},
                  {"kv_b", type(DType::f32, {28, 6})},  // 2 heads of 8 + 6
                  {"slots", type(DType::i64, {5})},
                  {"table", type(DType::i32, {1, 2})},
                  {"q_lens", type(DType::i32, {1})},
                  {"kv_lens", type(DType::i32, {1})}});
  return move_of("attend_own_latent",
                 "MLA of a whole prompt over the cache -> over its own expanded latent", {r},
                 Phases::prefill);
}

// One query a sequence, heads before it: the layout of the incremental kernel, which takes head
// dims that the packed one does not.
Move attend_bnsd() {
  const Pat q = in("q");
  const Pat k = in("k");
  const Pat v = in("v");
  const Pat table = in("table");
  const Pat q_lens = in("q_ends");
  const Pat kv_lens = in("kv_lens");
  const Pat root =
      made_by(call("tk.paged_attention", {q, k, v, table, q_lens, kv_lens, Pat(), Pat(), Pat()})
                  .any_attrs(),
              [](Builder& b, const std::vector<Value*>& inputs) {
                return b.node("tk.paged_attention", inputs, {{"scale", 0.3}});
              });
  Rewrite r =
      rewrite("tk.paged_attention, one query a sequence -> FIA v2, BNSD, paged", std::string(fia))
          .match(root)
          .when("no softcap, no chunks: the operator has neither",
                [=](const Match& m) { return has_operator(m.node(root)->args()); })
          .when("no window: with one query the operator ignores it [KV-36]",
                [=](const Match& m) { return m.node(root)->args().text("mask") != "window"; })
          .build([=](Build& b) {
            const Args a = b.matched(root)->args();
            const SymDims& query = b[q]->type.shape;
            const SymDims& cache = b[k]->type.shape;
            const Sym v_dim = b[v]->type.dim(3);
            Value* one =
                b.op("aten.reshape", {b[q]}, {{"shape", SymDims{query[0], query[1], 1, query[2]}}});
            Value* out = b.op(fia,
                              {one, flat_cache(b, b[k]), flat_cache(b, b[v]), nullptr, nullptr,
                               nullptr, nullptr, b[kv_lens], b[table]},
                              {{"num_query_heads", query[1]},
                               {"num_key_value_heads", cache[2]},
                               {"softmax_scale", a.f64("scale")},
                               {"input_layout", std::string("BNSD")},
                               {"block_size", cache[1]}});
            return std::vector<Value*>{
                b.op("aten.reshape", {out}, {{"shape", SymDims{query[0], query[1], v_dim}}})};
          })
          .check({{"q", type(DType::f32, {2, 4, 8})},
                  {"k", type(DType::f32, {4, 4, 2, 8})},
                  {"v", type(DType::f32, {4, 4, 2, 8})},
                  {"table", type(DType::i32, {2, 2})},
                  {"q_ends", type(DType::i32, {2})},
                  {"kv_lens", type(DType::i32, {2})}});
  return move_of("attend_bnsd",
                 "tk.paged_attention of a decode step -> npu_fused_infer_attention_score_v2, BNSD",
                 {r}, Phases::decode);
}

// Keys and values of a layer go to their slots by one call.
Move write_cache_pair() {
  const Pat k_cache = in("k_cache");
  const Pat v_cache = in("v_cache");
  const Pat k = in("k");
  const Pat v = in("v");
  const Pat slots = in("slots");
  Rewrite r = rewrite("tk.cache_write of k and of v -> npu_scatter_pa_kv_cache",
                      "npu.npu_scatter_pa_kv_cache")
                  .match(call("tk.cache_write", {k_cache, k, slots}),
                         call("tk.cache_write", {v_cache, v, slots}))
                  .when("keys and values of the same heads",
                        [=](const Match& m) { return m[k]->type.dim(1) == m[v]->type.dim(1); })
                  .build([=](Build& b) {
                    Node* n = b.node(
                        "npu.npu_scatter_pa_kv_cache",
                        {b[k], b[v], b[k_cache], b[v_cache], as_dtype(b, b[slots], DType::i32)},
                        {{"cache_mode", std::string("Norm")}});
                    return std::vector<Value*>{n->out(0), n->out(1)};
                  })
                  .check({{"k_cache", type(DType::f32, {3, 4, 2, 8})},
                          {"v_cache", type(DType::f32, {3, 4, 2, 8})},
                          {"k", type(DType::f32, {5, 2, 8})},
                          {"v", type(DType::f32, {5, 2, 8})},
                          {"slots", type(DType::i64, {5})}});
  return move_of("write_cache_pair", "tk.cache_write of k and of v -> npu.npu_scatter_pa_kv_cache",
                 {r});
}

}  // namespace tk::fuse

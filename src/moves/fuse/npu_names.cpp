// For an NPU alone: what the CPU runs as tk operators under torch_npu's names. On the CPU
// tk.paged_attention and tk.cache_write are the fused operators already: they have kernels of
// their own, which read the cache as it lies and need no mask.
#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/npu_parts.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {

Value* flat_cache(Build& b, Value* cache) {
  const SymDims& s = cache->type.shape;
  return b.op("aten.reshape", {cache}, {{"shape", SymDims{s[0], s[1], s[2] * s[3]}}});
}

bool has_operator(const Args& attention) {
  return attention.f64("softcap") == 0.0 && attention.text("mask") != "chunk";
}

Attrs mask_attrs(const Args& attention, Attrs attrs) {
  const std::string& mask = attention.text("mask");
  const bool window = mask == "window";
  attrs.set("sparse_mode", Sym(mask == "full" ? 0 : window ? 4 : 3));
  if (window) {
    attrs.set("pre_tokens", Sym(attention.i64("window") - 1));
    attrs.set("next_tokens", Sym(0));
  }
  return attrs;
}

Value* triangle(Build& b) {
  for (Node* n = b.graph.first(); n != nullptr && n != b.before; n = n->next)
    if (n->is("aten.triu") && n->out()->type.shape == SymDims{2048, 2048} &&
        n->args().i64("diagonal") == 1 && n->inputs[0]->node != nullptr &&
        n->inputs[0]->node->is("aten.full") && n->out()->type.dtype == DType::boolean)
      return n->out();
  Value* ones =
      b.op("aten.full", {},
           {{"size", SymDims{2048, 2048}}, {"fill_value", true}, {"dtype", DType::boolean}});
  return b.op("aten.triu", {ones}, {{"diagonal", Sym(1)}});
}

Move name_cache_write() {
  const Pat cache = in("cache");
  const Pat states = in("states");
  const Pat slots = in("slots");
  Rewrite r =
      rewrite("tk.cache_write(cache, states, slots) -> npu_scatter_nd_update_ of the cache's rows",
              "npu.npu_scatter_nd_update_")
          .match(call("tk.cache_write", {cache, states, slots}))
          .build([=](Build& b) {
            const SymDims& s = b[cache]->type.shape;
            Value* rows =
                b.op("aten.reshape", {b[cache]}, {{"shape", SymDims{s[0] * s[1], s[2], s[3]}}});
            Value* indices =
                b.op("aten.reshape", {b[slots]}, {{"shape", SymDims{b[slots]->type.dim(0), 1}}});
            Value* written = b.op("npu.npu_scatter_nd_update_", {rows, indices, b[states]});
            return std::vector<Value*>{b.op("aten.reshape", {written}, {{"shape", s}})};
          })
          .check({{"cache", type(DType::f32, {3, 4, 2, 8})},
                  {"states", type(DType::f32, {5, 2, 8})},
                  {"slots", type(DType::i64, {5})}});
  return move_of("name_cache_write", "tk.cache_write -> npu.npu_scatter_nd_update_", {r});
}

Move name_attention() {
  const Pat q = in("q");
  const Pat k = in("k");
  const Pat v = in("v");
  const Pat table = in("table");
  const Pat any_lens = in("q_lens");
  const Pat one_each = in("q_ends");
  const Pat kv_lens = in("kv_lens");
  const Pat sinks = in("sinks");
  const Pat q_rope = in("q_rope");
  const Pat k_rope = in("k_rope");
  struct Form {
    bool sinks, rope, window;
  };
  std::vector<Rewrite> all;
  for (const Form f :
       {Form{false, false, false}, Form{true, false, false}, Form{false, true, false},
        Form{false, false, true}, Form{true, false, true}}) {
    // Over the latent the operator takes one query a sequence without a mask, and no other way.
    const Pat q_lens = f.rope ? one_each : any_lens;
    const Pat root = made_by(
        call("tk.paged_attention", {q, k, v, table, q_lens, kv_lens, f.rope ? q_rope : Pat(),
                                    f.rope ? k_rope : Pat(), f.sinks ? sinks : Pat()})
            .any_attrs(),
        [=](Builder& b, const std::vector<Value*>& inputs) {
          Attrs attrs{{"scale", 0.3}};
          if (f.window)
            attrs = {{"scale", 0.3}, {"mask", std::string("window")}, {"window", Sym(3)}};
          return b.node("tk.paged_attention", inputs, attrs);
        });
    Rewrite r =
        rewrite("tk.paged_attention -> npu_fused_infer_attention_score_v2, TND, paged",
                "npu.npu_fused_infer_attention_score_v2")
            .match(root)
            .when("no softcap, no chunks: the operator has neither",
                  [=](const Match& m) { return has_operator(m.node(root)->args()); })
            .when(f.window ? "a window" : "no window",
                  [=](const Match& m) {
                    return (m.node(root)->args().text("mask") == "window") == f.window;
                  })
            .build([=](Build& b) {
              const Args a = b.matched(root)->args();
              const bool full = f.rope || a.text("mask") == "full";
              const SymDims& cache = b[k]->type.shape;
              Attrs attrs = mask_attrs(a, {{"num_query_heads", b[q]->type.dim(1)},
                                           {"num_key_value_heads", cache[2]},
                                           {"softmax_scale", a.f64("scale")},
                                           {"input_layout", std::string("TND")},
                                           {"block_size", cache[1]}});
              if (f.rope) attrs.set("sparse_mode", Sym(0));
              Value* key = flat_cache(b, b[k]);
              Value* value = b[v] == b[k] ? key : flat_cache(b, b[v]);
              return std::vector<Value*>{
                  b.op("npu.npu_fused_infer_attention_score_v2",
                       {b[q], key, value, f.rope ? b[q_rope] : nullptr,
                        f.rope ? flat_cache(b, b[k_rope]) : nullptr, full ? nullptr : triangle(b),
                        b[q_lens], b[kv_lens], b[table], f.sinks ? b[sinks] : nullptr},
                       attrs)};
            });
    if (f.window)
      r.pending("KV-36",
                "with one query a sequence the operator's text says that it ignores the window: "
                "measure it on the device");
    const Sym tokens = f.rope ? 2 : 5;
    std::vector<std::pair<std::string, Type>> types = {
        {"q", type(DType::f32, {tokens, 4, 8})},
        {"k", type(DType::f32, {4, 4, 2, 8})},
        {"v", type(DType::f32, {4, 4, 2, 6})},
        {"table", type(DType::i32, {2, 2})},
        {f.rope ? "q_ends" : "q_lens", type(DType::i32, {2})},
        {"kv_lens", type(DType::i32, {2})}};
    if (f.sinks) types.emplace_back("sinks", type(DType::f32, {4}));
    if (f.rope) {
      types.emplace_back("q_rope", type(DType::f32, {tokens, 4, 4}));
      types.emplace_back("k_rope", type(DType::f32, {4, 4, 2, 4}));
    }
    r.check(types);
    all.push_back(r);
  }
  return move_of("name_attention", "tk.paged_attention -> npu.npu_fused_infer_attention_score_v2",
                 std::move(all), Phases::decode);
}

// Query and key rotated by one call. The tables are [T, 1, D] in the packed form.
Move fuse_rotary_pair() {
  const Pat q = in("q");
  const Pat k = in("k");
  const Pat cos = in("cos");
  const Pat sin = in("sin");
  const Pat rotated_q = call("npu.npu_rotary_mul", {q, cos, sin});
  const Pat rotated_k = call("npu.npu_rotary_mul", {k, cos, sin});
  Rewrite r =
      rewrite(
          "npu_rotary_mul(q, cos, sin), npu_rotary_mul(k, cos, sin) -> "
          "npu_apply_rotary_pos_emb(q, k, cos, sin)",
          "npu.npu_apply_rotary_pos_emb")
          .match(rotated_q, rotated_k)
          .when("packed tokens",
                [=](const Match& m) { return m[q]->type.rank() == 3 && m[k]->type.rank() == 3; })
          .build([=](Build& b) {
            Node* n = b.node("npu.npu_apply_rotary_pos_emb", {b[q], b[k], b[cos], b[sin]},
                             {{"layout", std::string("TND")}});
            return std::vector<Value*>{n->out(0), n->out(1)};
          })
          .check({{"q", type(DType::f32, {5, 4, 8})},
                  {"k", type(DType::f32, {5, 2, 8})},
                  {"cos", type(DType::f32, {5, 1, 8})},
                  {"sin", type(DType::f32, {5, 1, 8})}});
  return move_of("fuse_rotary_pair",
                 "npu_rotary_mul of query and key -> npu.npu_apply_rotary_pos_emb", {r});
}

}  // namespace tk::fuse

// MLA without expanding the cache: the key's up-projection moves to the query, the value's to the
// result, and attention runs over the latent itself, which all heads share. Fewer bytes for few
// queries; more work per query, so it pays when tokens are added one by one.
#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {

Move absorb_mla() {
  const Pat q = in("q_nope");
  const Pat q_rope = in("q_rope");
  const Pat latent = in("latent");
  const Pat rope = in("rope");
  const Pat w = weight("kv_b");
  const Pat table = in("table");
  const Pat q_lens = in("q_lens");
  const Pat kv_lens = in("kv_lens");
  const Pat root =
      made_by(call("tk.mla_paged_attention", {q, q_rope, latent, rope, w, table, q_lens, kv_lens})
                  .any_attrs(),
              [](Builder& b, const std::vector<Value*>& inputs) {
                return b.node("tk.mla_paged_attention", inputs, {{"scale", 0.3}});
              });
  const Sym nb = 4;
  Rewrite r =
      rewrite("tk.mla_paged_attention(q, ..., kv_b) -> tk.paged_attention(q @ w_k, latent) @ w_v",
              "tk.paged_attention")
          .match(root)
          .build([=](Build& b) {
            const Type& query = b[q]->type;
            const Sym heads = query.dim(1);
            const Sym nope = query.dim(2);
            const Sym v_dim = b[root]->type.dim(2);
            const Sym rank = b[latent]->type.dim(3);
            // Both halves of the up-projection, as views of the one weight.
            Value* per_head =
                b.op("aten.reshape", {b[w]}, {{"shape", SymDims{heads, nope + v_dim, rank}}});
            Value* w_k =
                b.op("aten.slice", {per_head}, {{"dim", Sym(1)}, {"start", Sym(0)}, {"end", nope}});
            Value* w_v = b.op("aten.slice", {per_head},
                              {{"dim", Sym(1)}, {"start", nope}, {"end", nope + v_dim}});
            const SymDims heads_first{1, 0, 2};
            Value* absorbed = b.op("npu.npu_transpose_batchmatmul", {b[q], w_k},
                                   {{"perm_x1", heads_first}, {"perm_y", heads_first}});
            Value* attended = b.op("tk.paged_attention",
                                   {absorbed, b[latent], b[latent], b[table], b[q_lens], b[kv_lens],
                                    b[q_rope], b[rope], nullptr},
                                   b.matched(root)->attrs);
            return std::vector<Value*>{b.op("npu.npu_transpose_batchmatmul", {attended, w_v},
                                            {{"perm_x1", heads_first},
                                             {"perm_x2", SymDims{0, 2, 1}},
                                             {"perm_y", heads_first}})};
          })
          .check({{"q_nope", type(DType::f32, {5, 2, 8})},
                  {"q_rope", type(DType::f32, {5, 2, 4})},
                  {"latent", type(DType::f32, {nb, 4, 1, 6})},
                  {"rope", type(DType::f32, {nb, 4, 1, 4})},
                  {"kv_b", type(DType::f32, {28, 6})},  // 2 heads of 8 + 6
                  {"table", type(DType::i32, {2, 2})},
                  {"q_lens", type(DType::i32, {2})},
                  {"kv_lens", type(DType::i32, {2})}});
  return move_of("absorb_mla",
                 "tk.mla_paged_attention -> q @ w_k, tk.paged_attention over the latent, @ w_v",
                 {r}, Phases::decode);
}

}  // namespace tk::fuse

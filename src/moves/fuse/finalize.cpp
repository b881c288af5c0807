// What is added to the result of routed experts, a shared expert mostly, is added on the way out.
#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {

Move fuse_moe_shared() {
  const Pat rows = in("rows");
  const Pat shared = in("shared");
  const Pat scales = in("scales");
  const Pat places = in("places");
  const Pat routed = call("npu.npu_moe_finalize_routing",
                          {rows, Pat(), Pat(), Pat(), scales, places}, {{"drop_pad_mode", Sym(2)}});
  Rewrite r = rewrite("finalize_routing(rows, ...) + shared -> finalize_routing(rows, shared, ...)",
                      "npu.npu_moe_finalize_routing")
                  .match(routed + shared)
                  .when("both are of one type",
                        [=](const Match& m) { return m[routed]->type == m[shared]->type; })
                  .build([=](Build& b) {
                    return std::vector<Value*>{
                        b.op("npu.npu_moe_finalize_routing",
                             {b[rows], b[shared], nullptr, nullptr, b[scales], b[places], nullptr},
                             {{"drop_pad_mode", Sym(2)}})};
                  })
                  .check({{"rows", type(DType::f32, {6, 8})},
                          {"scales", type(DType::f32, {3, 2})},
                          {"places", type(DType::i32, {6})},
                          {"shared", type(DType::f32, {3, 8})}})
                  .check({{"rows", type(DType::bf16, {6, 8})},
                          {"scales", type(DType::f32, {3, 2})},
                          {"places", type(DType::i32, {6})},
                          {"shared", type(DType::bf16, {3, 8})}});
  return move_of("fuse_moe_shared",
                 "finalize_routing(...) + shared -> finalize_routing(..., skip1=shared)", {r});
}

// A factor of all embeddings goes into the table, when the table serves nothing else.
Move fold_embedding_scale() {
  const Pat table = weight("table");
  const Pat ids = in("ids");
  const Const factor = constant("factor", 8.0);
  const Pat rows = call("aten.embedding", {table, ids}).any_attrs();
  Rewrite r =
      rewrite("embedding(table, ids) * c -> embedding(table * c, ids)", "aten.embedding")
          .match(rows * factor)
          .when("the table has no other use",
                [=](const Match& m) { return m[table]->has_one_use(); })
          .build([=](Build& b) {
            Value* t = b.op("aten.mul", {b[table]}, {{"other", b.attr(factor)}});
            return std::vector<Value*>{b.op("aten.embedding", {t, b[ids]}, b.matched(rows)->attrs)};
          })
          .check({{"table", type(DType::f32, {7, 8})}, {"ids", type(DType::i64, {5})}})
          .check({{"table", type(DType::bf16, {7, 8})}, {"ids", type(DType::i64, {2, 3})}});
  return move_of("fold_embedding_scale", "embedding(table, ids) * c -> embedding(table * c, ids)",
                 {r});
}

}  // namespace tk::fuse

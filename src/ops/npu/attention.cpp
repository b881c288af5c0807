// Attention and cache writes of torch_npu 2.14, as a paged KV cache uses them: packed tokens (TND),
// caches [blocks, block size, kv heads * D], one true KV length per request.
#include <array>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"
#include "ops/ops.h"

namespace tk::ops {
namespace {

// ---- npu_scatter_nd_update_

std::vector<Type> scatter_infer(const Args& args) {
  const Type& input = args.in(0);
  const Type& indices = args.in(1);
  const Type& updates = args.in(2);
  if (indices.rank() != 2 || !indices.dim(1).is(1) || !is_integral(indices.dtype))
    args.fail(cat("is known here with indices [T, 1] of integers, got ", indices.str()));
  SymDims expected{indices.dim(0)};
  expected.insert(expected.end(), input.shape.begin() + 1, input.shape.end());
  if (input.rank() < 1 || updates.shape != expected || updates.dtype != input.dtype)
    args.fail(cat("needs updates ", Type{input.dtype, expected}.str(), ", got ", updates.str()));
  return {input};
}

void scatter_eval(const EvalArgs& a) {
  const TensorView& out = a.out();
  if (out.data != a.in(0).data) copy_into(out, a.in(0));
  const Tensor rows = to_dtype(a.in(1), DType::i64);
  const auto size = static_cast<std::int64_t>(size_of(out.dtype));
  for (std::int64_t t = 0; t < rows.numel(); ++t) {
    const std::int64_t row = checked_index(a, rows.as<std::int64_t>()[t], out.shape[0], false);
    TensorView to = out;
    TensorView from = a.in(2);
    to.data = out.as<char>() + row * out.strides[0] * size;
    from.data = from.as<char>() + t * from.strides[0] * size;
    to.shape.erase(0), to.strides.erase(0), from.shape.erase(0), from.strides.erase(0);
    copy_into(to, from);
  }
}

// ---- npu_fused_infer_attention_score_v2

enum Input { query, key, value, query_rope, key_rope, mask, q_lens, kv_lens, table, sink };

struct Heads {
  std::int64_t q, kv;
};

Heads heads_of(const Args& args) {
  Heads h{args.i64("num_query_heads"), args.i64("num_key_value_heads")};
  if (h.kv == 0) h.kv = h.q;
  return h;
}

std::vector<Type> attention_infer(const Args& args) {
  const Type& q = args.in(query);
  const Type& k = args.in(key);
  const Type& v = args.in(value);
  const Heads h = heads_of(args);
  if (args.text("input_layout") != "TND" || !args.has(table) || !args.has(q_lens) ||
      !args.has(kv_lens))
    args.fail("is known here in layout TND with a block table and both lengths");
  if (q.rank() != 3 || !q.dim(1).is(h.q)) args.fail(cat("needs query [T, ", h.q, ", D]"));
  if (h.q < 1 || h.kv < 1 || h.q % h.kv != 0)
    args.fail(cat("needs query heads in equal groups, got ", h.q, " and ", h.kv));
  const auto v_dim = v.rank() == 3 ? exact_div(v.dim(2), h.kv) : std::nullopt;
  if (k.rank() != 3 || !v_dim || !(k.dim(2) == q.dim(2) * h.kv) || !(k.dim(0) == v.dim(0)) ||
      !(k.dim(1) == v.dim(1)))
    args.fail(
        cat("needs caches [blocks, block size, ", h.kv, " * D], got ", k.str(), " and ", v.str()));
  if (!k.dim(1).is(args.i64("block_size")))
    args.fail(cat("needs block_size ", k.dim(1).str(), " as the cache has it"));
  if (args.has(query_rope) != args.has(key_rope)) args.fail("needs both rope parts or neither");
  if (args.has(key_rope) && (args.in(key_rope).rank() != 3 || args.in(query_rope).rank() != 3 ||
                             !(args.in(key_rope).dim(2) == args.in(query_rope).dim(2) * h.kv)))
    args.fail("needs query_rope [T, heads, Dr] and key_rope [blocks, block size, kv heads * Dr]");
  for (int i : {q_lens, kv_lens, table})
    if (args.in(i).dtype != DType::i32)
      args.fail(cat("needs i32 lengths and block table, got ", args.in(i).str()));
  const std::int64_t mode = args.i64("sparse_mode");
  if (mode != 0 && mode != 3 && mode != 4)
    args.fail(cat("is known here with sparse_mode 0, 3 or 4, got ", mode));
  if (mode == 4 && (args.i64("next_tokens") != 0 || args.i64("pre_tokens") < 0))
    args.fail("is known here with next_tokens 0 in sparse_mode 4");
  if ((mode == 0) == args.has(mask))
    args.fail("is known here without a mask in sparse_mode 0, with one in 3 and 4");
  return {{q.dtype, {q.dim(0), q.dim(1), *v_dim}}, {DType::f32, {0}}};
}

// A cache [blocks, block size, heads * D] with its heads apart.
TensorView with_heads(const TensorView& t, std::int64_t heads) {
  TensorView v = t;
  const std::int64_t d = t.shape[2] / heads;
  v.shape = {t.shape[0], t.shape[1], heads, d};
  v.strides = {t.strides[0], t.strides[1], d * t.strides[2], t.strides[2]};
  return v;
}

void attention_eval(const EvalArgs& a) {
  const std::int64_t kv =
      a.i64("num_key_value_heads") == 0 ? a.i64("num_query_heads") : a.i64("num_key_value_heads");
  const TensorView none;
  const std::array<TensorView, 9> inputs{a.in(query),
                                         with_heads(a.in(key), kv),
                                         with_heads(a.in(value), kv),
                                         a.in(table),
                                         a.in(q_lens),
                                         a.in(kv_lens),
                                         a.has(query_rope) ? a.in(query_rope) : none,
                                         a.has(key_rope) ? with_heads(a.in(key_rope), kv) : none,
                                         a.has(sink) ? a.in(sink) : none};
  const std::int64_t mode = a.i64("sparse_mode");
  Attrs attrs{{"scale", a.f64("softmax_scale")}};
  if (mode == 0) attrs.set("mask", std::string("full"));
  if (mode == 4) {
    attrs.set("mask", std::string("window"));
    attrs.set("window", Sym(a.i64("pre_tokens") + 1));
  }
  const std::array<TensorView, 1> outputs{a.out(0)};
  tk_paged_attention.eval(EvalArgs(tk_paged_attention, inputs, outputs, attrs, a.env()));
}

constexpr int first_input[] = {0};

}  // namespace

const OpDef npu_scatter_nd_update_{
    .name = "npu.npu_scatter_nd_update_",
    .schema = "(Tensor input, Tensor indices, Tensor updates) -> Tensor",
    .doc =
        "input[indices[t, 0]] = updates[t], in place. Rows outside are an error: there is no "
        "padding slot.",
    .infer = scatter_infer,
    .eval = scatter_eval,
    .updates = first_input,
};

const OpDef npu_fused_infer_attention_score_v2{
    .name = "npu.npu_fused_infer_attention_score_v2",
    .schema =
        "(Tensor query, Tensor key, Tensor value, Tensor? query_rope=None, Tensor? key_rope=None, "
        "Tensor? atten_mask=None, Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, "
        "Tensor? block_table=None, Tensor? learnable_sink=None, int num_query_heads=1, "
        "int num_key_value_heads=0, float softmax_scale=1.0, int pre_tokens=2147483647, "
        "int next_tokens=2147483647, str input_layout=\"BSH\", int sparse_mode=0, "
        "int block_size=0) -> (Tensor attention_out, Tensor softmax_lse)",
    .doc =
        "Attention of packed tokens over a paged cache, TND. sparse_mode 0 without a mask: all "
        "keys; 3: causal, aligned at the last key; 4: keys from pre_tokens before the query to "
        "it. actual_seq_qlen are running totals, actual_seq_kvlen the lengths, host lists in "
        "torch_npu. The mask of modes 3 and 4 is the [2048, 2048] triangle. softmax_lse is off.",
    .infer = attention_infer,
    .eval = attention_eval,
};

}  // namespace tk::ops

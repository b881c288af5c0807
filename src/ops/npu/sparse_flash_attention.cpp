// Attention of torch_npu 2.14 over keys that an indexer chose, of MLA's latent: as floats, or int8
// with its rope part and scales behind it.
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/fused_attention.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/sparse_requests.h"

namespace tk::ops {
namespace {

constexpr SparseNames names{"layout_kv", "actual_seq_lengths_kv"};

void need_choice(const Args& args) {
  need_sparse_requests(args, names);
  const Type& chosen = args.in(input_of(args.op(), "sparse_indices"));
  const Type& q = args.in(0);
  if (chosen.dtype != DType::i32 || chosen.rank() != q.rank() || !chosen.dim(-2).is(1))
    args.fail(cat("needs sparse_indices i32 of query's axes with one head, got ", chosen.str()));
  for (int i = 0; i < q.rank() - 2; ++i)
    need_same(args, chosen.dim(i), q.dim(i), "sparse_indices and query");
  const std::int64_t block = args.i64("sparse_block_size");
  if (block < 1 || block > 128 || (block & (block - 1)) != 0)
    args.fail(cat("needs sparse_block_size a power of two up to 128, got ", block));
  if (args.i64("attention_mode") != 2)
    args.fail(cat("has attention_mode 2 (MLA), got ", args.i64("attention_mode")));
}

// The keys outside the blocks that sparse_indices names for a query are hidden.
void hide_others(const EvalArgs& a, const SparseRequests& r, Attention* t) {
  const TensorView& chosen = a.in(input_of(a.op(), "sparse_indices"));
  const RowMap rows = r.query_map(chosen);
  const std::int64_t width = chosen.shape.back();
  const std::int64_t block = a.i64("sparse_block_size");
  t->bias = [&a, &r, rows, width, block](std::int64_t b, std::int64_t, std::int64_t i,
                                         std::vector<float>* scores) {
    const auto n = static_cast<std::int64_t>(scores->size());
    std::vector<bool> keep(scores->size(), false);
    const std::int64_t at = rows.offset(b, i, 0);
    for (std::int64_t c = 0; c < width; ++c) {
      const std::int64_t id = rows.data.as<std::int32_t>()[at + c * rows.element];
      if (id < 0) continue;
      if (id * block >= n) bad_index(a, id, (n + block - 1) / block, "sparse_indices");
      for (std::int64_t j = id * block; j < std::min(n, (id + 1) * block); ++j)
        keep[static_cast<std::size_t>(j)] = r.sees(b, i, j);
    }
    for (std::int64_t j = 0; j < n; ++j)
      if (!keep[static_cast<std::size_t>(j)]) (*scores)[static_cast<std::size_t>(j)] = -INFINITY;
  };
}

void run(const EvalArgs& a, const SparseRequests& r, Attention* t) {
  t->heads = a.in(0).shape.at(-2);
  t->kv_heads = 1;
  t->q_lens = r.q_lens;
  t->kv_lens = r.kv_lens;
  t->scale = static_cast<float>(a.f64("scale_value"));
  hide_others(a, r, t);
  std::fill_n(a.out(0).as<char>(), a.out(0).bytes(), char{0});
  const RowMap out = r.query_map(a.out(0));
  const std::int64_t dim = t->value.dim;
  t->out = [out, dim](std::int64_t b, std::int64_t h, std::int64_t i, const float* row) {
    out.write(out.offset(b, i, h), dim, row);
  };
  attend(*t);
}

// ---- floats

constexpr std::string_view refused[] = {"sinks"};

std::vector<Type> sparse_infer(const Args& args) {
  refuse_given(args, refused);
  need_choice(args);
  need_float(args, 0);
  const Type& q = args.in(0);
  if (args.in(1).dtype != q.dtype) args.fail("needs query and key of one dtype");
  need_same(args, q.dim(-1), args.in(1).dim(-1), "D of query and key");
  if (args.has(2) && !(args.in(2) == args.in(1)))
    args.fail(cat("needs value of key's type, got ", args.in(2).str()));
  if (given(args, "query_rope") != given(args, "key_rope"))
    args.fail("needs both of query_rope and key_rope or neither");
  if (given(args, "query_rope")) {
    const Type& qr = args.in(input_of(args.op(), "query_rope"));
    const Type& kr = args.in(input_of(args.op(), "key_rope"));
    if (qr.rank() != q.rank() || kr.rank() != args.in(1).rank())
      args.fail(
          cat("needs rope parts of the axes of query and key, got ", qr.str(), " and ", kr.str()));
    need_same(args, qr.dim(-1), kr.dim(-1), "D of the rope parts");
  }
  SymDims sums{0};
  if (args.flag("return_softmax_lse")) {
    sums = SymDims(q.shape.begin(), q.shape.end() - 1);
    sums.insert(sums.end() - 2, Sym(1));
  }
  return {q, {DType::f32, sums}, {DType::f32, sums}};
}

// [B, 1, S, heads] or [1, T, heads], one number for each query and head.
RowMap number_map(const SparseRequests& r, const TensorView& t) {
  RowMap m = row_map(t, t.rank() == 4 ? "B1SN" : "1TN");
  if (t.rank() == 3) m.first = starts_of(r.q_lens);
  m.data.shape = {1};
  return m;
}

void sparse_eval(const EvalArgs& a) {
  const SparseRequests r = sparse_requests(a, names);
  Attention t;
  const std::int64_t dim = a.in(0).shape.back();
  t.query = {.x = r.query_map(a.in(0)), .dim = dim};
  t.key = {.x = r.key_map(a.in(1)), .dim = dim};
  t.value = {.x = r.key_map(a.has(2) ? a.in(2) : a.in(1)), .dim = dim};
  if (given(a, "query_rope")) {
    const TensorView& q = a.in(input_of(a.op(), "query_rope"));
    t.query_rope = {.x = r.query_map(q), .dim = q.shape.back()};
    t.key_rope = {.x = r.key_map(a.in(input_of(a.op(), "key_rope"))), .dim = q.shape.back()};
  }
  if (a.flag("return_softmax_lse")) {
    for (const int i : {1, 2}) std::fill_n(a.out(i).as<char>(), a.out(i).bytes(), char{0});
    t.max = number_map(r, a.out(1));
    t.sum = number_map(r, a.out(2));
  }
  run(a, r, &t);
}

Cost sparse_cost(const Args& args, const Load&) {
  const Type& chosen = args.in(input_of(args.op(), "sparse_indices"));
  const double dim = static_cast<double>(args.in(0).shape.back().value());
  const double heads = static_cast<double>(args.in(0).dim(-2).value());
  const double tokens = elements_of(args.in(0)) / dim / heads;
  const double keys = static_cast<double>(chosen.shape.back().value()) *
                      static_cast<double>(args.i64("sparse_block_size"));
  const double rope = given(args, "query_rope") ? 64 : 0;
  Cost c;
  c.cube = 2 * tokens * heads * keys * (2 * dim + rope);
  c.vector = 5 * tokens * heads * keys;
  c.read = tokens * keys * (dim + rope) * static_cast<double>(size_of(args.in(1).dtype)) +
           bytes_of(args.in(0)) + bytes_of(chosen);
  c.written = bytes_of(args.in(0));
  return c;
}

constexpr Limit limits[] = {
    {"sparse_flash_attention.mode", "sparse_mode in (0, 3)"},
    {"sparse_flash_attention.table",
     "block_table is None or actual_seq_lengths_kv is None or block_table.shape[1] >= "
     "ceil(max(actual_seq_lengths_kv) / key.shape[1])"},
};
constexpr std::string_view notes[] = {
    "sparse_block_size is a keyword with default 1 in the library, positional in the wheel's "
    "document, which has one result",
    "query, key, value: bf16, fp16; D 512, rope 64; one head of keys; 1 to 128 heads, powers of "
    "two",
    "sparse_indices: valid entries first; -1 afterwards",
    "sinks are of another chip: refused here",
};
constexpr NpuFacts facts{
    .group = "attention",
    .signature =
        "npu_sparse_flash_attention(Tensor query, Tensor key, Tensor? value, Tensor "
        "sparse_indices, float scale_value, *, Tensor? block_table=None, Tensor? "
        "actual_seq_lengths_query=None, Tensor? actual_seq_lengths_kv=None, Tensor? "
        "query_rope=None, Tensor? key_rope=None, int sparse_block_size=1, str "
        "layout_query=\"BSND\", str layout_kv=\"BSND\", int sparse_mode=3, int "
        "pre_tokens=9223372036854775807, int next_tokens=9223372036854775807, int "
        "attention_mode=0, bool return_softmax_lse=False, Tensor? sinks=None) -> (Tensor, Tensor, "
        "Tensor)",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "not named",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = notes,
    .limits = limits,
};

// ---- int8

// A row: `latent` int8, `rope` elements of query's dtype, a scale for each tile of 128.
constexpr std::int64_t tile = 128;
constexpr std::int64_t rope_dim = 64;

std::vector<Type> quant_infer(const Args& args) {
  constexpr std::string_view reserved[] = {"key_dequant_scale", "value_dequant_scale", "key_dtype",
                                           "value_dtype"};
  refuse_given(args, reserved);
  need_choice(args);
  need_float(args, 0);
  const auto needs = [&](std::string_view name, std::int64_t value) {
    if (args.i64(name) != value) args.fail(cat("has ", name, " ", value, ", got ", args.i64(name)));
  };
  needs("key_quant_mode", 2);
  needs("value_quant_mode", 2);
  needs("quant_scale_repo_mode", 1);
  needs("tile_size", tile);
  needs("rope_head_dim", rope_dim);
  const Type& q = args.in(0);
  const Type& k = args.in(1);
  const Sym latent = q.dim(-1) - rope_dim;
  if (k.dtype != DType::i8 || !latent.is_const() || latent.value() % tile != 0 ||
      !(k.dim(-1).is(latent.value() + 2 * rope_dim + latent.value() / tile * 4)) ||
      size_of(q.dtype) != 2)
    args.fail(
        cat("needs query [..., latent + 64] of 16-bit floats and key i8[..., latent + 64 * 2 "
            "+ latent / 128 * 4], got ",
            q.str(), " and ", k.str()));
  Type out = q;
  out.shape.back() = latent;
  return {out};
}

// The cache with its rows as floats: latent and rope part.
Tensor unpacked(const TensorView& cache, DType rope_dtype, std::int64_t latent) {
  const Tensor bytes = contiguous(cache);
  const std::int64_t width = cache.shape.back();
  Dims shape = cache.shape;
  shape[shape.size() - 1] = latent + rope_dim;
  Tensor out = Tensor::empty(DType::f32, shape);
  for (std::int64_t r = 0; r < bytes.numel() / width; ++r) {
    const auto* row = bytes.as<std::int8_t>() + r * width;
    float* to = out.as<float>() + r * (latent + rope_dim);
    for (std::int64_t d = 0; d < latent; ++d) {
      float scale = 0;
      std::memcpy(&scale, row + latent + 2 * rope_dim + d / tile * 4, sizeof scale);
      to[d] = static_cast<float>(row[d]) * scale;
    }
    for (std::int64_t d = 0; d < rope_dim; ++d) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, row + latent + 2 * d, sizeof bits);
      to[latent + d] = rope_dtype == DType::bf16 ? to_float(bf16{bits}) : to_float(f16{bits});
    }
  }
  return out;
}

void quant_eval(const EvalArgs& a) {
  const SparseRequests r = sparse_requests(a, names);
  const std::int64_t latent = a.out(0).shape.back();
  const Tensor cache = unpacked(a.in(1), a.in(0).dtype, latent);
  Attention t;
  t.query = {.x = r.query_map(a.in(0)), .dim = latent + rope_dim};
  t.key = {.x = r.key_map(cache), .dim = latent + rope_dim};
  t.value = {.x = r.key_map(cache), .dim = latent};
  run(a, r, &t);
}

constexpr Limit quant_limits[] = {
    {"kv_quant_sparse_flash_attention.qmode", "key_quant_mode == 2 and value_quant_mode == 2"},
    {"kv_quant_sparse_flash_attention.attn", "attention_mode == 2"},
    {"kv_quant_sparse_flash_attention.repo", "quant_scale_repo_mode == 1"},
    {"kv_quant_sparse_flash_attention.mode", "sparse_mode in (0, 3)"},
    {"kv_quant_sparse_flash_attention.kvlayout", "layout_kv == \"PA_BSND\""},
};
constexpr std::string_view quant_notes[] = {
    "query: bf16, latent 512 and rope 64 in one; the result has the latent alone",
    "key, value: one int8 cache [blocks, block, 1, 656]: latent, rope as 64 bf16, 4 scales fp32",
    "key_dequant_scale and value_dequant_scale are reserved; fp8 and hifloat8 are of another chip",
};
constexpr NpuFacts quant_facts{
    .group = "attention",
    .signature =
        "npu_kv_quant_sparse_flash_attention(Tensor query, Tensor key, Tensor value, Tensor "
        "sparse_indices, float scale_value, int key_quant_mode, int value_quant_mode, *, Tensor? "
        "key_dequant_scale=None, Tensor? value_dequant_scale=None, Tensor? block_table=None, "
        "Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_kv=None, int "
        "sparse_block_size=1, str layout_query=\"BSND\", str layout_kv=\"BSND\", int "
        "sparse_mode=3, int pre_tokens=9223372036854775807, int next_tokens=9223372036854775807, "
        "int attention_mode=0, int quant_scale_repo_mode=1, int tile_size=128, int "
        "rope_head_dim=64, int? key_dtype=None, int? value_dtype=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "not named",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = quant_notes,
    .limits = quant_limits,
};

}  // namespace

const OpDef npu_sparse_flash_attention{
    .name = "npu.npu_sparse_flash_attention",
    .schema =
        "(Tensor query, Tensor key, Tensor? value, Tensor sparse_indices, Tensor? "
        "block_table=None, Tensor? actual_seq_lengths_query=None, Tensor? "
        "actual_seq_lengths_kv=None, Tensor? query_rope=None, Tensor? key_rope=None, Tensor? "
        "sinks=None, float scale_value, int sparse_block_size=1, str layout_query=\"BSND\", str "
        "layout_kv=\"BSND\", int sparse_mode=3, int pre_tokens=9223372036854775807, int "
        "next_tokens=9223372036854775807, int attention_mode=0, bool return_softmax_lse=False) -> "
        "(Tensor attention_out, Tensor softmax_max, Tensor softmax_sum)",
    .doc =
        "Attention of each query over the blocks of keys that sparse_indices names (negative: "
        "none), of which sparse_mode 3 hides those behind the query. Without value, key is value.",
    .infer = sparse_infer,
    .eval = sparse_eval,
    .cost = sparse_cost,
    .npu = &facts,
};

const OpDef npu_kv_quant_sparse_flash_attention{
    .name = "npu.npu_kv_quant_sparse_flash_attention",
    .schema =
        "(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, Tensor? "
        "key_dequant_scale=None, Tensor? value_dequant_scale=None, Tensor? block_table=None, "
        "Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_kv=None, float "
        "scale_value, int key_quant_mode, int value_quant_mode, int sparse_block_size=1, str "
        "layout_query=\"BSND\", str layout_kv=\"BSND\", int sparse_mode=3, int "
        "pre_tokens=9223372036854775807, int next_tokens=9223372036854775807, int "
        "attention_mode=0, int quant_scale_repo_mode=1, int tile_size=128, int rope_head_dim=64, "
        "dtype? key_dtype=None, dtype? value_dtype=None) -> Tensor",
    .doc =
        "npu_sparse_flash_attention over an int8 latent whose rows hold the rope part and a scale "
        "for each 128 elements too.",
    .infer = quant_infer,
    .eval = quant_eval,
    .cost = sparse_cost,
    .npu = &quant_facts,
};

}  // namespace tk::ops

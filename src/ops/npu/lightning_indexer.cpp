// The choice of keys for sparse attention of torch_npu 2.14, of floats and of int8.
#include <algorithm>
#include <cmath>
#include <numeric>

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

constexpr SparseNames names{"layout_key", "actual_seq_lengths_key"};

SymDims chosen_shape(const Args& args) {
  need_sparse_requests(args, names);
  need_same(args, args.in(0).dim(-1), args.in(1).dim(-1), "D of query and key");
  const SymDims heads(args.in(0).shape.begin(), args.in(0).shape.end() - 1);
  for (const char* name : {"weights", "query_dequant_scale"})
    if (given(args, name) && args.in(input_of(args.op(), name)).shape != heads)
      args.fail(cat("needs ", name, " of query's axes without D, got ",
                    args.in(input_of(args.op(), name)).str()));
  const std::int64_t count = args.i64("sparse_count");
  if (count < 1) args.fail(cat("needs sparse_count of at least 1, got ", count));
  SymDims shape = args.in(0).shape;
  shape[shape.size() - 2] = 1;
  shape.back() = count;
  return shape;
}

std::vector<Type> indexer_infer(const Args& args) {
  const SymDims shape = chosen_shape(args);
  need_float(args, 0);
  if (args.in(0).dtype != args.in(1).dtype) args.fail("needs query and key of one dtype");
  return {{DType::i32, shape}, {args.in(0).dtype, args.flag("return_value") ? shape : SymDims{0}}};
}

std::vector<Type> quant_indexer_infer(const Args& args) {
  const SymDims shape = chosen_shape(args);
  if (args.in(0).dtype != DType::i8 || args.in(1).dtype != DType::i8)
    args.fail(cat("is known here with query and key of i8, got ", args.in(0).str(), " and ",
                  args.in(1).str()));
  for (const char* name : {"query_quant_mode", "key_quant_mode"})
    if (args.i64(name) != 0) args.fail(cat("has ", name, " 0, got ", args.i64(name)));
  for (const char* name : {"query_dtype", "key_dtype"})
    if (args.has_attr(name) && args.dtype(name) != DType::i8)
      args.fail(cat("is known here with ", name, " int8"));
  for (const int i : {2, 3, 4}) need_float(args, i);  // weights and scales
  const SymDims key_rows(args.in(1).shape.begin(), args.in(1).shape.end() - 1);
  if (args.in(4).shape != key_rows)
    args.fail(cat("needs key_dequant_scale of key's axes without D, got ", args.in(4).str()));
  return {{DType::i32, shape}};
}

// The `count` best of scores, best first, the lower place first among equals; -inf is never chosen.
std::vector<std::int32_t> best(const std::vector<float>& scores, std::int64_t count) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order,
                [&](std::int32_t j) { return scores[static_cast<std::size_t>(j)] == -INFINITY; });
  const auto n = std::min(order.size(), static_cast<std::size_t>(count));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(),
                    [&](std::int32_t x, std::int32_t y) {
                      const float p = scores[static_cast<std::size_t>(x)];
                      const float q = scores[static_cast<std::size_t>(y)];
                      return p != q ? p > q : x < y;
                    });
  order.resize(n);
  return order;
}

void choose(const EvalArgs& a, bool quantised) {
  const SparseRequests r = sparse_requests(a, names);
  const std::int64_t dim = a.in(0).shape.back();
  const std::int64_t heads = a.in(0).shape.at(-2);
  const std::int64_t count = a.i64("sparse_count");
  AttentionOperand query{.x = r.query_map(a.in(0)), .dim = dim};
  AttentionOperand key{.x = r.key_map(a.in(1)), .dim = dim};
  if (quantised) {
    query.scale = r.query_map(a.in(3));
    key.scale = r.key_map(a.in(4));
  }
  const RowMap weights = r.query_map(a.in(2));
  const RowMap indices = r.query_map(a.out(0));
  std::fill_n(a.out(0).as<std::int32_t>(), a.out(0).numel(), -1);
  const bool values = !quantised && a.flag("return_value");
  const RowMap value_rows = values ? r.query_map(a.out(1)) : RowMap();
  if (values) {
    const Tensor none = Tensor::scalar(DType::f32, -INFINITY);
    TensorView everywhere = none;
    everywhere.shape = a.out(1).shape;
    everywhere.strides = contiguous_strides(everywhere.shape);
    for (auto& s : everywhere.strides) s = 0;
    copy_into(a.out(1), everywhere);
  }
  parallel(static_cast<std::int64_t>(r.q_lens.size()), a.in(0).numel() * 64,
           [&](auto from, auto to) {
             std::vector<float> q(static_cast<std::size_t>(heads * dim));
             std::vector<float> w(static_cast<std::size_t>(heads));
             for (std::int64_t b = from; b < to; ++b) {
               const std::int64_t n_keys = r.kv_lens[static_cast<std::size_t>(b)];
               std::vector<float> keys(static_cast<std::size_t>(n_keys * dim));
               for (std::int64_t j = 0; j < n_keys; ++j) key.read(b, j, 0, keys.data() + j * dim);
               for (std::int64_t i = 0; i < r.q_lens[static_cast<std::size_t>(b)]; ++i) {
                 for (std::int64_t h = 0; h < heads; ++h) {
                   query.read(b, i, h, q.data() + h * dim);
                   weights.read(weights.offset(b, i, h), 1, &w[static_cast<std::size_t>(h)]);
                 }
                 std::vector<float> scores(static_cast<std::size_t>(n_keys), -INFINITY);
                 for (std::int64_t j = 0; j < n_keys; ++j) {
                   if (!r.sees(b, i, j)) continue;
                   float sum = 0;
                   for (std::int64_t h = 0; h < heads; ++h) {
                     float dot = 0;
                     for (std::int64_t d = 0; d < dim; ++d)
                       dot += q[static_cast<std::size_t>(h * dim + d)] *
                              keys[static_cast<std::size_t>(j * dim + d)];
                     sum += w[static_cast<std::size_t>(h)] * std::max(dot, 0.0F);
                   }
                   scores[static_cast<std::size_t>(j)] = sum;
                 }
                 const std::vector<std::int32_t> chosen = best(scores, count);
                 std::copy(chosen.begin(), chosen.end(),
                           a.out(0).as<std::int32_t>() + indices.offset(b, i, 0));
                 if (!values) continue;
                 std::vector<float> row;
                 for (const std::int32_t j : chosen)
                   row.push_back(scores[static_cast<std::size_t>(j)]);
                 value_rows.write(value_rows.offset(b, i, 0), static_cast<std::int64_t>(row.size()),
                                  row.data());
               }
             }
           });
}

Cost indexer_cost(const Args& args, const Load& load) {
  const double rows =
      elements_of(args.in(0)) / static_cast<double>(args.in(0).shape.back().value());
  const double dim = static_cast<double>(args.in(0).shape.back().value());
  const bool paged = args.text("layout_key") == "PA_BSND";
  const Type& k = args.in(1);
  const double requests =
      given(args, "actual_seq_lengths_key")
          ? static_cast<double>(
                args.in(input_of(args.op(), "actual_seq_lengths_key")).dim(0).value())
          : static_cast<double>(args.in(0).dim(0).value());
  const double keys = paged ? load.kv_len : elements_of(k) / dim / requests;
  Cost c;
  c.cube = 2 * rows * keys * dim;
  c.vector = 3 * rows * keys;
  c.read = bytes_of(args.in(0)) + requests * keys * dim * static_cast<double>(size_of(k.dtype));
  for (const Type& t : args.op().infer(args)) c.written += bytes_of(t);
  return c;
}

constexpr Symbol symbols[] = {{"N", "query.shape[-2]", "heads"}};
constexpr Limit limits[] = {
    {"lightning_indexer.mode", "sparse_mode in (0, 3)"},
    {"lightning_indexer.count",
     "1 <= sparse_count <= 2048 or sparse_count in (3072, 4096, 5120, 6144, 7168, 8192)"},
    {"lightning_indexer.layout", "layout_key == \"PA_BSND\" or layout_key == layout_query"},
};
constexpr std::string_view notes[] = {
    "the wheel's document prints a prototype with one result; the library has two, pre_tokens, "
    "next_tokens and return_value",
    "lengths are int32 tensors; packed ones running totals",
    "query, key: bf16, fp16 of D 128; key has one head; weights as query, or fp32",
};
constexpr NpuFacts facts{
    .group = "attention",
    .signature =
        "npu_lightning_indexer(Tensor query, Tensor key, Tensor weights, *, Tensor? "
        "actual_seq_lengths_query=None, Tensor? actual_seq_lengths_key=None, Tensor? "
        "block_table=None, str layout_query=\"BSND\", str layout_key=\"BSND\", int "
        "sparse_count=2048, int sparse_mode=3, int pre_tokens=9223372036854775807, int "
        "next_tokens=9223372036854775807, bool return_value=False) -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "not named",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = notes,
    .symbols = symbols,
    .limits = limits,
};

constexpr Limit quant_limits[] = {
    {"quant_lightning_indexer.heads", "N <= 64"},
    {"quant_lightning_indexer.count", "1 <= sparse_count <= 2048"},
    {"quant_lightning_indexer.mode", "sparse_mode in (0, 3)"},
};
constexpr std::string_view quant_notes[] = {
    "query, key: int8; weights and both scales fp16 on a3; fp8 and hifloat8 are of other chips and "
    "not known here",
    "query_dequant_scale: a scale a token and head; key_dequant_scale: [blocks, block, 1]",
};
constexpr NpuFacts quant_facts{
    .group = "attention",
    .signature =
        "npu_quant_lightning_indexer(Tensor query, Tensor key, Tensor weights, Tensor "
        "query_dequant_scale, Tensor key_dequant_scale, int query_quant_mode, int key_quant_mode, "
        "*, Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_key=None, Tensor? "
        "block_table=None, str layout_query=\"BSND\", str layout_key=\"BSND\", int "
        "sparse_count=2048, int sparse_mode=3, int pre_tokens=9223372036854775807, int "
        "next_tokens=9223372036854775807, int? query_dtype=None, int? key_dtype=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = quant_notes,
    .symbols = symbols,
    .limits = quant_limits,
};

}  // namespace

const OpDef npu_lightning_indexer{
    .name = "npu.npu_lightning_indexer",
    .schema =
        "(Tensor query, Tensor key, Tensor weights, Tensor? actual_seq_lengths_query=None, Tensor? "
        "actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query=\"BSND\", str "
        "layout_key=\"BSND\", int sparse_count=2048, int sparse_mode=3, int "
        "pre_tokens=9223372036854775807, int next_tokens=9223372036854775807, bool "
        "return_value=False) -> (Tensor sparse_indices, Tensor sparse_values)",
    .doc =
        "The sparse_count keys of each query with the greatest sum over heads of weights * "
        "relu(query @ key), greatest first, the lower place first among equals, then -1. "
        "sparse_mode 3 has keys behind the query excluded; 0 none.",
    .infer = indexer_infer,
    .eval = [](const EvalArgs& a) { choose(a, false); },
    .cost = indexer_cost,
    .npu = &facts,
};

const OpDef npu_quant_lightning_indexer{
    .name = "npu.npu_quant_lightning_indexer",
    .schema =
        "(Tensor query, Tensor key, Tensor weights, Tensor query_dequant_scale, Tensor "
        "key_dequant_scale, Tensor? actual_seq_lengths_query=None, Tensor? "
        "actual_seq_lengths_key=None, Tensor? block_table=None, int query_quant_mode, int "
        "key_quant_mode, str layout_query=\"BSND\", str layout_key=\"BSND\", int "
        "sparse_count=2048, int sparse_mode=3, int pre_tokens=9223372036854775807, int "
        "next_tokens=9223372036854775807, dtype? query_dtype=None, dtype? key_dtype=None) -> "
        "Tensor",
    .doc = "npu_lightning_indexer of int8 queries and keys, each times its scale.",
    .infer = quant_indexer_infer,
    .eval = [](const EvalArgs& a) { choose(a, true); },
    .cost = indexer_cost,
    .npu = &quant_facts,
};

}  // namespace tk::ops

// npu_fused_infer_attention_score and _v2 of torch_npu 2.14.
#include "ops/npu/fused_attention.h"
#include "ops/npu/npu_ops.h"

namespace tk::ops {
namespace {

// What the documents of both say, over symbols that each defines with its own argument names.
#define TK_SHARED_LIMITS(op)                                                                     \
  {op ".rope_pair", "q_rope == k_rope", "both rope tensors or neither"},                         \
      {op ".rope_dim", "not q_rope or Dr == 64"},                                                \
      {op ".mla_query_dim", "not q_rope or D in (128, 512)"},                                    \
      {op ".mla512_paged", "not (q_rope and D == 512) or PA",                                    \
       "the absorb form reads a paged cache"},                                                   \
      {op ".mla512_q", "not (q_rope and D == 512) or 1 <= Qs <= 16"},                            \
      {op ".mla512_kvheads", "not (q_rope and D == 512) or Nkv == 1", "one latent head"},        \
      {op ".mla512_block", "not (q_rope and D == 512) or bs == 128 or (bs == 16 and not NZ)",    \
       "an NZ cache forbids blocks of 16"},                                                      \
      {op ".gqa_ratio", "(q_rope and D == 512) or (Nq % Nkv == 0 and Nq // Nkv <= 64)"},         \
      {op ".mask_dtype", "atten_mask is None or atten_mask.dtype in (bool, int8, uint8)",        \
       "float masks are rejected"},                                                              \
      {op ".mask_2048",                                                                          \
       "sparse_mode not in (2, 3, 4) or atten_mask is None or atten_mask.shape in "              \
       "((2048, 2048), (1, 2048, 2048), (1, 1, 2048, 2048))",                                    \
       "the triangle, True above the diagonal, whatever the lengths"},                           \
      {op ".mask_required", "sparse_mode not in (1, 2, 3, 4) or atten_mask is not None"},        \
      {op ".block_table",                                                                        \
       "not PA or (block_table.dtype == int32 and block_table.ndim == 2 and "                    \
       "block_table.shape[0] == B and block_table.shape[1] >= ceil(KVs / bs))"},                 \
      {op ".pa_kvlen", "not PA or kv_lens is not None", "paged calls give the lengths of keys"}, \
      {op ".pa_mask_width",                                                                      \
       "not PA or atten_mask is None or sparse_mode in (2, 3, 4) or "                            \
       "atten_mask.shape[-1] >= block_table.shape[1] * bs"},                                     \
      {op ".block_decode",                                                                       \
       "not PA or Qs > 1 or (0 < bs <= 512 and bs % (32 if key.dtype == int8 else 16) == 0)",    \
       "128 is advised"},                                                                        \
      {op ".block_prefill",                                                                      \
       "not PA or q_rope or Qs == 1 or (128 <= bs <= 512 and bs % 128 == 0)"},                   \
      {op ".pa_h_limit", "not PA or key.ndim != 3 or Nkv * D <= 65535",                          \
       "of a cache [blocks, block, heads * D]: use [blocks, heads, block, D] or fewer heads"},   \
      {op ".axes", "B <= 65536 and Nq <= 256 and D <= 512"},                                     \
      {op ".s_decode", "Qs > 1 or KVs <= 262144"},                                               \
      {op ".s_prefill", "Qs == 1 or Qs <= 20971520",                                             \
       "very long products time out before: split the queries"},                                 \
      {op ".d_align", "D % (32 if int8 in (query.dtype, key.dtype) else 16) == 0"},              \
      {op ".tnd_len",                                                                            \
       "not packed or (q_lens is not None and kv_lens is not None and len(q_lens) == B)"},       \
      {op ".tnd_q_cumulative", "not packed or q_lens is None or nondecreasing(q_lens)",          \
       "lengths of queries are running totals"}

// Symbols by the names of the arguments that hold lengths and heads.
#define TK_SHARED_SYMBOLS(q_lens_arg, kv_lens_arg, heads_arg)                                      \
  {"q_lens", q_lens_arg}, {"kv_lens", kv_lens_arg},                                                \
      {"packed", "input_layout in (\"TND\", \"TND_NTD\", \"NTD_TND\", \"NTD\")"},                  \
      {"flat", "input_layout in (\"BSH\", \"BSH_NBSD\", \"BSH_BNSD\")", "heads * D in one axis"},  \
      {"heads_first", "input_layout in (\"BNSD\", \"BNSD_BSND\", \"BNSD_NBSD\")"},                 \
      {"PA", "block_table is not None", "a paged cache"}, {"bs", "block_size"},                    \
      {"NZ", "PA and key.ndim == 5", "the cache as [blocks, heads, D / lanes, block, lanes]"},     \
      {"q_rope", "query_rope is not None"}, {"k_rope", "key_rope is not None"},                    \
      {"Nq", heads_arg, "query heads"},                                                            \
      {"Nkv", "num_key_value_heads if num_key_value_heads != 0 else " heads_arg, "kv heads"},      \
      {"B", "len(q_lens) if packed else query.shape[0]", "requests"},                              \
      {"T", "query.shape[1] if input_layout in (\"NTD\", \"NTD_TND\") else query.shape[0]",        \
       "packed tokens"},                                                                           \
      {"Qs", "max(diff(q_lens)) if packed else query.shape[2] if heads_first else query.shape[1]", \
       "queries of a request"},                                                                    \
      {"KVs",                                                                                      \
       "max(kv_lens) if PA else max(diff(kv_lens)) if packed else key.shape[2] if heads_first "    \
       "else key.shape[1]",                                                                        \
       "keys of a request"},                                                                       \
      {"D", "query.shape[-1] // Nq if flat else query.shape[-1]", "head dim of query and key"},    \
      {"Dv",                                                                                       \
       "value.shape[2] * value.shape[4] if NZ else value.shape[-1] // Nkv if flat and not PA or "  \
       "PA and value.ndim == 3 else value.shape[-1]",                                              \
       "head dim of value"},                                                                       \
      {"Dr", "query_rope.shape[-1] // Nq if flat else query_rope.shape[-1]", "rope dim"}

// Notes that hold for both.
#define TK_SHARED_NOTES                                                                            \
  "one query a request takes the incremental kernel, otherwise the prompt kernel; without rope "   \
  "the document has sparse_mode, pre_tokens and next_tokens ignored there, so that a window is "   \
  "not enforced by the operator in decode; the reference here enforces it",                        \
      "sparse_mode 0 without a mask: all keys, pre_tokens and next_tokens ignored; with one: the " \
      "mask, and queries see from pre_tokens before to next_tokens behind their own number; 1: "   \
      "the mask alone; 2: causal, aligned at the first key; 3: causal, aligned at the last key; "  \
      "4: from pre_tokens before to next_tokens behind, aligned at the last key; 5 to 8 are not "  \
      "there; 9, a tree mask, is not known here",                                                  \
      "inner_precise: bit 0 is 0 accurate or 1 fast (float16 alone), bit 1 corrects rows that "    \
      "see no key; the reference is accurate, and such rows are zeros",                            \
      "key lengths: paged, one a request; packed and not paged, running totals; otherwise one a "  \
      "request or one for all",                                                                    \
      "caches: [blocks, block, heads * D] for every query layout; [blocks, heads, block, D]; MLA " \
      "and int8 also NZ [blocks, heads, D / 16, block, 16], with 32 for int8",                     \
      "int8 keys and values: quantisation mode 0 a channel or the tensor, 1 a token, 2 a head, "   \
      "3 a token and head, 4 and 5 as 1 and 3 with scales paged like the cache",                   \
      "key and value have fewer than 2**31 elements each in a paged call; left padding, tensor "   \
      "lists and a shared prefix are excluded there",                                              \
      "not known here: int4 keys and values, left padding (query_padding_size, "                   \
      "kv_padding_size), a shared prefix, quantised products of int8 queries without a rope part", \
      "an empty query gives nothing, an empty key zeros"

// ---- v1

constexpr std::string_view v1_refused[] = {"dequant_scale1",          "quant_scale1",
                                           "dequant_scale2",          "query_padding_size",
                                           "kv_padding_size",         "key_shared_prefix",
                                           "value_shared_prefix",     "actual_shared_prefix_len",
                                           "key_rope_antiquant_scale"};
const AttentionNames v1_names{.heads = "num_heads",
                              .scale = "scale",
                              .q_lens = "actual_seq_lengths",
                              .kv_lens = "actual_seq_lengths_kv",
                              .lse = "softmax_lse_flag",
                              .key_scale = "key_antiquant_scale",
                              .key_offset = "key_antiquant_offset",
                              .key_mode = "key_antiquant_mode",
                              .value_scale = "value_antiquant_scale",
                              .value_offset = "value_antiquant_offset",
                              .value_mode = "value_antiquant_mode",
                              .out_scale = "quant_scale2",
                              .out_offset = "quant_offset2",
                              .both_scale = "antiquant_scale",
                              .both_offset = "antiquant_offset",
                              .both_mode = "antiquant_mode",
                              .refused = v1_refused};

constexpr Symbol v1_symbols[] = {
    TK_SHARED_SYMBOLS("actual_seq_lengths", "actual_seq_lengths_kv", "num_heads")};
constexpr Limit v1_limits[] = {TK_SHARED_LIMITS("fused_infer_attention_score")};
constexpr std::string_view v1_notes[] = {
    TK_SHARED_NOTES,
    "the document lists the layouts BSH, BSND, BNSD, BNSD_BSND and TND; models use TND_NTD, "
    "NTD_TND "
    "and BSND_NBSD too",
    "the document says that TND excludes paging, then lists paged caches for TND: models use it",
    "MLA: one query has sparse_mode 0 without a mask or 4 with one, more have 3 or 4 with one; 32, "
    "64 or 128 heads where sparse_mode is not 4; sparse_mode 4 needs 128 heads and at most 131088 "
    "keys",
    "a keyword of v2 (actual_seq_qlen) is an error here, it is not ignored",
};
constexpr NpuFacts v1_facts{
    .group = "attention",
    .signature =
        "npu_fused_infer_attention_score(Tensor query, Tensor key, Tensor value, *, Tensor? "
        "pse_shift=None, Tensor? atten_mask=None, SymInt[]? actual_seq_lengths=None, SymInt[]? "
        "actual_seq_lengths_kv=None, Tensor? dequant_scale1=None, Tensor? quant_scale1=None, "
        "Tensor? dequant_scale2=None, Tensor? quant_scale2=None, Tensor? quant_offset2=None, "
        "Tensor? antiquant_scale=None, Tensor? antiquant_offset=None, Tensor? "
        "key_antiquant_scale=None, Tensor? key_antiquant_offset=None, Tensor? "
        "value_antiquant_scale=None, Tensor? value_antiquant_offset=None, Tensor? "
        "block_table=None, Tensor? query_padding_size=None, Tensor? kv_padding_size=None, Tensor? "
        "key_shared_prefix=None, Tensor? value_shared_prefix=None, SymInt[]? "
        "actual_shared_prefix_len=None, Tensor? query_rope=None, Tensor? key_rope=None, Tensor? "
        "key_rope_antiquant_scale=None, int num_heads=1, float scale=1.0, int "
        "pre_tokens=2147483647, int next_tokens=2147483647, str input_layout=\"BSH\", int "
        "num_key_value_heads=0, int sparse_mode=0, int inner_precise=0, int block_size=0, int "
        "antiquant_mode=0, int key_antiquant_mode=0, int value_antiquant_mode=0, bool "
        "softmax_lse_flag=False) -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode =
        "stated; shape function; GE converter; npugraph_ex updates actual_seq_lengths, "
        "actual_seq_lengths_kv, actual_shared_prefix_len",
    .notes = v1_notes,
    .symbols = v1_symbols,
    .limits = v1_limits,
};

// ---- v2

constexpr std::string_view v2_refused[] = {"dequant_scale_key_rope",
                                           "quant_scale_p",
                                           "query_dtype",
                                           "key_dtype",
                                           "value_dtype",
                                           "query_rope_dtype",
                                           "key_rope_dtype",
                                           "key_shared_prefix_dtype",
                                           "value_shared_prefix_dtype",
                                           "dequant_scale_query_dtype",
                                           "dequant_scale_key_dtype",
                                           "dequant_scale_value_dtype",
                                           "dequant_scale_key_rope_dtype",
                                           "out_dtype"};
const AttentionNames v2_names{.heads = "num_query_heads",
                              .scale = "softmax_scale",
                              .q_lens = "actual_seq_qlen",
                              .kv_lens = "actual_seq_kvlen",
                              .lse = "return_softmax_lse",
                              .key_scale = "dequant_scale_key",
                              .key_offset = "dequant_offset_key",
                              .key_mode = "key_quant_mode",
                              .value_scale = "dequant_scale_value",
                              .value_offset = "dequant_offset_value",
                              .value_mode = "value_quant_mode",
                              .out_scale = "quant_scale_out",
                              .out_offset = "quant_offset_out",
                              .query_scale = "dequant_scale_query",
                              .sinks = "learnable_sink",
                              .refused = v2_refused};

constexpr Symbol v2_symbols[] = {
    TK_SHARED_SYMBOLS("actual_seq_qlen", "actual_seq_kvlen", "num_query_heads")};
constexpr Limit v2_limits[] = {
    TK_SHARED_LIMITS("fused_infer_attention_score_v2"),
    {"fused_infer_attention_score_v2.mla512_heads",
     "not (q_rope and D == 512) or Nq in (1, 2, 4, 8, 16, 32, 64, 128)"},
    {"fused_infer_attention_score_v2.mla512_sparse",
     "not (q_rope and D == 512) or (sparse_mode == 0 and atten_mask is None if Qs == 1 else "
     "sparse_mode == 3 and atten_mask is not None)"},
    {"fused_infer_attention_score_v2.mla512_nz_layout",
     "not (q_rope and D == 512 and NZ) or input_layout not in (\"BNSD\", \"BNSD_NBSD\")"},
    {"fused_infer_attention_score_v2.mla128_layout",
     "not (q_rope and D == 128) or input_layout in (\"TND\", \"NTD_TND\")",
     "the prefill form; not paged"},
    {"fused_infer_attention_score_v2.tnd_T", "not packed or T <= 1048576"},
    {"fused_infer_attention_score_v2.tnd_dims",
     "input_layout not in (\"TND\", \"NTD_TND\") or q_rope or D == 512 or (D, Dv) in ((128, 128), "
     "(192, 128), (192, 192)) or (D == 64 and Dv == 64 and Nq == Nkv)",
     "head dims of the packed prompt kernel; 64 where every query head has its own keys"},
    {"fused_infer_attention_score_v2.tnd_dtype",
     "input_layout not in (\"TND\", \"NTD_TND\") or D == 512 or query.dtype == bf16"},
    {"fused_infer_attention_score_v2.tnd_batch", "not packed or D == 512 or B <= 4096"},
    {"fused_infer_attention_score_v2.sink",
     "learnable_sink is None or (input_layout in (\"TND\", \"NTD_TND\") and Dv <= 128)"},
    {"fused_infer_attention_score_v2.out_quant", "quant_scale_out is None or not q_rope"},
};
constexpr std::string_view v2_notes[] = {
    TK_SHARED_NOTES,
    "packed with D other than 512: sparse_mode 0 without a mask, 3 with one, 4 with one "
    "(pre_tokens >= -Qs, next_tokens >= -KVs, their sum >= 0)",
    "packed with D other than 512: the text forbids tiling_schedule_optimize and reduce-overhead; "
    "models compile with it: pending, not rejected",
    "quantised MLA: query, key and value int8, rope parts and result bf16, all three scales fp32, "
    "query_quant_mode 3, key and value in one scale each, NZ cache",
    "int8 NZ caches of GQA: bf16 query, D 128, 1 to 16 queries, BSH, BSND or BNSD, block 128 or "
    "512, heads (10, 1), (64, 8), (80, 8) or (128, 16)",
    "the text has fewer queries than keys for sparse_mode 3 of packed tokens; prefill has as many "
    "in every model: taken as <=",
    "newer documents (op-plugin) add D 64 for packed tokens of as many heads of keys as of queries",
    "the library's default of num_key_value_heads is 0, the torchair reference prints 1",
    "query_dtype to out_dtype are reserved: refused when given",
};
constexpr NpuFacts v2_facts{
    .group = "attention",
    .signature =
        "npu_fused_infer_attention_score_v2(Tensor query, Tensor key, Tensor value, *, Tensor? "
        "query_rope=None, Tensor? key_rope=None, Tensor? pse_shift=None, Tensor? atten_mask=None, "
        "SymInt[]? actual_seq_qlen=None, SymInt[]? actual_seq_kvlen=None, Tensor? "
        "block_table=None, Tensor? dequant_scale_query=None, Tensor? dequant_scale_key=None, "
        "Tensor? dequant_offset_key=None, Tensor? dequant_scale_value=None, Tensor? "
        "dequant_offset_value=None, Tensor? dequant_scale_key_rope=None, Tensor? "
        "quant_scale_out=None, Tensor? quant_offset_out=None, Tensor? quant_scale_p=None, Tensor? "
        "learnable_sink=None, int num_query_heads=1, int num_key_value_heads=0, float "
        "softmax_scale=1.0, int pre_tokens=2147483647, int next_tokens=2147483647, str "
        "input_layout=\"BSH\", int sparse_mode=0, int block_size=0, int query_quant_mode=0, int "
        "key_quant_mode=0, int value_quant_mode=0, int inner_precise=0, bool "
        "return_softmax_lse=False, int? query_dtype=None, int? key_dtype=None, int? "
        "value_dtype=None, int? query_rope_dtype=None, int? key_rope_dtype=None, int? "
        "key_shared_prefix_dtype=None, int? value_shared_prefix_dtype=None, int? "
        "dequant_scale_query_dtype=None, int? dequant_scale_key_dtype=None, int? "
        "dequant_scale_value_dtype=None, int? dequant_scale_key_rope_dtype=None, int? "
        "out_dtype=None) -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode =
        "stated; shape function; GE converter; npugraph_ex updates actual_seq_qlen and "
        "actual_seq_kvlen",
    .notes = v2_notes,
    .symbols = v2_symbols,
    .limits = v2_limits,
};

}  // namespace

const OpDef npu_fused_infer_attention_score{
    .name = "npu.npu_fused_infer_attention_score",
    .schema =
        "(Tensor query, Tensor key, Tensor value, Tensor? pse_shift=None, Tensor? atten_mask=None, "
        "Tensor? actual_seq_lengths=None, Tensor? actual_seq_lengths_kv=None, Tensor? "
        "dequant_scale1=None, Tensor? quant_scale1=None, Tensor? dequant_scale2=None, Tensor? "
        "quant_scale2=None, Tensor? quant_offset2=None, Tensor? antiquant_scale=None, Tensor? "
        "antiquant_offset=None, Tensor? key_antiquant_scale=None, Tensor? "
        "key_antiquant_offset=None, Tensor? value_antiquant_scale=None, Tensor? "
        "value_antiquant_offset=None, Tensor? block_table=None, Tensor? query_padding_size=None, "
        "Tensor? kv_padding_size=None, Tensor? key_shared_prefix=None, Tensor? "
        "value_shared_prefix=None, Tensor? actual_shared_prefix_len=None, Tensor? query_rope=None, "
        "Tensor? key_rope=None, Tensor? key_rope_antiquant_scale=None, int num_heads=1, float "
        "scale=1.0, int pre_tokens=2147483647, int next_tokens=2147483647, str "
        "input_layout=\"BSH\", int num_key_value_heads=0, int sparse_mode=0, int inner_precise=0, "
        "int block_size=0, int antiquant_mode=0, int key_antiquant_mode=0, int "
        "value_antiquant_mode=0, bool softmax_lse_flag=False) -> (Tensor attention_out, Tensor "
        "softmax_lse)",
    .doc =
        "softmax(query @ key^T * scale + pse_shift, masked) @ value per head, of requests padded "
        "to "
        "one length or packed, over keys as given or in a paged cache. The part of input_layout "
        "after _ is the result's. Lengths are host lists in torch_npu; packed ones are running "
        "totals. int8 keys and values are (x + offset) * scale; quant_scale2 makes the result "
        "int8. softmax_lse is [B, heads, S, 1] or [T, heads, 1], empty when off; a query that sees "
        "no key gives zeros and inf.",
    .infer = [](const Args& a) { return fused_attention_infer(a, v1_names); },
    .eval = [](const EvalArgs& a) { fused_attention_eval(a, v1_names); },
    .cost = [](const Args& a, const Load& l) { return fused_attention_cost(a, l, v1_names); },
    .npu = &v1_facts,
};

const OpDef npu_fused_infer_attention_score_v2{
    .name = "npu.npu_fused_infer_attention_score_v2",
    .schema =
        "(Tensor query, Tensor key, Tensor value, Tensor? query_rope=None, Tensor? key_rope=None, "
        "Tensor? atten_mask=None, Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, "
        "Tensor? block_table=None, Tensor? learnable_sink=None, Tensor? pse_shift=None, Tensor? "
        "dequant_scale_query=None, Tensor? dequant_scale_key=None, Tensor? "
        "dequant_offset_key=None, Tensor? dequant_scale_value=None, Tensor? "
        "dequant_offset_value=None, Tensor? dequant_scale_key_rope=None, Tensor? "
        "quant_scale_out=None, Tensor? quant_offset_out=None, Tensor? quant_scale_p=None, int "
        "num_query_heads=1, int num_key_value_heads=0, float softmax_scale=1.0, int "
        "pre_tokens=2147483647, int next_tokens=2147483647, str input_layout=\"BSH\", int "
        "sparse_mode=0, int block_size=0, int query_quant_mode=0, int key_quant_mode=0, int "
        "value_quant_mode=0, int inner_precise=0, bool return_softmax_lse=False, dtype? "
        "query_dtype=None, dtype? key_dtype=None, dtype? value_dtype=None, dtype? "
        "query_rope_dtype=None, dtype? key_rope_dtype=None, dtype? key_shared_prefix_dtype=None, "
        "dtype? value_shared_prefix_dtype=None, dtype? dequant_scale_query_dtype=None, dtype? "
        "dequant_scale_key_dtype=None, dtype? dequant_scale_value_dtype=None, dtype? "
        "dequant_scale_key_rope_dtype=None, dtype? out_dtype=None) -> (Tensor attention_out, "
        "Tensor softmax_lse)",
    .doc =
        "As npu_fused_infer_attention_score, with other names, a sink for each head (a logit that "
        "takes part in the denominator alone) and int8 queries of MLA, one scale a token and head.",
    .infer = [](const Args& a) { return fused_attention_infer(a, v2_names); },
    .eval = [](const EvalArgs& a) { fused_attention_eval(a, v2_names); },
    .cost = [](const Args& a, const Load& l) { return fused_attention_cost(a, l, v2_names); },
    .npu = &v2_facts,
};

}  // namespace tk::ops

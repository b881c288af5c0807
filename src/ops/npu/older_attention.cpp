// The attentions of torch_npu 2.14 that the fused ones took the place of: one query a request
// (incremental), and prompts.
#include "base/error.h"
#include "ops/npu/attention_layout.h"
#include "ops/npu/fused_attention.h"
#include "ops/npu/npu_ops.h"

namespace tk::ops {
namespace {

// ---- npu_incre_flash_attention

constexpr std::string_view incre_refused[] = {"padding_mask", "dequant_scale1", "quant_scale1",
                                              "dequant_scale2", "kv_padding_size"};
const AttentionNames incre_names{.heads = "num_heads",
                                 .scale = "scale_value",
                                 .kv_lens = "actual_seq_lengths",
                                 .out_scale = "quant_scale2",
                                 .out_offset = "quant_offset2",
                                 .both_scale = "antiquant_scale",
                                 .both_offset = "antiquant_offset",
                                 .decode = true,
                                 .refused = incre_refused};

std::vector<Type> incre_infer(const Args& args) {
  const std::string& layout = args.text("input_layout");
  if (layout != "BSH" && layout != "BNSD" && layout != "BSND")
    args.fail(cat("has input_layout BSH, BNSD and BSND, got \"", layout, "\""));
  const auto queries = size_along(args.in(0), layout, 'S', 1);
  if (args.in(0).rank() != static_cast<int>(layout.size()) || !queries || !queries->is(1))
    args.fail(cat("needs one query a request, ", layout, " with S 1, got ", args.in(0).str()));
  return fused_attention_infer(args, incre_names);
}

constexpr std::string_view incre_notes[] = {
    "num_heads is the size of query's head axis",
    "npu_fused_infer_attention_score takes its place",
    "query: fp16, bf16, one token; actual_seq_lengths: a host list of key lengths, one a request "
    "or "
    "one for all",
    "antiquant_scale and antiquant_offset: [2, heads * D] of keys and values, or one each",
    "not known here: padding_mask, kv_padding_size, quantised products (dequant_scale1, "
    "quant_scale1, dequant_scale2)",
};
constexpr NpuFacts incre_facts{
    .group = "attention",
    .signature =
        "npu_incre_flash_attention(Tensor query, Tensor key, Tensor value, *, Tensor? "
        "padding_mask=None, Tensor? atten_mask=None, Tensor? pse_shift=None, SymInt[]? "
        "actual_seq_lengths=None, Tensor? antiquant_scale=None, Tensor? antiquant_offset=None, "
        "Tensor? block_table=None, Tensor? dequant_scale1=None, Tensor? quant_scale1=None, Tensor? "
        "dequant_scale2=None, Tensor? quant_scale2=None, Tensor? quant_offset2=None, Tensor? "
        "kv_padding_size=None, int num_heads=1, float scale_value=1.0, str input_layout=\"BSH\", "
        "int num_key_value_heads=0, int block_size=0, int inner_precise=1) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "not named",
    .graph_mode = "stated; shape function; GE converter",
    .notes = incre_notes,
};

// ---- npu_prompt_flash_attention

constexpr std::string_view prompt_refused[] = {"padding_mask", "deq_scale1", "quant_scale1",
                                               "deq_scale2"};
const AttentionNames prompt_names{.heads = "num_heads",
                                  .scale = "scale_value",
                                  .q_lens = "actual_seq_lengths",
                                  .kv_lens = "actual_seq_lengths_kv",
                                  .out_scale = "quant_scale2",
                                  .out_offset = "quant_offset2",
                                  .refused = prompt_refused};

std::vector<Type> prompt_infer(const Args& args) {
  const std::string& layout = args.text("input_layout");
  for (const char* name : {"BSH", "BSND", "BNSD", "BNSD_BSND", "TND"})
    if (layout == name) return fused_attention_infer(args, prompt_names);
  args.fail(cat("has input_layout BSH, BSND, BNSD, BNSD_BSND and TND, got \"", layout, "\""));
}

constexpr std::string_view prompt_notes[] = {
    "npu_fused_infer_attention_score takes its place; its scales are deq_scale1 and deq_scale2 "
    "here",
    "next_tokens is 0 unless given, unlike there: with a mask in sparse_mode 0, queries see no key "
    "behind their own number",
    "not known here: padding_mask, quantised products (deq_scale1, quant_scale1, deq_scale2)",
};
constexpr NpuFacts prompt_facts{
    .group = "attention",
    .signature =
        "npu_prompt_flash_attention(Tensor query, Tensor key, Tensor value, *, Tensor? "
        "padding_mask=None, Tensor? atten_mask=None, Tensor? pse_shift=None, int[]? "
        "actual_seq_lengths=None, Tensor? deq_scale1=None, Tensor? quant_scale1=None, Tensor? "
        "deq_scale2=None, Tensor? quant_scale2=None, Tensor? quant_offset2=None, int num_heads=1, "
        "float scale_value=1.0, int pre_tokens=2147483647, int next_tokens=0, str "
        "input_layout=\"BSH\", int num_key_value_heads=0, int[]? actual_seq_lengths_kv=None, int "
        "sparse_mode=0) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .notes = prompt_notes,
};

}  // namespace

const OpDef npu_incre_flash_attention{
    .name = "npu.npu_incre_flash_attention",
    .schema =
        "(Tensor query, Tensor key, Tensor value, Tensor? padding_mask=None, Tensor? "
        "atten_mask=None, Tensor? pse_shift=None, Tensor? actual_seq_lengths=None, Tensor? "
        "antiquant_scale=None, Tensor? antiquant_offset=None, Tensor? block_table=None, Tensor? "
        "dequant_scale1=None, Tensor? quant_scale1=None, Tensor? dequant_scale2=None, Tensor? "
        "quant_scale2=None, Tensor? quant_offset2=None, Tensor? kv_padding_size=None, int "
        "num_heads=1, float scale_value=1.0, str input_layout=\"BSH\", int num_key_value_heads=0, "
        "int block_size=0, int inner_precise=1) -> Tensor",
    .doc = "npu_fused_infer_attention_score for one query a request, without sparse_mode.",
    .infer = incre_infer,
    .eval = [](const EvalArgs& a) { fused_attention_eval(a, incre_names); },
    .cost = [](const Args& a, const Load& l) { return fused_attention_cost(a, l, incre_names); },
    .npu = &incre_facts,
};

const OpDef npu_prompt_flash_attention{
    .name = "npu.npu_prompt_flash_attention",
    .schema =
        "(Tensor query, Tensor key, Tensor value, Tensor? padding_mask=None, Tensor? "
        "atten_mask=None, Tensor? pse_shift=None, Tensor? actual_seq_lengths=None, Tensor? "
        "deq_scale1=None, Tensor? quant_scale1=None, Tensor? deq_scale2=None, Tensor? "
        "quant_scale2=None, Tensor? quant_offset2=None, Tensor? actual_seq_lengths_kv=None, int "
        "num_heads=1, float scale_value=1.0, int pre_tokens=2147483647, int next_tokens=0, str "
        "input_layout=\"BSH\", int num_key_value_heads=0, int sparse_mode=0) -> Tensor",
    .doc = "npu_fused_infer_attention_score without paging, rope parts and quantised keys.",
    .infer = prompt_infer,
    .eval = [](const EvalArgs& a) { fused_attention_eval(a, prompt_names); },
    .cost = [](const Args& a, const Load& l) { return fused_attention_cost(a, l, prompt_names); },
    .npu = &prompt_facts,
};

}  // namespace tk::ops

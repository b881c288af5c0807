#include "emit/graph_mode.h"

#include "base/error.h"
#include "emit/files.h"

namespace tk::emit {
namespace {

constexpr GraphOption npugraph_settings[] = {
    {"backend", "\"npugraph_ex\"", "GM-01: decode has fixed shapes and is bound by its launches"},
    {"dynamic", "True",
     "GM-20: attention takes lists of lengths; with False each value is a graph of its own"},
    {"fullgraph", "True", "GM-50: a break is an error here, not a slower step"},
};
constexpr GraphOption npugraph_options[] = {
    {"frozen_parameter", "True",
     "GM-31: weights are not moved after loading, so no replay looks at their addresses"},
    {"clone_input", "", "GM-32: inputs are new tensors in each step; the default copies them in"},
    {"clone_output", "", "GM-32: the next token is taken from the logits before the next replay"},
    {"capture_limit", "", "GM-31: one capture for each batch; 64 are allowed"},
    {"static_kernel_compile", "", "GM-51: after capture is proven, in a trial of its own"},
    {"super_kernel_optimize", "",
     "GM-51: last of all, in a trial of its own; pending for npugraph_ex"},
    {"use_graph_pool", "", "GM-33: graphs of one function share a pool by default"},
    {"inplace_pass", "", "GM-37: the default passes are what the estimates assume"},
};
constexpr GraphOption ge_settings[] = {
    {"backend", "torchair.get_npu_backend(compiler_config=config)",
     "GM-01: the whole graph is compiled by GE"},
    {"dynamic", "False", "GM-20: lengths are tensors, so one static graph serves all steps"},
    {"fullgraph", "True", "GM-36: GE takes whole graphs"},
};
constexpr GraphOption ge_options[] = {
    {"experimental_config.frozen_parameter", "True",
     "GM-36: weights are not moved after loading; they are contiguous when they are loaded"},
    {"experimental_config.tiling_schedule_optimize", "True",
     "GM-36: tiling goes to the device with the graph; lengths are tensors, so GM-24 allows it"},
    {"experimental_config.topology_sorting_strategy", "\"StableRDFS\"",
     "GM-36: the same order on each rank; another can deadlock collectives"},
    {"mode", "", "GM-36: max-autotune is the mode of GE; reduce-overhead is npugraph_ex"},
    {"inference_config.dynamic_gears_merge_policy", "",
     "GM-36: gears want dynamic=True; this batch is fixed"},
};

std::string settings_text(std::span<const GraphOption> options, std::string_view indent,
                          std::string_view equals, std::string_view quote) {
  std::string text;
  for (const GraphOption& o : options) {
    if (o.value.empty() || o.reason.empty()) continue;  // without a reason none is written
    text += cat(indent, "# ", o.reason, "\n", indent, quote, o.name, quote, equals, o.value, ",\n");
  }
  return text;
}

std::string config_text(std::span<const GraphOption> options) {
  std::string text;
  for (const GraphOption& o : options)
    if (!o.value.empty() && !o.reason.empty())
      text += cat("    # ", o.reason, "\n    config.", o.name, " = ", o.value, "\n");
  return text;
}

std::string left_text(std::span<const GraphOption> options) {
  std::string text;
  for (const GraphOption& o : options)
    if (o.value.empty()) text += cat("    ", o.name, ": ", o.reason, "\n");
  return text;
}

constexpr std::string_view file_text =
    R"py("""Decode as one graph of @MODE@; prefill stays eager, its lengths differ (GM-02).

Each setting has the rule that it is from. Left as the library has it:
@LEFT@"""

import torch
@IMPORT@

def compile_decode(model):
    """The decode step, compiled at its first call: warm up once for each batch before serving."""
@CONFIG@    return torch.compile(
        model,
@SETTINGS@    )


def mark_static(*tensors):
    """Shapes that stay, so that lengths alone may be symbols (GM-14, GM-20)."""
    for tensor in tensors:
        torch._dynamo.mark_static(tensor)


def mark_caches_static(model):
    """Caches are the tensors that modules hold without registering them."""
    for module in model.modules():
        mark_static(*(v for v in vars(module).values() if isinstance(v, torch.Tensor)))
)py";

constexpr std::string_view tensors_text = R"py(
    def tensors(self):
        """What keeps its shape from step to step of one batch."""
        return (
            self.slot_mapping,
            self.block_table,
            self.actual_seq_lengths_kv,
            self.actual_seq_lengths_cu_q,
            self.logit_rows,
        )
)py";

constexpr std::string_view ge_metadata_text = R"py(
    @property
    def npu(self):
        """Attention of eager prefill takes lists of lengths, that of a GE graph tensors (GM-20)."""
        return torch_npu if self.is_prefill else torchair.ops

    @property
    def lengths_kv(self):
        if self.is_prefill:
            return self.actual_seq_lengths_list_kv
        return self.actual_seq_lengths_kv.long()

    @property
    def lengths_cu_q(self):
        if self.is_prefill:
            return self.actual_seq_lengths_cu_list_q
        return self.actual_seq_lengths_cu_q.long()
)py";

void replace_all(std::string* text, std::string_view from, std::string_view to) {
  for (std::size_t at = text->find(from); at != text->npos; at = text->find(from, at + to.size()))
    text->replace(at, from.size(), to);
}

}  // namespace

std::string_view name_of(ExeMode mode) {
  switch (mode) {
    case ExeMode::npugraph_ex:
      return "npugraph_ex";
    case ExeMode::ge_graph:
      return "ge_graph";
    case ExeMode::eager:
      break;
  }
  return "eager";
}

bool parse_exe_mode(std::string_view text, ExeMode* mode) {
  if (text == "acl_graph" || text == "aclgraph") text = "npugraph_ex";
  for (const ExeMode m : {ExeMode::eager, ExeMode::npugraph_ex, ExeMode::ge_graph})
    if (text == name_of(m)) {
      *mode = m;
      return true;
    }
  return false;
}

std::span<const GraphOption> compile_settings(ExeMode mode) {
  if (mode == ExeMode::npugraph_ex) return npugraph_settings;
  if (mode == ExeMode::ge_graph) return ge_settings;
  return {};
}

std::span<const GraphOption> backend_options(ExeMode mode) {
  if (mode == ExeMode::npugraph_ex) return npugraph_options;
  if (mode == ExeMode::ge_graph) return ge_options;
  return {};
}

std::string graph_mode_text(ExeMode mode) {
  if (mode == ExeMode::eager) return "";
  const bool ge = mode == ExeMode::ge_graph;
  std::string settings = settings_text(compile_settings(mode), "        ", "=", "");
  if (!ge)
    settings +=
        cat("        options={\n", settings_text(backend_options(mode), "            ", ": ", "\""),
            "        },\n");
  const std::string config =
      ge ? cat("    config = torchair.CompilerConfig()\n", config_text(backend_options(mode))) : "";
  return filled(std::string(file_text),
                {{"MODE", std::string(name_of(mode))},
                 {"LEFT", left_text(backend_options(mode))},
                 {"IMPORT", ge ? "import torch_npu  # noqa: F401, before torchair (GM-36)\n"
                                 "import torchair\n"
                               : "import torch_npu  # noqa: F401, registers the backend\n"},
                 {"CONFIG", config},
                 {"SETTINGS", settings}});
}

std::string metadata_for_graph_mode(ExeMode mode) {
  if (mode == ExeMode::eager) return "";
  return cat(tensors_text, mode == ExeMode::ge_graph ? ge_metadata_text : "");
}

std::string for_graph_mode(std::string classes, ExeMode mode) {
  if (mode != ExeMode::ge_graph) return classes;
  replace_all(&classes, "torch_npu.npu_fused_infer_attention_score",
              "forward_metadata.npu.npu_fused_infer_attention_score");
  replace_all(&classes, "forward_metadata.actual_seq_lengths_list_kv",
              "forward_metadata.lengths_kv");
  replace_all(&classes, "forward_metadata.actual_seq_lengths_cu_list_q",
              "forward_metadata.lengths_cu_q");
  return classes;
}

std::string graph_keys(ExeMode mode) {
  if (mode == ExeMode::npugraph_ex)
    return "  enable_dynamic_graph: True  # lengths are lists (GM-20)\n"
           "  enable_static_kernel: False  # a trial of its own, after capture is proven (GM-51)\n"
           "  enable_cache_compile: False  # the same\n";
  if (mode == ExeMode::ge_graph)
    return "  enable_dynamic_graph: False  # an error with ge_graph (GM-05); lengths are tensors\n"
           "  enable_cache_compile: False  # a trial of its own, after capture is proven (GM-51)\n";
  return "";
}

}  // namespace tk::emit

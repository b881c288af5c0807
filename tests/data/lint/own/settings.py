# GM-05, GM-35, GM-36, GM-39: options, pairs and names.
import torch
import torch_npu
import torchair
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v, lengths: list[int], is_prefill: bool = False):
        return torch_npu.npu_fused_infer_attention_score(
            q, k, v, actual_seq_lengths_kv=lengths, num_heads=8, scale=0.1)

    def decode(self, x: torch.Tensor):
        return x * 2


def build():
    model = Model()
    compiled = torch.compile(  # expect: wrong-dynamic
        model, backend="npugraph_ex", dynamic=False, fullgraph=True,
        options={
            "frozen_parameters": True,  # expect: unknown-option
            "capture_limit": 0,  # expect: unknown-option
            "data_dump_stage": "before",  # expect: unknown-option
            "clone_input": True,
        })
    compiled(1, 2, 3, [4], is_prefill=True)
    compiled(1, 2, 3, [4], is_prefill=False)  # expect: two-modes-one-entry
    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    config.experimental_config.frozen_parameter = True
    config.experimental_config.tiling_schedule_optimise = True  # expect: unknown-option
    config.experimental_config.enable_ref_data = True  # expect: option-pair
    config.experimental_config.topology_sorting_strategy = "Stable"  # expect: unknown-option
    torchair.inference.cache_compiles(model.decode)  # expect: unknown-attribute
    settings = dict(exe_mode="ge_graph", enable_dynamic_graph=True)  # expect: option-pair
    return compiled, config, settings

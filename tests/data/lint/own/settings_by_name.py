# GM-35, GM-36, GM-38: two traces of one cached method are an error.
# Settings that reach the compiler by a name, a function, a copy or **.
import torch
import torch_npu
import torchair
from torch import nn
from torchair import get_npu_backnd  # expect: unknown-attribute

DYNAMIC = False
OPTIONS = {"frozen_parameter": True}
OPTIONS["clone_inputs"] = True  # expect: unknown-option
OPTIONS.update(capture_limits=3)  # expect: unknown-option


def more():
    return {"frozen_params": True}  # expect: unknown-option


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torchair.inference.cache_compile(self.decode)
        self.second = torchair.inference.cache_compile(self.decode)  # expect: cache-compile

    def decode(self, x):
        return x

    def forward(self, q, k, v, lengths: list[int]):
        return torch_npu.npu_fused_infer_attention_score(
            q, k, v, actual_seq_lengths_kv=lengths, num_heads=8, scale=0.125
        )


one = torch.compile(Model(), backend="npugraph_ex", dynamic=True, options=OPTIONS)
two = torch.compile(Model(), backend="npugraph_ex", dynamic=True, options=more())
three = torch.compile(Model(), backend="npugraph_ex", dynamic=DYNAMIC)  # expect: wrong-dynamic
settings = dict(backend="npugraph_ex", dynamic=False)
four = torch.compile(Model(), **settings)  # expect: wrong-dynamic

config = torchair.CompilerConfig()
experimental = config.experimental_config
experimental.frozen_params = True  # expect: unknown-option
setattr(config, "modes", "max-autotune")  # expect: unknown-option


def generate(q, k, v):
    for step in range(32):
        q = one(q, k, v, step)  # expect: python-counter-input
    return q


def train(batches):
    for i, batch in enumerate(batches):
        print(i, one(batch, batch, batch, [3]))

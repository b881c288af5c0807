# backend of the code: ge_graph
import torch
import torch_npu
import torchair
from torch import nn


class Model(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.fc = nn.Linear(hidden, hidden)

    def prefill(self, x, lengths):
        return self.fc(x)[:, : lengths.max().item()]

    def step(self, x):
        if x.abs().max() > 10:  # expect: data-dependent-branch
            x = x / 2
        return self.inner(x)

    def inner(self, x):
        return self.fc(x).cpu()  # expect: host-sync-cpu

    def forward(self, x):
        print(x)
        return self.step(x)


def build():
    config = torchair.CompilerConfig()
    config.experimental_config.frozen_parameter = True
    backend = torchair.get_npu_backend(compiler_config=config)
    model = Model(64).npu()
    model.step = torch.compile(model.step, backend=backend, dynamic=False, fullgraph=True)
    return model

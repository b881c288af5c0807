# entry: Layer.forward
import importlib.metadata
import os
import time

import torch
from torch import nn

USE_FUSED = True


def fused_enabled():
    return os.environ.get("FUSED", "0") == "1"


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fused = fused_enabled()

    def forward(self, x: torch.Tensor):
        if self.fused and USE_FUSED:
            x = x * 2
        if os.getenv("DEBUG"):  # expect: python-call-in-forward
            x = x + 1
        if fused_enabled():  # expect: python-call-in-forward
            x = x + 2
        started = time.time()  # expect: python-call-in-forward
        version = importlib.metadata.version("torch")  # expect: python-call-in-forward
        return x, started, version

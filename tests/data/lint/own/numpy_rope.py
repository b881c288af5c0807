# entry: Rope.forward
import numpy as np
import torch
from torch import nn


class Rope(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.inv = torch.from_numpy(1.0 / base ** (np.arange(0, dim, 2) / dim))
        self.scale = float(np.sqrt(dim))

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor):
        host = position_ids.cpu().numpy()  # expect: host-sync-cpu, numpy
        angle = np.outer(host, np.ones(4))  # expect: numpy
        table = torch.from_numpy(angle).to(x.device)  # expect: numpy, host-to-device-copy
        return x * table.cos() / self.scale * np.sqrt(2.0)

# entry: Gate.forward
import math

import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: torch.Tensor, mask=None, alibi: torch.Tensor = None):
        if mask is not None and mask.dim() == 2:
            mask = mask[:, None, None, :]
        if alibi is not None:
            x = x + alibi
        if torch.isinf(x).any():  # expect: data-dependent-branch
            x = x.clamp(-1, 1)
        y = x if bool((x > 0).all()) else -x  # expect: host-sync-item, data-dependent-branch
        while y.norm() > 1:  # expect: data-dependent-branch
            y = y / 2
        if mask is not None and (mask == 0).all():  # expect: data-dependent-branch
            mask = None
        n = int(x.sum())  # expect: host-sync-item
        for _ in range(n):  # expect: loop-over-tensor
            y = y + 1
        scale = math.sqrt(x.shape[-1])
        odd = math.floor(x.max())  # expect: host-sync-item
        assert x.shape[0] == y.shape[0], "shapes"
        return self.norm(y) / scale + odd + (0 if mask is None else mask)

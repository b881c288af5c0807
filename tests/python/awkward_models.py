"""Modules that can be captured, but not be served with a cache as they are; and one that can."""

import torch
from torch.nn.functional import scaled_dot_product_attention


class Attention(torch.nn.Module):
    """One attention of one head over an embedding. Subclasses say what is attended to."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.table = torch.nn.Embedding(40, 16)
        self.qkv = torch.nn.Linear(16, 48)
        self.head = torch.nn.Linear(16, 40)
        causal = torch.ones(64, 64).tril().bool()[None, None]
        self.register_buffer("causal", causal, persistent=False)

    def mask(self, positions):
        return positions[:, None, :, None] >= positions[:, None, None, :]

    def mix(self, h):
        return h

    def forward(self, ids, positions):
        h = self.mix(self.table(ids))  # HERE mix (torch keeps frames of forward only)
        q, k, v = (x[:, None] for x in self.qkv(h).chunk(3, -1))
        h = scaled_dot_product_attention(q, k, v, attn_mask=self.mask(positions))  # HERE attention
        return self.head(h[:, 0])


class Causal(Attention):
    pass


class CausalByTable(Attention):
    def mask(self, positions):
        n = positions.shape[1]
        return self.causal[:, :, :n, :n]


class SeesAll(Attention):
    def mask(self, positions):
        return torch.ones_like(super().mask(positions))


class EverySecond(Attention):
    def mask(self, positions):
        distance = positions[:, None, :, None] - positions[:, None, None, :]
        return (distance >= 0) & (distance % 2 == 0)


class RunningSum(Attention):
    def mix(self, h):
        return h + h.cumsum(1) * 0.01


class Neighbour(Attention):
    def mix(self, h):
        return h + torch.nn.functional.pad(h, (0, 0, 1, 0))[:, :-1]

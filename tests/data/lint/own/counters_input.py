# entry: Rope.forward
import torch
from torch import nn


class Output:
    def __init__(self):
        self.logits = None


class Rope(nn.Module):
    def __init__(self, length, dim):
        super().__init__()
        self.register_buffer("cos", torch.ones(length, dim))

    def forward(self, x: torch.Tensor, start_pos: int, num_heads: int, kv_len: int, ids):
        end = start_pos + x.shape[1]
        cos = self.cos[start_pos:end]  # expect: python-counter-input
        mask = self.cos[:, :kv_len]  # expect: python-counter-input
        x = x[..., :num_heads]
        out = Output()
        out.logits = x * cos
        loss = out.logits.sum()
        return out, mask, loss

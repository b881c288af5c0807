# entry: Step.forward
import torch
import torch_npu
from torch import nn


def bump(value):
    value.add_(1)  # expect: inplace-on-input
    return value


class Step(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.register_buffer("seen", torch.zeros(hidden))

    def forward(self, x: torch.Tensor, state: torch.Tensor, ids: torch.Tensor,
                k_cache: torch.Tensor, slot: torch.Tensor, past_key_values):
        x += 1  # expect: inplace-on-input
        state[:, 0] = x[:, 0]  # expect: inplace-on-input
        ids.view(-1).fill_(0)  # expect: inplace-on-input
        h = x * 2
        h += 1
        h.mul_(2)
        self.seen.copy_(h[0])
        self.seen += 1
        k_cache.index_copy_(0, slot, h)
        torch_npu.npu_scatter_nd_update_(k_cache, slot, h)
        past_key_values[0].copy_(h)
        bump(ids)
        bump(h)
        return h

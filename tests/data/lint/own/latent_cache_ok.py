# entry: LatentAttention.forward
# backend: ge_graph
import torch
import torch_npu
from torch import nn


class LatentAttention(nn.Module):
    def __init__(self, rank, rope):
        super().__init__()
        self.cache_nope = torch.zeros(64, 128, 1, rank)
        self.cache_rope = torch.zeros(64, 128, 1, rope)
        self.gamma = nn.Parameter(torch.ones(rank))

    def forward(self, q, latent, cos, sin, slots):
        rope, nope, _, _ = torch_npu.npu_kv_rmsnorm_rope_cache(
            latent, self.gamma, cos, sin, slots, self.cache_rope, self.cache_nope)
        return q @ nope.view(64, 128, -1).transpose(-1, -2) + rope.sum()

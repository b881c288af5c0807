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
        torch_npu.npu_kv_rmsnorm_rope_cache(  # expect: unused-result-of-cache-update
            latent, self.gamma, cos, sin, slots, self.cache_rope, self.cache_nope,
            cache_mode="PA_NZ",
        )
        nope = self.cache_nope.view(64, 128, -1)  # expect: cache-read-after-inplace
        rope = self.cache_rope.view(64, 128, -1)  # expect: cache-read-after-inplace
        return self.attend(q, nope, rope)

    def forward_twice(self, q, latent, cos, sin, slots):
        return q

    def attend(self, q, nope, rope):
        return q @ nope.transpose(-1, -2) + rope.sum()

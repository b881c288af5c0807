# entry: Attention.decode
# backend: ge_graph
import torch
import torch_npu
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.k_cache = None
        self.v_cache = None

    def decode(self, q: torch.Tensor, kv, gamma, cos, sin, slot):
        key_cache, value_cache = self.k_cache, self.v_cache
        _, _, k, v = torch.ops.npu.npu_kv_rmsnorm_rope_cache(  # expect: unused-result-of-cache-update
            kv, gamma, cos, sin, slot, key_cache, value_cache, is_output_kv=True)
        score = q @ key_cache.transpose(-1, -2)  # expect: cache-read-after-inplace
        return score + k.sum() + v.sum()

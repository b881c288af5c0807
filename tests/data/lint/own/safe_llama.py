# entry: Model.forward
"""A decode step with everything that looks dangerous and is not."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, hidden, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x, residual=None):
        if residual is not None:
            x = x + residual
            residual = x
        dtype = x.dtype
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        x = x.to(dtype) * self.weight
        return x if residual is None else (x, residual)


class Attention(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.heads = config.heads
        self.dim = config.hidden // config.heads
        self.qkv = nn.Linear(config.hidden, 3 * config.hidden)
        self.out = nn.Linear(config.hidden, config.hidden)
        self.layer = layer
        self.scale = 1 / math.sqrt(self.dim)
        self.window = config.window if layer % 2 else None
        self.k_cache = torch.zeros(config.batch, config.length, self.heads, self.dim)
        self.v_cache = torch.zeros(config.batch, config.length, self.heads, self.dim)

    def forward(self, x, cos, sin, position, mask):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, self.dim).unbind(2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        self.k_cache.index_copy_(1, position, k)
        self.v_cache[:, position] = v
        k, v = self.k_cache, self.v_cache
        if self.window is not None:
            mask = mask[..., -self.window :]
            k, v = k[:, -self.window :], v[:, -self.window :]
        if length > 1:
            mask = mask[:, :, :length]
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask,
            dropout_p=0.0 if not self.training else 0.1, scale=self.scale)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList([Attention(config, i) for i in range(config.layers)])
        self.norms = nn.ModuleList(Norm(config.hidden) for _ in range(config.layers))
        angle = torch.arange(config.length)[:, None] / torch.arange(1, 9)[None]
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        self.largest = angle.max().item()

    def forward(self, ids: torch.Tensor, position: torch.Tensor, mask: torch.Tensor, *args):
        assert ids.dim() == 2, f"got {ids.shape}"
        h = self.embed(ids)
        cos = self.cos.index_select(0, position.view(-1)).to(h.dtype)
        sin = self.sin.index_select(0, position.view(-1)).to(h.dtype)
        residual = args[0] if len(args) > 0 and args[0] is not None else None
        states = []
        for i, (norm, layer) in enumerate(zip(self.norms, self.layers)):
            if residual is None:
                residual = h
            h, residual = norm(h, residual)
            h = layer(h, cos, sin, position, mask)
            if i in (0, len(self.layers) - 1):
                states.append(h)
        if not isinstance(h, torch.Tensor):
            raise TypeError(type(h).__name__)
        return torch.stack(states).mean(0), h[:, -1:], max(ids.shape[1], 4)

    @torch.no_grad()
    def generate(self, ids, steps):
        for step in range(steps):
            out = self(ids, torch.tensor([step]), None)[1]
            ids = out.argmax(-1)
            print(step, ids.tolist(), ids.cpu().numpy())
            if (ids == 2).all():
                break
        return ids

    def load_weights(self, weights):
        for name, w in weights:
            self.get_parameter(name).data.copy_(w)
            print(name, w.max().item())

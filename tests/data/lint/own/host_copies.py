# entry: Mask.forward Rope.forward
import torch
from torch import nn


class Mask(nn.Module):
    def __init__(self, window: int):
        super().__init__()
        self.window = window
        self.register_buffer("ids", torch.tensor([1, 2, 3]))

    def forward(self, x: torch.Tensor, lengths: list):
        limits = torch.tensor(lengths, device=x.device)  # expect: host-to-device-copy
        extra = torch.tensor([1.0, 2.0]).to(x.device)  # expect: host-to-device-copy
        last = torch.LongTensor(lengths).npu()  # expect: host-to-device-copy
        ramp = torch.arange(x.shape[-1], device=x.device)
        zero = torch.zeros(x.shape[0], device=x.device, dtype=x.dtype)
        keep = ramp.unsqueeze(0) < limits.unsqueeze(1)
        return x.masked_fill(~keep, 0) + self.ids.sum() + extra.sum() + last.sum() + zero.sum()


class Rope(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor):
        steps = torch.arange(0, self.dim, 2).float() / self.dim
        inverse = (1.0 / 10000**steps).to(x.device)  # expect: host-to-device-copy
        scale = torch.tensor(0.5).to(x.dtype)
        ones = torch.ones(4, dtype=x.dtype)
        angle = position_ids[:, None] * inverse
        return x * angle.cos() * scale + ones.sum()

# entry: SegmentStart.forward
# backend: ge_graph
import torch
from torch import nn


class SegmentStart(nn.Module):
    def __init__(self, eos):
        super().__init__()
        self.eos = eos

    def forward(self, ids: torch.Tensor):
        at = torch.arange(ids.shape[-1], device=ids.device)
        start = torch.where(ids == self.eos, at, torch.zeros_like(at))
        last, _ = torch.cummax(start, dim=-1)  # expect: unsupported-converter
        longest = start.amax(dim=-1)  # expect: unsupported-converter
        return last, longest, start.sum(dim=-1), start.cumsum(-1)

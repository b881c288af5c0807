# entry: Spellings.forward
# The same hazards in other words.
import functools
import warnings

import torch
from torch import nn

SEEN = []


class Spellings(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x: torch.Tensor, pos: torch.Tensor, mask: torch.Tensor):
        read = lambda t: t.item()  # expect: host-sync-item
        n = read(pos.sum())
        lengths = list(map(int, pos))  # expect: host-sync-item
        same = lambda t: t * 2
        x = same(x) * n * lengths[0]
        scale = complex(x.sum())  # expect: host-sync-item
        if mask.any() and n:  # expect: data-dependent-branch
            x = x + 1
        warnings.warn(f"sum {x.sum()}")  # expect: print
        part = x.narrow(0, 0, pos[0])  # expect: dynamic-slice-by-tensor
        setattr(self, "last", part)  # expect: module-state-mutation
        SEEN.append(part)  # expect: module-state-mutation
        with open("/tmp/log") as log:  # expect: python-call-in-forward
            log.read()
        slope = torch.autograd.grad(x.sum(), x)  # expect: backward
        return x, slope, scale


def unused(t):
    return functools.reduce(lambda a, b: a + b.item(), t)

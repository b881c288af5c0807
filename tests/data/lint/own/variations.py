# entry: Sync.forward Shapes.forward State.forward Ask.forward
import os

import numpy as np
import torch
import torch.nn.functional as F
from somewhere.utils import npu_version_is
from torch import nn


class Sync(nn.Module):
    def forward(self, x: torch.Tensor, lens, flags: torch.Tensor):
        a = x.to("cpu")  # expect: host-sync-cpu
        b = x.to(torch.device("cpu"))  # expect: host-sync-cpu
        c = x.to(device="cpu", dtype=torch.float32)  # expect: host-sync-cpu
        d = np.array(lens.tolist())  # expect: host-sync-tolist, numpy
        e = torch.tensor(lens.tolist(), device=x.device)  # expect: host-sync-tolist, host-to-device-copy
        f = torch.as_tensor(d, device=x.device)  # expect: host-to-device-copy
        g = [int(n) for n in lens.tolist()]  # expect: host-sync-tolist
        h = float(x[0, 0])  # expect: host-sync-item
        if any(flags):  # expect: data-dependent-branch
            x = x + 1
        if torch.equal(x, a):  # expect: data-dependent-branch
            x = x + 2
        if self.training and x.allclose(b):
            x = x + 3
        x = x.to(x.dtype).to(b).to(c.device)
        longest = (
            lens.max()
            .item()  # expect: host-sync-item
        )
        return x, d, e, f, g, h, longest


class Shapes(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x: torch.Tensor, lens: torch.Tensor, sizes: list[int]):
        n = lens.max().item()  # expect: host-sync-item
        a = F.pad(x, (0, n - x.shape[1]))  # expect: data-dependent-shape
        b = x.view(-1, n)  # expect: data-dependent-shape
        c = torch.tril(torch.ones(n, n, device=x.device))  # expect: data-dependent-shape
        d = torch.zeros((x.shape[0], n), device=x.device)  # expect: data-dependent-shape
        e = x.split(sizes)
        f = x.repeat_interleave(self.groups, dim=0)
        g = x.repeat_interleave(lens, dim=0)  # expect: data-dependent-shape
        h = x[x.isnan()]  # expect: data-dependent-shape
        keep = lens != 0
        i = x[:, keep]  # expect: data-dependent-shape
        j = x.narrow(0, 0, n)  # expect: dynamic-slice-by-tensor
        k = torch.nonzero(keep, as_tuple=True)[0]  # expect: data-dependent-shape
        for row, m in enumerate(lens):  # expect: loop-over-tensor
            x[row, :m].mul(2)  # expect: dynamic-slice-by-tensor
        for row in x.unbind(0):
            a = a + row.sum()
        for row in range(x.size(0)):
            a = a + x[row].sum()
        l = x.masked_scatter(keep[:, None], a)
        o = torch.arange(int(lens[0]), device=x.device)  # expect: host-sync-item, data-dependent-shape
        return a, b, c, d, e, f, g, h, i, j, k, l, o


class State(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0
        self.pos = 0
        self.seen = []
        self.tables = {}
        self.scale = None

    def reset(self):
        self.pos = 0

    def forward(self, x: torch.Tensor, states: list[torch.Tensor], batch):
        self.step = self.step + 1  # expect: python-int-attribute
        if self.pos % 2 == 0:  # expect: python-int-attribute
            x = x + 1
        self.seen.append(x)  # expect: module-state-mutation
        self.tables["last"] = x  # expect: module-state-mutation
        if self.scale is None:
            self.scale = x.abs()
        states[0].copy_(x)  # expect: inplace-on-input
        torch.add(x, 1, out=states[1])  # expect: inplace-on-input
        batch.hidden.copy_(x)  # expect: inplace-on-input
        batch.kv_cache.copy_(x)
        return x


def steps(model, x):
    for i in range(4):
        model.pos = i
        model(x)


def is_old_version():
    return False


class Ask(nn.Module):
    def forward(self, x: torch.Tensor):
        if os.environ["MODE"] == "a":  # expect: python-call-in-forward
            x = x + 1
        if npu_version_is("2.7"):  # expect: python-call-in-forward
            x = x + 1
        if is_old_version():  # expect: python-call-in-forward
            x = x + 1
        if torch.distributed.get_rank() == 0:
            x = x + 1
        return x

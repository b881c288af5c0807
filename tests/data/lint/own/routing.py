# entry: Router.forward
import torch
import torch.nn.functional as F
from torch import nn


class Router(nn.Module):
    def __init__(self, n: int, hidden: int):
        super().__init__()
        self.n = n
        self.gate = nn.Linear(hidden, n)
        self.experts = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(n)])

    def forward(self, x: torch.Tensor):
        weight, pick = self.gate(x).softmax(-1).topk(2, dim=-1)
        counts = torch.bincount(pick.flatten(), minlength=self.n)  # expect: data-dependent-shape
        order = pick.flatten().argsort()
        y = torch.zeros_like(x)
        start = 0
        for expert, count in zip(self.experts, counts.tolist()):  # expect: host-sync-tolist
            if count == 0:  # expect: data-dependent-branch
                continue
            rows = order[start : start + count]  # expect: dynamic-slice-by-tensor
            y.index_add_(0, rows // 2, expert(x[rows // 2]))
            start = start + count
        ends = torch.repeat_interleave(weight, counts)  # expect: data-dependent-shape
        first = self.experts[int(pick[0, 0])](x)  # expect: host-sync-item, module-indexed-by-tensor
        hot = F.one_hot(pick, num_classes=self.n)
        cold = F.one_hot(pick)  # expect: data-dependent-shape
        seen = torch.unique(pick)  # expect: data-dependent-shape
        big = torch.masked_select(weight, weight > 0.5)  # expect: data-dependent-shape
        return y, ends, first, hot, cold, seen, big

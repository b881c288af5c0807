# entry: ExpertParallel.forward
import torch
import torch.distributed as dist
from torch import nn


class ExpertParallel(nn.Module):
    def __init__(self, group, ranks):
        super().__init__()
        self.group = group
        self.ranks = ranks

    def forward(self, x: torch.Tensor, counts: torch.Tensor):
        received = torch.empty_like(counts)
        dist.all_to_all_single(received, counts, group=self.group)
        both = torch.stack([received, counts]).view(2, self.ranks, -1).sum(2)
        total = both[0].sum()
        splits = both.cpu().tolist()  # expect: host-sync-cpu, host-sync-tolist
        out = x.new_empty(total.item(), x.shape[1])  # expect: host-sync-item, data-dependent-shape
        dist.all_to_all_single(out, x, splits[0], splits[1], group=self.group)
        return out

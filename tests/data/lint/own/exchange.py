# entry: Exchange.forward
import torch
import torch.distributed as dist
from torch import nn


class Exchange(nn.Module):
    def __init__(self, group, n):
        super().__init__()
        self.group, self.n = group, n

    def forward(self, x: torch.Tensor):
        send = list(x.chunk(self.n))  # expect: python-list-of-tensors
        receive = [torch.empty_like(s) for s in send]  # expect: python-list-of-tensors
        dist.all_to_all(receive, send, group=self.group)  # expect: collective-with-list
        heads = [x * i for i in range(4)]
        return torch.cat(receive, dim=0) + torch.stack(heads).sum(0)

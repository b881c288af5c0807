# entry: Head.forward
import torch
import torch.distributed as dist
from torch import nn


class Head(nn.Module):
    def __init__(self, hidden, vocab, world):
        super().__init__()
        self.proj = nn.Linear(hidden, vocab)
        self.world = world

    def forward(self, x: torch.Tensor):
        logits = self.proj(x)
        parts = []
        for _ in range(self.world):
            parts.append(torch.empty_like(logits))  # expect: python-list-of-tensors
        dist.all_gather(parts, logits)  # expect: collective-with-list
        whole = torch.empty(self.world * logits.shape[0], logits.shape[1], device=x.device)
        dist.all_gather_into_tensor(whole, logits)
        dist.all_reduce(whole)
        return torch.cat(parts, dim=-1), whole

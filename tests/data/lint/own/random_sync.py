# entry: Sampler.forward
# backend: npugraph_ex
import torch
import torch.nn.functional as F
from torch import nn


class Sampler(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.drop = nn.Dropout(0.1)
        self.stream = torch.npu.Stream()

    def forward(self, logits: torch.Tensor):
        logits = self.drop(logits)
        logits = F.dropout(logits, 0.1, training=self.training)
        logits = F.dropout(logits, p=0.1)  # expect: random-op
        noise = torch.rand_like(logits)  # expect: random-op
        q = torch.empty_like(logits).exponential_(1)  # expect: random-op
        torch.npu.synchronize()  # expect: device-sync
        self.stream.synchronize()  # expect: device-sync
        picked = torch.multinomial(logits.softmax(-1), 1)  # expect: random-op
        return picked, noise, q

# entry: NgramEmbedding.forward
import torch
from torch import nn


class NgramEmbedding(nn.Module):
    def __init__(self, hidden, n):
        super().__init__()
        self.n = n
        self.word = nn.Embedding(1000, hidden)
        self.context = None
        self.filled = False

    def forward(self, input_ids, is_prefill=False):
        if is_prefill:
            self.context = input_ids[:, -(self.n - 1) :]
        if not is_prefill and self.context is not None:
            window = torch.cat([self.context, input_ids], dim=-1)
            self.context = torch.cat([self.context[:, 1:], input_ids], dim=-1)  # expect: module-state-mutation
        else:
            window = input_ids
        self.filled = True  # expect: module-state-mutation
        return self.word(window).sum(dim=1)

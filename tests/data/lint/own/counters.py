# entry: Decoder.forward
import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self, hidden, length):
        super().__init__()
        self.proj = nn.Linear(hidden, hidden)
        self.step = 0
        self.limit = length
        self.register_buffer("table", torch.zeros(length, hidden))

    def set_step(self, step):
        self.step = step

    def forward(self, x: torch.Tensor):
        if self.step > 4:  # expect: python-int-attribute
            x = x * 2
        x = x + self.table[self.step : self.step + 1]  # expect: python-int-attribute
        if x.shape[0] > self.limit:
            x = x[: self.limit]
        self.step += 1  # expect: python-int-attribute
        return self.proj(x)

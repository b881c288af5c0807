"""Modules that can't be captured. The tests look for the line that bears each marker."""

import torch
from bad_helper import branch_on_values


class Base(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 16)
        self.head = torch.nn.Linear(16, 10)


class Item(Base):
    def forward(self, ids, positions):
        h = self.table(ids)
        if positions.max().item() > 4:  # HERE Item
            h = h * 2
        return self.head(h)


class TensorIf(Base):
    def forward(self, ids, positions):
        h = self.table(ids)
        if h.sum() > 4:  # HERE TensorIf
            h = h * 2
        return self.head(h)


class IntOf(Base):
    def forward(self, ids, positions):
        longest = int(positions.max())  # HERE IntOf
        return self.head(self.table(ids) + torch.zeros(longest + 1).sum())


class FixedView(Base):
    def forward(self, ids, positions):
        return self.head(self.table(ids).view(2, 8, 16))  # HERE FixedView


class FixedSequence(Base):
    def forward(self, ids, positions):
        h = self.table(ids)
        if ids.shape[1] == 8:  # HERE FixedSequence
            h = h + 1
        return self.head(h)


class LongPath(Base):
    def forward(self, ids, positions):
        h = self.table(ids)
        if ids.shape[1] > 100:  # HERE LongPath
            h = h + 1
        return self.head(h)


class Chunks(Base):
    def forward(self, ids, positions):
        h = self.table(ids)
        h = h.view(ids.shape[0], -1, 4, 16)  # HERE Chunks
        return self.head(h).flatten(1, 2)


class Loop(Base):
    def forward(self, ids, positions):
        h = self.table(ids)
        for p in positions[0].tolist():  # HERE Loop
            h = h + p
        return self.head(h)


class Numpy(Base):
    def forward(self, ids, positions):
        return self.head(self.table(torch.from_numpy(ids.numpy() + 1)))  # HERE Numpy


class Raises(Base):
    def forward(self, ids, positions):
        raise ValueError("this model wants images too")  # HERE Raises


class OneArgument(Base):
    def forward(self, ids):
        return self.head(self.table(ids))


class NoLogits(Base):
    def forward(self, ids, positions):
        return self.head(self.table(ids)).sum(1)


class Counter(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, ids, positions):
        self.calls.view(1).add_(1)  # HERE Counter
        return self.head(self.table(ids))


class Inner(torch.nn.Module):
    def forward(self, h):
        return branch_on_values(h)  # HERE Nested


class Nested(Base):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, ids, positions):
        return self.head(self.inner(self.table(ids)))


class Meta(Base):
    def __init__(self):
        super().__init__()
        self.head.weight = torch.nn.Parameter(torch.empty(10, 16, device="meta"))

    def forward(self, ids, positions):
        return self.table(ids) @ self.table.weight.T + self.head.weight.shape[0]

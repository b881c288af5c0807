# entry: Clean.forward
import torch
from torch import nn


class Clean(nn.Module):
    def forward(self, x: torch.Tensor, pad_mask: torch.Tensor, index: torch.Tensor):
        y = x.clone()
        y[pad_mask] = 0.0  # expect: bool-mask-assignment
        y[y < 0] *= 2  # expect: data-dependent-shape, bool-mask-assignment
        y.index_put_((pad_mask.bool(),), torch.zeros((), device=x.device))  # expect: bool-mask-assignment
        rows = x[index]
        kept = x[~pad_mask]  # expect: data-dependent-shape
        both = x[(x > 0) & (x < 1)]  # expect: data-dependent-shape
        fine = x.masked_fill(pad_mask, 0.0)
        y[:, 0] = 1
        y[index] = rows
        return y, kept, both, fine, torch.where(x > 0, x, -x)

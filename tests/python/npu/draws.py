"""Random calls of operators, from one generator a test, and what is compared."""

import random
import re

import pytest
import torch

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
HALVES = (torch.float16, torch.bfloat16)
CASES = 500

# Half a step of the dtype, and what f32 sums in another order may differ by.
_RELATIVE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


class Draw:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def size(self, low, high, step=1):
        return self.random.randrange(low, high + 1, step)

    def one_of(self, values):
        return self.random.choice(list(values))

    def maybe(self, value, chance=0.5):
        return value if self.random.random() < chance else None

    def tensor(self, *shape, dtype=torch.float32, scale=1.0, low=None, high=None, strided=None):
        """Normal values, or even ones from low to high; sometimes every other of a larger one."""
        strided = self.random.random() < 0.2 if strided is None else strided
        wide = (*shape[:-1], 2 * shape[-1]) if strided and shape else shape
        if low is None:
            t = torch.randn(wide, generator=self.generator) * scale
        else:
            t = torch.rand(wide, generator=self.generator) * (high - low) + low
        t = t.to(dtype)
        return t[..., ::2] if strided and shape else t

    def integers(self, *shape, low, high, dtype=torch.int32):
        return torch.randint(low, high, shape, generator=self.generator).to(dtype)

    def ends(self, rows, groups, dtype=torch.int32, increasing=False):
        """Where each of `groups` groups of rows ends; the last at `rows`."""
        if increasing:
            cuts = sorted(self.random.sample(range(1, rows), groups - 1))
        else:
            cuts = sorted(self.random.randint(0, rows) for _ in range(groups - 1))
        return torch.tensor([*cuts, rows], dtype=dtype)


def close(found, expected, what=""):
    assert found.shape == expected.shape, (what, found.shape, expected.shape)
    assert found.dtype == expected.dtype, (what, found.dtype, expected.dtype)
    relative = _RELATIVE[expected.dtype]
    torch.testing.assert_close(
        found.float(), expected.float(), rtol=relative, atol=relative, equal_nan=True
    )


def quantised(found, expected):
    """`expected` in f32, not rounded: at most the neighbour where a sum is on the edge."""
    expected = torch.round(expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    difference = (found.float() - expected).abs()
    assert not (difference > 1).any(), difference.max()
    assert (difference != 0).sum() <= 1 + difference.numel() // 50


def unpack_int4(packed, per_word):
    """int4 values, the first in the lowest bits."""
    shifts = torch.arange(per_word) * 4
    values = (packed.to(torch.int64).unsqueeze(-1) >> shifts) & 0xF
    return torch.where(values > 7, values - 16, values).flatten(-2)


def rows_by_group(values, ends, rows):
    """values[g] for each row of group g; None past the last group."""
    out, start = [None] * rows, 0
    for g, end in enumerate(ends.tolist()):
        for i in range(start, end):
            out[i] = values[g]
        start = max(start, end)
    return out


def refused(call, check, *args, **kwargs):
    """The call is refused, and names the check."""
    with pytest.raises(RuntimeError, match=re.escape(check)):
        call(*args, **kwargs)

"""Casts, prefetch and filters of logits of torch_npu."""

import pytest
import torch
from draws import CASES, FLOATS, Draw, refused

pytestmark = pytest.mark.filterwarnings("ignore:npu_")


def test_format_cast_keeps_values(torch_npu):
    draw = Draw(61)
    for _ in range(CASES):
        x = draw.tensor(draw.size(1, 5), draw.size(1, 20), dtype=draw.one_of(FLOATS))
        assert torch.equal(torch_npu.npu_format_cast(x, draw.one_of((2, 29))), x)


def test_dtype_cast(torch_npu):
    draw = Draw(62)
    types = (*FLOATS, torch.int32, torch.int8, torch.int64)
    for _ in range(CASES):
        x = draw.integers(draw.size(1, 4), draw.size(0, 5), low=-99, high=99)
        source, target = draw.one_of(types), draw.one_of(types)
        assert torch.equal(torch_npu.npu_dtype_cast(x.to(source), target), x.to(source).to(target))


def test_prefetch_changes_nothing(torch_npu):
    draw = Draw(64)
    for _ in range(CASES):
        x = draw.tensor(draw.size(1, 4), draw.size(1, 9), dtype=draw.one_of(FLOATS))
        before, other = x.clone(), draw.maybe(draw.tensor(3))
        offset = draw.size(0, x.numel() * x.itemsize - 1)
        size = draw.one_of((1, x.numel(), 1 << 20))
        assert torch_npu.npu_prefetch(x, other, size, offset) is None
        assert torch.equal(x, before)
    x = torch.arange(8.0)
    refused(torch_npu.npu_prefetch, "prefetch.size", x, None, 0)
    refused(torch_npu.npu_prefetch, "prefetch.size", x, None, 1, -1)
    refused(torch_npu.npu_prefetch, "prefetch.offset", x, None, 1, 32)


def filtered(logits, p, k):
    """The document's steps, one after another."""
    values, order = logits.float().sort(dim=-1, stable=True)
    if k is not None:
        least = values.gather(1, (values.shape[1] - k.long())[:, None])
        values = values.masked_fill(values < least, float("-inf"))
    if p is not None:
        dropped = values.softmax(-1).cumsum(-1) <= 1 - p.float()[:, None]
        dropped[:, -1] = False
        values = values.masked_fill(dropped, float("-inf"))
    return torch.empty_like(values).scatter_(1, order, values).to(logits.dtype)


def near_the_edge(logits, p, k):
    """Whether a running sum is where f32 sums in another order decide otherwise."""
    if p is None:
        return False
    kept = filtered(logits, None, k).double().sort(dim=-1).values
    sums = kept.softmax(-1).cumsum(-1)
    return bool(((sums - (1 - p.double()[:, None])).abs() < 1e-5).any())


def test_top_k_top_p(torch_npu):
    draw = Draw(63)
    for _ in range(2 * CASES):  # some have neither p nor k, or values too near the edge
        dtype, rows, n = draw.one_of(FLOATS), draw.size(1, 4), draw.size(1, 40)
        logits = draw.tensor(rows, n, dtype=dtype, scale=2)
        if draw.maybe(True, 0.3):
            logits = logits.round()  # ties
        k = draw.maybe(draw.integers(rows, low=1, high=n + 1))
        p = draw.maybe(draw.tensor(rows, dtype=dtype, low=0, high=1))
        if p is None and k is None:
            continue
        if not near_the_edge(logits, p, k):
            found = torch_npu.npu_top_k_top_p(logits, p, k)
            assert torch.equal(found, filtered(logits, p, k))


def test_top_k_top_p_keeps_the_largest_and_all(torch_npu):
    logits = torch.tensor([[3.0, 1.0, 2.0]])
    keep = torch.tensor([0.0]), torch.tensor([3], dtype=torch.int32)
    assert torch_npu.npu_top_k_top_p(logits, *keep).isfinite().tolist() == [[True, False, False]]
    keep = torch.tensor([1.0]), torch.tensor([3], dtype=torch.int32)
    assert torch.equal(torch_npu.npu_top_k_top_p(logits, *keep), logits)


def test_top_k_top_p_refuses(torch_npu):
    call, logits = torch_npu.npu_top_k_top_p, torch.ones(2, 5)
    refused(call, "top_k_top_p.some", logits)
    refused(call, "top_k_top_p.k", logits, None, torch.tensor([1, 6], dtype=torch.int32))
    refused(call, "top_k_top_p.k", logits, None, torch.tensor([0, 1], dtype=torch.int32))
    refused(call, "top_k_top_p.p", logits, torch.tensor([0.5, 1.5]))
    refused(call, "top_k_top_p.dtype", logits, torch.tensor([0.5, 0.5]).half())
    refused(call, "top_k_top_p.rank", logits[0], torch.tensor([0.5]))

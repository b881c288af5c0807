"""Attention written down once more, in PyTorch, and requests in the layouts of torch_npu."""

import functools
import math

import torch

LANES = {torch.int8: 32}


def attend(q, k, v, visible, scale, sinks=None, bias=None):
    """One request: [n, heads, D] queries over [m, kv heads, D] keys; visible is bool [n, m].

    The result is [n, heads, Dv], the log of the sum of exponentials [n, heads]."""
    q, k, v = q.float(), k.float(), v.float()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("nhd,mhd->hnm", q, k) * scale
    if bias is not None:
        scores = scores + bias.float()
    scores = scores.masked_fill(~visible, -math.inf)
    if sinks is not None:
        column = sinks.float()[:, None, None].expand(-1, scores.shape[1], 1)
        scores = torch.cat([scores, column], -1)
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse[..., None]).nan_to_num(0.0)[..., : k.shape[0]]
    lse = torch.where(lse == -math.inf, torch.tensor(math.inf), lse)
    return torch.einsum("hnm,mhd->nhd", weights, v), lse.T


@functools.cache
def triangle(dtype=torch.bool):
    return torch.ones(2048, 2048, dtype=torch.bool).triu(1).to(dtype)


def window(n, m, mode, pre=None, after=None):
    """Which of m keys each of n queries sees in a sparse_mode, the mask apart."""
    i, j = torch.arange(n)[:, None], torch.arange(m)[None]
    right = i + m - n
    if mode == 2:
        return j <= i
    if mode == 3:
        return j <= right
    if mode == 4:
        return (j >= right - pre) & (j <= right + after)
    if mode == 0 and pre is not None:
        return (j >= i - pre) & (j <= i + after)
    return torch.ones(n, m, dtype=torch.bool)


def put(rows, letters, size):
    """Requests [n, N, D] in a layout; what lies behind a request's end is large, never read."""
    if "T" in letters:
        t = torch.cat(rows)
        return (t if letters == "TND" else t.transpose(0, 1)).contiguous()
    n, d = rows[0].shape[1:]
    t = torch.full((len(rows), size, n, d), 99, dtype=rows[0].dtype)
    for b, r in enumerate(rows):
        t[b, : len(r)] = r
    if letters.endswith("H"):
        return t.flatten(2)
    return t.permute(["BSND".index(c) for c in letters]).contiguous()


def take(t, letters, lens, heads):
    """The requests of a layout; and that all behind them is 0."""
    if "T" in letters:
        t = t if letters[0] == "T" else t.transpose(0, 1)
        assert not t[sum(lens) :].any()
        return list(t[: sum(lens)].split(lens))
    if letters.endswith("H"):
        t = t.unflatten(2, (heads, -1))
    else:
        t = t.permute([letters.index(c) for c in "BSND"])
    assert not any(t[b, n:].any() for b, n in enumerate(lens))
    return [t[b, :n] for b, n in enumerate(lens)]


def shape_cache(blocks, form):
    """A cache [blocks, block, N, D] as BSH, BNSD or NZ."""
    if form == "BSH":
        return blocks.flatten(2)
    t = blocks.transpose(1, 2)
    if form == "NZ":
        lanes = LANES.get(t.dtype, 16)
        t = t.unflatten(3, (-1, lanes)).transpose(2, 3)
    return t.contiguous()


def page(rng, requests, block):
    """Requests [n, ...] in blocks of a cache, in any order, and their block table."""
    columns = [-(-len(r) // block) for r in requests]
    used = sum(columns)
    order = list(range(used + 1))
    rng.shuffle(order)
    cache = torch.full((used + 1, block, *requests[0].shape[1:]), 77, dtype=requests[0].dtype)
    table = torch.full((len(requests), max([*columns, 1])), -1, dtype=torch.int32)
    for b, r in enumerate(requests):
        for c in range(columns[b]):
            table[b, c] = order.pop()
            part = r[c * block : (c + 1) * block]
            cache[table[b, c], : len(part)] = part
    return cache, table


def totals(lens):
    return torch.tensor(lens).cumsum(0).tolist()


def draw(rng, *shape, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    if dtype == torch.int8:
        return torch.randint(-128, 128, shape, dtype=dtype, generator=generator)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not dtype.is_floating_point:  # more than a float holds
        ends = torch.iinfo(dtype)
        return torch.randint(ends.min, ends.max, shape, dtype=dtype, generator=generator)
    return torch.randn(shape, generator=generator).to(dtype)


def close(got, want):
    tolerance = {torch.bfloat16: 2**-7, torch.float16: 2**-9}.get(got.dtype, 1e-4)
    torch.testing.assert_close(got.float(), want.float(), rtol=tolerance, atol=tolerance)

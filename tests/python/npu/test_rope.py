"""Rotary embeddings of torch_npu against their formulas in PyTorch."""

import pytest
import torch
from draws import CASES, FLOATS, HALVES, Draw, close, refused


def half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def neighbours(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


TURNED = {"half": half, "interleave": neighbours}


def turned(x, cos, sin, mode):
    return x.float() * cos.float() + TURNED[mode](x.float()) * sin.float()


def tables(draw, *shape, dtype):
    angle = draw.tensor(*shape, low=-4, high=4, strided=False)
    return angle.cos().to(dtype), angle.sin().to(dtype)


# The shapes of tables for each layout of the input.
LAYOUTS = {
    "BNSD": lambda b, n, s: ((b, n, s), ((1, 1, s), (b, 1, s), (b, n, s))),
    "BSND": lambda b, n, s: ((b, s, n), ((1, s, 1), (b, s, 1), (b, s, n))),
    "SBND": lambda b, n, s: ((s, b, n), ((s, 1, 1), (s, b, 1), (s, b, n))),
    "TND": lambda b, n, s: ((s, n), ((s, 1), (s, n))),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotary_mul(torch_npu, layout):
    draw = Draw(21)
    for _ in range(CASES // 2):
        dtype, mode = draw.one_of(FLOATS), draw.one_of(TURNED)
        d = 2 * draw.size(1, 16)
        shape, forms = LAYOUTS[layout](draw.size(1, 4), draw.size(1, 4), draw.size(1, 5))
        form = forms[0] if mode == "interleave" else draw.one_of(forms)
        x = draw.tensor(*shape, d, dtype=dtype)
        cos, sin = tables(draw, *form, d, dtype=dtype)
        found = torch_npu.npu_rotary_mul(x, cos, sin, mode)
        close(found, turned(x, cos, sin, mode).to(dtype))


def test_rotary_mul_with_a_matrix(torch_npu):
    draw = Draw(22)
    for _ in range(CASES):
        dtype, d = draw.one_of(FLOATS), 2 * draw.size(1, 8)
        x = draw.tensor(2, 3, 2, d, dtype=dtype)
        cos, sin = tables(draw, 1, 3, 1, d, dtype=dtype)
        matrix = draw.tensor(d, d, dtype=dtype, scale=0.3)
        found = torch_npu.npu_rotary_mul(x, cos, sin, "half", matrix)
        expected = x.float() * cos.float() + (x.float() @ matrix.float()) * sin.float()
        close(found, expected.to(dtype))


def test_rotary_mul_refuses(torch_npu):
    call = torch_npu.npu_rotary_mul
    x, table = torch.ones(2, 3, 2, 8), torch.ones(1, 3, 1, 8)
    refused(call, "rotary_mul.range", x, 2 * table, table)
    wide = torch.ones(1, 1, 1, 896)
    refused(call, "rotary_mul.D", wide, wide, wide)
    many = torch.ones(1000, 1, 1, 8)
    refused(call, "rotary_mul.half_BN", many, torch.ones(1, 1, 1, 8), torch.ones(1, 1, 1, 8))
    some = torch.ones(40, 2, 25, 8)
    two = torch.ones(1, 2, 1, 8)
    refused(call, "rotary_mul.inter_BN", some, two, two, "interleave")
    refused(call, "rotary_mul.dtype", x.double(), table.double(), table.double())
    with pytest.raises(RuntimeError, match="rotary_mode"):
        call(x, table, table, "quarter")


def test_apply_rotary_pos_emb_is_in_place(torch_npu):
    draw = Draw(23)
    for _ in range(CASES):
        dtype, d = draw.one_of(FLOATS), draw.one_of((64, 128))
        layout = draw.one_of(("BSND", "TND"))
        lead = [draw.size(1, 3)] + ([draw.size(1, 3)] if layout == "BSND" else [])
        q = draw.tensor(*lead, draw.size(1, 3), d, dtype=dtype)
        k = draw.tensor(*lead, draw.size(1, 2), d, dtype=dtype)
        cos, sin = tables(draw, *lead, 1, d, dtype=dtype)
        expected = [turned(x, cos, sin, "half").to(dtype) for x in (q, k)]
        found = torch_npu.npu_apply_rotary_pos_emb(q, k, cos, sin, layout)
        for changed, returned, e in zip((q, k), found, expected, strict=True):
            close(changed, e)
            assert torch.equal(changed, returned)


def test_apply_rotary_pos_emb_refuses(torch_npu):
    call, of = torch_npu.npu_apply_rotary_pos_emb, "apply_rotary_pos_emb."
    x, table = torch.ones(2, 3, 2, 64), torch.ones(2, 3, 1, 64)
    refused(call, of + "D", x[..., :32], x[..., :32], table[..., :32], table[..., :32])
    refused(call, of + "layout", x, x, table, table, "BNSD")
    refused(call, of + "mode", x, x, table, table, "BSND", "interleave")
    refused(call, of + "dtype", x, x.half(), table, table)
    refused(call, of + "lead", x, x, table[:1], table[:1])
    refused(call, of + "cosn", x, x, x, x)
    refused(call, of + "rank", x, x, table, table, "TND")


def test_interleave_rope(torch_npu):
    draw = Draw(24)
    for _ in range(CASES):
        dtype, b, n, s = draw.one_of(HALVES), draw.size(1, 3), draw.size(1, 4), draw.size(1, 4)
        x = draw.tensor(b, n, s, 64, dtype=dtype)
        cos, sin = tables(draw, b, 1, draw.one_of((1, s)), 64, dtype=dtype)
        regrouped = x.reshape(b, n, s, 32, 2).transpose(-1, -2).reshape(b, n, s, 64)
        found = torch_npu.npu_interleave_rope(x, cos, sin)
        close(found, turned(regrouped, cos, sin, "half").to(dtype))


def test_interleave_rope_refuses(torch_npu):
    call = torch_npu.npu_interleave_rope
    x, table = torch.ones(2, 3, 4, 64).half(), torch.ones(2, 1, 4, 64).half()
    refused(call, "interleave_rope.D", x[..., :32], table[..., :32], table[..., :32])
    refused(call, "interleave_rope.cosn", x, x, x)
    refused(call, "interleave_rope.dtype", x.float(), table.float(), table.float())
    refused(call, "interleave_rope.rank", x[0], table[0], table[0])


SECTIONS = ([16, 24, 24], [24, 20, 20], [8, 12, 12], [16, 16, 16, 16])


def mrope_tables(table, positions, sections, cache_mode):
    """cos and sin, [T, D/2]."""
    cos, sin = table.float()[positions].chunk(2, -1)
    if positions.dim() == 1:
        return cos, sin
    chosen = []
    for t in (cos, sin):
        if cache_mode == "interleave":
            out = t[0].clone()
            for row in (1, 2):
                lanes = slice(row, sections[1] * 3, 3)
                out[:, lanes] = t[row][:, lanes]
            chosen.append(out)
        else:
            parts = t.split(sections, -1)
            chosen.append(torch.cat([p[i] for i, p in enumerate(parts)], -1))
    return chosen


@pytest.mark.filterwarnings("ignore:npu_mrope")
def test_mrope(torch_npu):
    draw = Draw(25)
    for _ in range(CASES):
        dtype, tokens, length = draw.one_of(FLOATS), draw.size(1, 5), draw.size(1, 9)
        sections = draw.maybe(draw.one_of(SECTIONS))
        rotary = 2 * sum(sections) if sections else 32 * draw.size(1, 2)
        head = rotary + 32 * draw.size(0, 1)
        cache_mode = "default"
        if sections and len(sections) == 3:
            cache_mode = draw.one_of(("default", "interleave"))
        mode = draw.one_of(("half", "interleaved"))
        shape = (len(sections), tokens) if sections else (tokens,)
        positions = draw.integers(
            *shape, low=0, high=length, dtype=draw.one_of((torch.int32, torch.int64))
        )
        q = draw.tensor(tokens, head * draw.size(1, 3), dtype=dtype)
        k = draw.tensor(tokens, head, dtype=dtype)
        table = draw.tensor(length, rotary, dtype=dtype)
        given = sections or draw.one_of((None, [0, 0, 0]))
        found = torch_npu.npu_mrope(
            positions,
            q,
            k,
            table,
            head,
            mrope_section=given,
            rotary_mode=mode,
            cache_mode=cache_mode,
        )
        cos, sin = mrope_tables(table, positions.long(), sections, cache_mode)
        for x, y in zip((q, k), found, strict=True):
            v = x.float().reshape(tokens, -1, head)
            part = v[..., :rotary]
            a, b = part.chunk(2, -1) if mode == "half" else (part[..., ::2], part[..., 1::2])
            c, s = cos[:, None], sin[:, None]
            both = (a * c - b * s, b * c + a * s)
            part = torch.cat(both, -1) if mode == "half" else torch.stack(both, -1).flatten(-2)
            close(y, torch.cat((part, v[..., rotary:]), -1).reshape(x.shape).to(dtype))


@pytest.mark.filterwarnings("ignore:npu_mrope")
def test_mrope_refuses(torch_npu):
    def call(positions=(0, 1), rotary=32, head=32, dtype=torch.half, **options):
        p = torch.tensor(positions)
        x = torch.ones(p.shape[-1], head, dtype=dtype)
        return torch_npu.npu_mrope(p, x, x, torch.ones(2, rotary, dtype=dtype), head, **options)

    refused(call, "mrope.rd16", rotary=16)
    refused(call, "mrope.rd32", rotary=8, dtype=torch.float32)
    refused(call, "mrope.head", rotary=32, head=48)
    refused(call, "mrope.pos", (0, 2))
    refused(call, "mrope.section", [[0, 1]] * 3, mrope_section=[8, 12, 12])
    refused(call, "mrope.known", [[0, 1]] * 3, mrope_section=[4, 6, 6])
    refused(call, "mrope.cache", cache_mode="interleave")

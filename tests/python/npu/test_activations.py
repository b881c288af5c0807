"""Activations of torch_npu, plain, gated and quantised, against PyTorch."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from draws import CASES, FLOATS, HALVES, Draw, close, quantised, refused, unpack_int4


def shapes(draw, least=1):
    return [draw.size(1, 5) for _ in range(draw.size(least - 1, 3))] + [2 * draw.size(1, 12)]


PLAIN = {
    "npu_fast_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "npu_silu": F.silu,
    "npu_gelu": F.gelu,
}


@pytest.mark.filterwarnings("ignore:npu_")
@pytest.mark.parametrize("name", PLAIN)
def test_plain(torch_npu, name):
    draw = Draw(11)
    for _ in range(CASES):
        dtype = draw.one_of(FLOATS)
        x = draw.tensor(*shapes(draw), dtype=dtype, scale=3)
        forms = ({}, {"approximate": "none"}, {"approximate": "tanh"})
        given = draw.one_of(forms) if name == "npu_gelu" else {}
        close(getattr(torch_npu, name)(x, **given), PLAIN[name](x.float(), **given).to(dtype))


@pytest.mark.filterwarnings("ignore:npu_")
def test_plain_of_nothing_and_of_large_values(torch_npu):
    assert torch_npu.npu_fast_gelu(torch.empty(0, 4)).shape == (0, 4)
    x = torch.tensor([-1e4, 1e4, float("nan")])
    close(torch_npu.npu_fast_gelu(x), torch.tensor([0.0, 1e4, float("nan")]))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_mul(torch_npu, approximate):
    draw = Draw(12)
    for _ in range(CASES):
        dtype = draw.one_of(FLOATS)
        x = draw.tensor(*shapes(draw, 2), dtype=dtype, scale=2)
        a, b = x.float().chunk(2, -1)
        found = torch_npu.npu_gelu_mul(x, approximate=approximate)
        close(found, (F.gelu(a, approximate=approximate) * b).to(dtype))


def test_gelu_mul_refuses(torch_npu):
    call = torch_npu.npu_gelu_mul
    refused(call, "gelu_mul.last", torch.ones(2, 1026))
    refused(call, "gelu_mul.last", torch.ones(2, 3))
    refused(call, "gelu_mul.rows", torch.ones(1, 2).expand(200001, 2))
    refused(call, "gelu_mul.rank", torch.ones(4))
    refused(call, "gelu_mul.dtype", torch.ones(2, 4).double())


def test_swiglu(torch_npu):
    draw = Draw(13)
    for _ in range(CASES):
        dtype, shape = draw.one_of(FLOATS), shapes(draw)
        dim = draw.size(-len(shape), len(shape) - 1)
        shape[dim] = 2 * draw.size(1, 6)
        x = draw.tensor(*shape, dtype=dtype)
        a, b = x.float().chunk(2, dim)
        close(torch_npu.npu_swiglu(x, dim), (F.silu(a) * b).to(dtype))
    refused(torch_npu.npu_swiglu, "swiglu.even", torch.ones(2, 3))
    refused(torch_npu.npu_swiglu, "swiglu.dtype", torch.ones(2, 4).double())


def test_geglu(torch_npu):
    draw = Draw(14)
    for _ in range(CASES):
        dtype = draw.one_of(FLOATS)
        x = draw.tensor(*shapes(draw), dtype=dtype)
        tanh, left = draw.one_of((0, 1)), draw.one_of((True, False))
        out, gelu = torch_npu.npu_geglu(x, -1, tanh, left)
        a, b = x.float().chunk(2, -1)
        a, b = (a, b) if left else (b, a)
        activated = F.gelu(a, approximate="tanh" if tanh else "none")
        close(gelu, activated.to(dtype))
        close(out, (activated * b).to(dtype))


def clipped(x, dim, alpha, limit, bias, interleaved):
    if interleaved:
        x = x.unflatten(dim, (-1, 2))
        a, b = x.unbind(dim % (x.dim() - 1) + 1)
    else:
        a, b = x.chunk(2, dim)
    a, b = a.clamp(max=limit), b.clamp(-limit, limit)
    return a * torch.sigmoid(alpha * a) * (b + bias)


def test_clipped_swiglu(torch_npu):
    draw = Draw(15)
    for _ in range(CASES):
        dtype, shape = draw.one_of(FLOATS), shapes(draw, 2)
        x = draw.tensor(*shape, dtype=dtype, scale=4)
        options = {
            "alpha": draw.one_of((1.702, 1.0)),
            "limit": draw.one_of((7.0, 1.5)),
            "bias": draw.one_of((1.0, 0.0)),
            "interleaved": draw.one_of((True, False)),
        }
        rows = x[..., 0].numel()
        used = draw.size(0, rows)
        groups = draw.maybe(torch.tensor([used // 2, used - used // 2]))
        found = torch_npu.npu_clipped_swiglu(x, group_index=groups, dim=-1, **options)
        expected = clipped(x.float(), -1, **options).to(dtype)
        n = rows if groups is None else used
        close(found.flatten(0, -2)[:n], expected.flatten(0, -2)[:n])
    refused(torch_npu.npu_clipped_swiglu, "clipped_swiglu.even", torch.ones(2, 3))
    refused(torch_npu.npu_clipped_swiglu, "clipped_swiglu.dtype", torch.ones(2, 4).double())
    with pytest.raises(RuntimeError, match="group_index has 9 rows"):
        torch_npu.npu_clipped_swiglu(torch.ones(2, 4), group_index=torch.tensor([9]))


# ---- quantised


def by_rows(parameter, groups, rows, width, absent):
    """A parameter of groups of rows as [rows, width]; groups are counts."""
    if parameter is None:
        return torch.full((rows, width), float(absent))
    parameter = parameter.float()
    if groups is None:
        return parameter.reshape(1, -1).expand(rows, width)
    full = torch.full((rows, width), float(absent))
    start = 0
    for g, n in enumerate(groups.tolist()):
        full[start : start + n] = parameter[g]
        start += n
    return full


def counts_of(draw, rows, dtype):
    cuts = sorted(draw.size(0, rows) for _ in range(draw.size(0, 3)))
    edges = [0, *cuts, rows]
    return torch.tensor([b - a for a, b in itertools.pairwise(edges)], dtype=dtype)


def test_swiglu_quant(torch_npu):
    draw = Draw(16)
    for _ in range(CASES):
        dtype, dynamic = draw.one_of(FLOATS), draw.one_of((0, 1))
        int4 = draw.maybe(True, 0.2)
        rows, n = draw.size(1, 9), 2 * draw.size(1, 8)
        x = draw.tensor(rows, 2 * n, dtype=dtype)
        counts = draw.maybe(counts_of(draw, rows, torch.int32))
        g = [] if counts is None else [len(counts)]
        shape = draw.one_of(([*g, n], g if g else [n]))
        smooth = draw.tensor(*shape, low=0.5, high=20)
        offsets = draw.tensor(*shape, scale=3) if not dynamic else None
        if draw.maybe(True, 0.2):
            smooth = offsets = None
        as_counts = draw.one_of((0, 1))
        index = counts if counts is None or as_counts else counts.cumsum(0).to(torch.int32)
        if counts is not None and as_counts and (counts.diff() < 0).any():
            index, as_counts = counts.cumsum(0).to(torch.int32), 0
        left = draw.one_of((True, False))
        y, scale = torch_npu.npu_swiglu_quant(
            x,
            smooth_scales=smooth,
            offsets=offsets,
            group_index=index,
            activate_left=left,
            quant_mode=dynamic,
            group_list_type=as_counts,
            dst_type=torch.quint4x2 if int4 else None,
        )
        a, b = x.float().chunk(2, -1)
        v = F.silu(a) * b if left else a * F.silu(b)
        if smooth is not None and smooth.dim() == 1 and g:
            smooth = smooth[:, None].expand(-1, n)
            offsets = offsets if offsets is None else offsets[:, None].expand(-1, n)
        v = v * by_rows(smooth, counts, rows, n, 1)
        top = 7 if int4 else 127
        if dynamic:
            expected = top / v.abs().amax(-1)
            close(scale, expected)
            v = v * expected[:, None]
        else:
            v = v + by_rows(offsets, counts, rows, n, 0)
        quantised(unpack_int4(y, 2) if int4 else y, v.clamp(-top - 1, top))


def test_swiglu_quant_refuses(torch_npu):
    call = torch_npu.npu_swiglu_quant
    x = torch.ones(2, 8)
    refused(call, "swiglu_quant.last", torch.ones(2, 8194))
    refused(call, "swiglu_quant.int4", torch.ones(2, 6), dst_type=torch.quint4x2)
    refused(call, "swiglu_quant.dtype", x.double())
    refused(call, "swiglu_quant.scales", x, smooth_scales=torch.ones(4).half(), quant_mode=1)
    descending = torch.tensor([2, 1], dtype=torch.int32)
    refused(call, "swiglu_quant.group", x, group_index=descending)


def test_dequant_swiglu_quant(torch_npu):
    draw = Draw(17)
    for _ in range(CASES):
        rows, integers = draw.size(1, 9), draw.one_of((True, False))
        grouped = draw.maybe(True, 0.4)
        h = 64 if grouped else draw.size(1, 12)
        dynamic = 1 if grouped else draw.one_of((0, 1))
        mode, left = draw.one_of((0, 1, 2)), draw.one_of((True, False))
        groups = counts_of(draw, rows, torch.int64) if grouped else None
        g = len(groups) if grouped else 1
        if integers:
            x = draw.integers(rows, 2 * h, low=-500, high=500)
            weight = draw.tensor(g, 2 * h, low=0.001, high=0.02)
            activation = draw.tensor(rows, 1, low=0.1, high=2)
            bias = None if grouped else draw.maybe(draw.integers(2 * h, low=-90, high=90))
        else:
            x = draw.tensor(rows, 2 * h, dtype=draw.one_of(HALVES), scale=3)
            weight = activation = bias = None
        smooth = draw.maybe(draw.tensor(g, h, low=0.05, high=2))
        offset = None if grouped or dynamic else draw.maybe(draw.tensor(1, h, scale=3))
        y, scale = torch_npu.npu_dequant_swiglu_quant(
            x,
            weight_scale=weight,
            activation_scale=activation,
            bias=bias,
            quant_scale=smooth,
            quant_offset=offset,
            group_index=groups,
            activate_left=left,
            quant_mode=dynamic,
            swiglu_mode=mode,
            clamp_limit=3.0,
            glu_alpha=1.5,
            glu_bias=0.5,
        )
        v = x.float() + (0 if bias is None else bias.float())
        if integers:
            v = v * by_rows(weight, groups, rows, 2 * h, 1) * activation
        a, b = (v[:, ::2], v[:, 1::2]) if mode == 1 else v.chunk(2, -1)
        if mode != 1 and not left:
            a, b = b, a
        if mode == 0:
            v = F.silu(a) * b
        else:
            a = a.clamp(max=3)
            v = a * torch.sigmoid(1.5 * a) * (b.clamp(-3, 3) + 0.5)
        s = by_rows(smooth, groups, rows, h, 1)
        if dynamic:
            v = v * s
            expected = v.abs().amax(-1) / 127
            close(scale, expected)
            v = torch.where(expected[:, None] > 0, v / expected[:, None], v)
        else:
            v = v / s + by_rows(offset, groups, rows, h, 0)
        quantised(y, v.clamp(-128, 127))


def test_dequant_swiglu_quant_refuses(torch_npu):
    call, of = torch_npu.npu_dequant_swiglu_quant, "dequant_swiglu_quant."
    i, f = torch.ones(2, 8, dtype=torch.int32), torch.ones(2, 8).half()
    refused(call, of + "scale", i)
    refused(call, of + "float", f, weight_scale=torch.ones(1, 8))
    refused(call, of + "even", torch.ones(2, 7).half())
    one = torch.tensor([2])
    refused(call, of + "group_dyn", f, group_index=one)
    refused(call, of + "H", f, group_index=one, quant_mode=1)
    refused(call, of + "dtype", f.float())
    refused(call, of + "static", f, quant_scale=torch.ones(1, 4).half())
    wide = torch.ones(2, 128).half()
    refused(call, of + "sum", wide, group_index=torch.tensor([3]), quant_mode=1)
    refused(call, of + "limit", f, clamp_limit=0.0)

"""Feed-forward blocks and plain products of torch_npu against PyTorch."""

import pytest
import torch
import torch.nn.functional as F
from draws import CASES, HALVES, Draw, close, refused

PLAIN = {
    "fastgelu": lambda x: x * torch.sigmoid(1.702 * x),
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
}
GATED = {"geglu": F.gelu, "swiglu": F.silu, "reglu": F.relu}


def activated(name, h):
    if name in PLAIN:
        return PLAIN[name](h)
    a, b = h.chunk(2, -1)
    return GATED[name](a) * b


def block(x, w1, w2, b1, b2, name, dtype):
    h = x.float() @ w1.float() + (0 if b1 is None else b1.float())
    h = activated(name, h).to(dtype).float()
    return h @ w2.float() + (0 if b2 is None else b2.float())


def weights(draw, experts, k, n1, k2, dtype):
    e = [experts] if experts else []
    w1 = draw.tensor(*e, k, n1, dtype=dtype, scale=0.3)
    w2 = draw.tensor(*e, k2, k, dtype=dtype, scale=0.3)
    b1 = draw.maybe(draw.tensor(*e, n1, dtype=dtype, scale=0.3))
    b2 = draw.maybe(draw.tensor(*e, k, dtype=dtype, scale=0.3))
    return w1, w2, b1, b2


def test_ffn(torch_npu):
    draw = Draw(41)
    for _ in range(CASES):
        gated = draw.maybe(True, 0.3)
        name = draw.one_of(GATED if gated else PLAIN)
        dtype = torch.float16 if gated else draw.one_of(HALVES)
        k, k2 = draw.size(1, 8), draw.size(1, 8)
        lead = [draw.size(1, 3) for _ in range(draw.size(1, 2))]
        x = draw.tensor(*lead, k, dtype=dtype)
        w1, w2, b1, b2 = weights(draw, 0, k, 2 * k2 if gated else k2, k2, dtype)
        found = torch_npu.npu_ffn(
            x, w1, w2, name, bias1=b1, bias2=b2, inner_precise=1 if gated else 0
        )
        close(found, block(x, w1, w2, b1, b2, name, dtype).to(dtype))


def test_ffn_of_experts(torch_npu):
    draw = Draw(42)
    for _ in range(CASES):
        dtype, name = draw.one_of(HALVES), draw.one_of(PLAIN)
        rows, experts = draw.size(1, 7), draw.size(1, 4)
        k, k2 = draw.size(1, 6), draw.size(1, 6)
        x = draw.tensor(rows, k, dtype=dtype)
        w1, w2, b1, b2 = weights(draw, experts, k, k2, k2, dtype)
        ends = draw.ends(rows, experts).tolist()  # empty experts among them
        counts = [b - a for a, b in zip([0, *ends], ends, strict=False)]
        groups = draw.one_of(({"expert_tokens": counts}, {"expert_tokens_index": ends}))
        found = torch_npu.npu_ffn(x, w1, w2, name, bias1=b1, bias2=b2, **groups)
        parts = []
        for e, part in enumerate(x.split(counts)):
            b = [None if t is None else t[e] for t in (b1, b2)]
            parts.append(block(part, w1[e], w2[e], *b, name, dtype))
        close(found, torch.cat(parts).to(dtype))


def test_ffn_of_int8(torch_npu):
    draw = Draw(43)
    for _ in range(CASES):
        name, k, k2 = draw.one_of(PLAIN), draw.size(1, 8), draw.size(1, 8)
        x = draw.integers(draw.size(1, 5), k, low=-128, high=128, dtype=torch.int8)
        w1 = draw.integers(k, k2, low=-128, high=128, dtype=torch.int8)
        w2 = draw.integers(k2, k, low=-128, high=128, dtype=torch.int8)
        b1 = draw.maybe(draw.integers(k2, low=-99, high=99))
        d1, d2 = draw.tensor(k2, low=1e-5, high=1e-3), draw.tensor(k, low=1e-4, high=1e-2)
        scale = draw.tensor(draw.one_of((1, k2)), low=1, high=20)
        offset = draw.tensor(1, scale=3)
        dst = draw.one_of((None, torch.float16, torch.bfloat16))
        packed = draw.maybe(True, 0.3)
        if packed:
            d1, d2 = (torch_npu.npu_trans_quant_param(d) for d in (d1, d2))
        found = torch_npu.npu_ffn(
            x,
            w1,
            w2,
            name,
            bias1=b1,
            scale=scale,
            offset=offset,
            deq_scale1=d1,
            deq_scale2=d2,
            output_dtype=dst,
        )
        if packed:
            d1, d2 = ((d & 0xFFFFE000).to(torch.int32).view(torch.float32) for d in (d1, d2))
        h = (x.double() @ w1.double() + (0 if b1 is None else b1.double())).float() * d1
        h = PLAIN[name](h) * scale + offset
        edge = ((h - h.floor() - 0.5).abs() < 1e-4).any()  # may round to either side
        y = (h.round().clamp(-128, 127).double() @ w2.double()).float() * d2
        if not edge:
            close(found, y.to(dst or torch.float16))


def test_ffn_with_int8_weights(torch_npu):
    draw = Draw(44)
    for _ in range(CASES):
        dtype, name, k, k2 = (
            draw.one_of(HALVES),
            draw.one_of(PLAIN),
            draw.size(1, 8),
            draw.size(1, 8),
        )
        x = draw.tensor(draw.size(1, 5), k, dtype=dtype)
        w1 = draw.integers(k, k2, low=-128, high=128, dtype=torch.int8)
        w2 = draw.integers(k2, k, low=-128, high=128, dtype=torch.int8)
        s1, s2 = (draw.tensor(n, dtype=dtype, low=1e-3, high=1e-2) for n in (k2, k))
        o1, o2 = (draw.maybe(draw.tensor(n, dtype=dtype, scale=9)) for n in (k2, k))
        found = torch_npu.npu_ffn(
            x,
            w1,
            w2,
            name,
            antiquant_scale1=s1,
            antiquant_scale2=s2,
            antiquant_offset1=o1,
            antiquant_offset2=o2,
        )
        wide = [
            (w.float() + (0 if o is None else o.float())) * s.float()
            for w, o, s in ((w1, o1, s1), (w2, o2, s2))
        ]
        close(found, block(x, *wide, None, None, name, dtype).to(dtype))


def test_ffn_refuses(torch_npu):
    call = torch_npu.npu_ffn
    x, w = torch.ones(2, 4).half(), torch.ones(4, 4).half()
    wide = torch.ones(4, 8).half()
    refused(call, "ffn.glu", x, wide, w, "swiglu")  # not in high precision
    refused(call, "ffn.glu", x.bfloat16(), wide.bfloat16(), w.bfloat16(), "swiglu", inner_precise=1)
    refused(call, "ffn.plain", x, wide, w, "gelu")
    refused(call, "ffn.k", x, w, wide, "gelu")
    refused(call, "ffn.dtype", x.float(), w.float(), w.float(), "gelu")
    refused(call, "ffn.precise", x.bfloat16(), w.bfloat16(), w.bfloat16(), "gelu", inner_precise=1)
    e = torch.ones(2, 4, 4).half()
    refused(call, "ffn.experts", x, e, e, "gelu", expert_tokens=[1, 2])
    with pytest.raises(RuntimeError, match="activation"):
        call(x, w, w, "tanh")


@pytest.mark.filterwarnings("ignore:npu_linear")
def test_linear(torch_npu):
    draw = Draw(45)
    for _ in range(CASES):
        dtype = draw.one_of((torch.float16, torch.float32))
        m, k, n = draw.size(0, 5), draw.size(1, 9), draw.size(1, 9)
        x, w = draw.tensor(m, k, dtype=dtype), draw.tensor(n, k, dtype=dtype)
        b = draw.maybe(draw.tensor(n, dtype=dtype))
        found = torch_npu.npu_linear(x, w, b)
        close(found, F.linear(x.float(), w.float(), b if b is None else b.float()).to(dtype))
    refused(torch_npu.npu_linear, "linear.dtype", x.bfloat16(), w.bfloat16())
    refused(torch_npu.npu_linear, "linear.rank", x[None], w)

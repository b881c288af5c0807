"""npu_fusion_attention, forward and without dropout, against attention written in PyTorch."""

import random

import pytest

torch = pytest.importorskip("torch")

from attention_cases import attend, close, draw, totals, triangle, window  # noqa: E402
from draws import CASES, refused  # noqa: E402

LAYOUTS = ("BSH", "SBH", "BSND", "BNSD", "TND")


def put(rows, layout):
    """Requests [n, heads, D], of one length unless they are packed."""
    if layout == "TND":
        return torch.cat(rows)
    t = torch.stack(rows)  # BSND
    if layout.endswith("H"):
        t = t.flatten(2)
    return {"SBH": lambda: t.transpose(0, 1), "BNSD": lambda: t.transpose(1, 2)}.get(
        layout, lambda: t
    )().contiguous()


def take(t, layout, lens, heads):
    if layout == "TND":
        assert not t[sum(lens) :].any()
        return list(t[: sum(lens)].split(lens))
    t = {"SBH": lambda: t.transpose(0, 1), "BNSD": lambda: t.transpose(1, 2)}.get(
        layout, lambda: t
    )()
    return list(t.unflatten(2, (heads, -1)) if layout.endswith("H") else t)


def masks(rng, mode, packed, batch, heads, q_lens, kv_lens):
    """Arguments, and what each query of each request and head sees [heads, n, m]."""
    full = [torch.ones(heads, n, m, dtype=torch.bool) for n, m in zip(q_lens, kv_lens, strict=True)]
    pre, after = rng.randrange(-1, 6), rng.randrange(-1, 4)
    args = {"sparse_mode": mode, "pre_tockens": pre, "next_tockens": after}
    if mode == 0 and rng.random() < 0.5:  # without a mask they do not count
        return args, full
    kind = rng.choice([torch.bool, torch.uint8])
    seen = [
        f & window(n, m, mode, pre, after) for f, n, m in zip(full, q_lens, kv_lens, strict=True)
    ]
    if mode >= 2:
        return args | {"atten_mask": triangle(kind)}, seen
    size, width = max(q_lens), max(kv_lens)
    lead = () if packed else rng.choice([(), (1, 1), (batch, 1), (batch, heads)])
    mask = draw(rng, *lead, size, width) > 0.3
    whole = mask.expand(batch, heads, size, width)
    seen = [s & ~whole[b, :, : s.shape[1], : s.shape[2]] for b, s in enumerate(seen)]
    return args | {"atten_mask": mask.to(kind)}, seen


def run_case(torch_npu, rng, layout):
    packed = layout == "TND"
    kv_heads, group, batch = rng.choice([1, 2, 3]), rng.choice([1, 2, 4]), rng.randint(1, 3)
    heads, dim = kv_heads * group, rng.choice([8, 24])
    v_dim = rng.choice([8, dim])
    dtype = rng.choice([torch.float16, torch.bfloat16, torch.float32])
    lens = [rng.randint(0 if packed else 1, 7) for _ in range(2 * batch)]
    q_lens = lens[:batch] if packed else [lens[0]] * batch
    kv_lens = lens[batch:] if packed else [lens[batch]] * batch
    if packed:
        q_lens[0], kv_lens[0] = max(q_lens[0], 1), max(kv_lens[0], 1)
    q = [draw(rng, n, heads, dim, dtype=dtype) for n in q_lens]
    k = [draw(rng, m, kv_heads, dim, dtype=dtype) for m in kv_lens]
    v = [draw(rng, m, kv_heads, v_dim, dtype=dtype) for m in kv_lens]
    args, seen = masks(rng, rng.randrange(5), packed, batch, heads, q_lens, kv_lens)
    scale = args["scale"] = rng.choice([0.3, 1.0])
    bias = sink = None
    if packed:
        ends = totals(q_lens), totals(kv_lens)
        idle = rng.randrange(3)  # requests at the end that take no part
        args.update(actual_seq_qlen=ends[0] + [0] * idle, actual_seq_kvlen=ends[1] + [0] * idle)
        args["softmax_layout"] = rng.choice(["", "TND"])
    elif rng.random() < 0.3:
        one = rng.choice([1, q_lens[0]])
        bias = draw(rng, rng.choice([1, batch]), heads, one, kv_lens[0], dtype=dtype)
        args["pse"] = bias
    if rng.random() < 0.3:
        sink = args["sink"] = draw(rng, heads, dtype=torch.float32)
    out, top, total, rest, *numbers = torch_npu.npu_fusion_attention(
        put(q, layout), put(k, layout), put(v, layout), heads, layout, **args
    )
    assert out.dtype == dtype and rest.shape == (0,) and numbers == [0, 0, 0]
    assert top.shape[-1] == total.shape[-1] == 8
    if packed and args["softmax_layout"] == "":
        top, total = (t.view(heads, -1, 8).transpose(0, 1) for t in (top, total))
    for b, got in enumerate(take(out, layout, q_lens, heads)):
        part = None
        if bias is not None:
            part = bias[b % len(bias)].float().expand(heads, q_lens[b], -1) * scale
        want, lse = attend(q[b], k[b], v[b], seen[b], scale, sink, part)
        close(got, want.to(dtype))
        at = sum(q_lens[:b])
        rows = [t[at : at + q_lens[b]] if packed else t[b].transpose(0, 1) for t in (top, total)]
        found = rows[0] + rows[1].log()
        known = lse.isfinite()
        torch.testing.assert_close(
            found[known], lse[..., None].expand(-1, -1, 8)[known], rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_calls(torch_npu, layout):
    rng = random.Random(50)
    for number in range(CASES):
        try:
            run_case(torch_npu, rng, layout)
        except Exception as error:
            raise AssertionError(f"case {number}") from error


def test_a_fully_masked_row_gives_zeros(torch_npu):
    q = torch.randn(1, 2, 3, 8)
    mask = torch.tensor([[0, 0, 0], [1, 1, 1], [0, 1, 0]]).bool()
    out = torch_npu.npu_fusion_attention(q, q, q, 2, "BNSD", atten_mask=mask)[0]
    assert not out[:, :, 1].any() and out[:, :, 0].all()


def test_refuses(torch_npu):
    call, of = torch_npu.npu_fusion_attention, "fusion_attention."
    q = torch.randn(1, 2, 3, 8)
    refused(call, "keep_prob 1", q, q, q, 2, "BNSD", keep_prob=0.5)
    refused(call, of + "keep_prob", q, q, q, 2, "BNSD", keep_prob=0.0)
    refused(call, of + "layout", q, q, q, 2, "NBSD")
    refused(call, of + "sparse_mode", q, q, q, 2, "BNSD", sparse_mode=7)
    refused(call, "sparse_mode 0 to 4", q, q, q, 2, "BNSD", sparse_mode=6)
    refused(call, "prefix", q, q, q, 2, "BNSD", prefix=[1])
    refused(call, of + "totals", q[0], q[0], q[0], 3, "TND")
    refused(call, "heads of query", q, q, q, 4, "BNSD")
    refused(call, "atten_mask and queries", q, q, q, 2, "BNSD", atten_mask=torch.ones(2, 3).bool())
    with pytest.raises(TypeError, match="head_num"):
        call(q, q, q, input_layout="BNSD")

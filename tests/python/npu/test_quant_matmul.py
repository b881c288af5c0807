"""Quantised and transposed products, and one rank's part of those with collectives."""

import pytest
import torch
from draws import CASES, FLOATS, HALVES, Draw, close, quantised, refused, unpack_int4
from tokamak.npu import library

pytestmark = pytest.mark.filterwarnings("ignore:npu_")


def small(draw, *shape):
    return draw.integers(*shape, low=-40, high=40, dtype=torch.int8)


def int4(draw, *shape):
    packed = draw.integers(*shape[:-1], shape[-1] // 8, low=-(2**31), high=2**31 - 1)
    return packed, unpack_int4(packed, 8)


def packed_scale(scale, offset=None):
    """What npu_trans_quant_param makes of f32 scales and offsets; and the scales it keeps."""
    bits = scale.view(torch.int32) & ~0x1FFF
    word = (bits.long() & 0xFFFFFFFF) | (1 << 46)
    if offset is not None:
        word |= (offset.round().clamp(-256, 255).long() & 0x1FF) << 37
    return word, bits.view(torch.float32)


def test_quant_matmul(torch_npu):
    draw = Draw(1)
    for _ in range(CASES):
        m, n = draw.size(1, 7), draw.size(1, 9)
        batch = draw.one_of(((), (), (2,), (3, 2)))
        k = draw.size(1, 12)
        if draw.maybe(True, 0.3):
            k, n = 8 * draw.size(1, 3), 8 * draw.size(1, 2)
            x1, left = int4(draw, *batch, m, k)
            if draw.maybe(True):
                x2, right = int4(draw, k, n)
            else:  # packed along K, as a view
                x2, right = (t.t() for t in int4(draw, n, k))
        else:
            x1, x2 = (
                small(draw, *batch, m, k),
                small(draw, *(batch if draw.maybe(True) else ()), k, n),
            )
            left, right = x1, x2
        out = draw.one_of((None, torch.float16, torch.bfloat16, torch.int32))
        scale = draw.tensor(draw.one_of((1, n)), scale=0.02, strided=False)
        real, offset, tokens = scale, None, None
        if out is None:
            offset = (
                draw.maybe(draw.tensor(len(scale), scale=4, strided=False))
                if x1.dtype == torch.int8
                else None
            )
            if draw.maybe(True):
                whole = draw.integers(len(scale), low=-20, high=20).float()
                scale, real = packed_scale(scale, whole)
                shift = whole + (0 if offset is None else offset)
            else:
                shift = 0 if offset is None else offset
        elif out in HALVES:
            tokens = draw.maybe(draw.tensor(m, strided=False))
            if out == torch.bfloat16 and draw.maybe(True):
                scale = scale.bfloat16()
                real = scale.float()
        bias = draw.maybe(draw.integers(n, low=-99, high=99))
        if bias is not None and out in HALVES and draw.maybe(True):
            bias = bias.float()
        if bias is not None and len(batch) == 1 and draw.maybe(True):
            bias = bias.expand(batch[0], 1, n).contiguous()
        y = torch_npu.npu_quant_matmul(
            x1, x2, scale, offset=offset, pertoken_scale=tokens, bias=bias, output_dtype=out
        )
        expected = left.float() @ right.float()
        if bias is not None and bias.dtype == torch.int32:
            expected = expected + bias
        if out == torch.int32:
            assert torch.equal(y, expected.int())
            continue
        expected = expected * real
        if tokens is not None:
            expected = expected * tokens[:, None]
        if bias is not None and bias.dtype != torch.int32:
            expected = expected + bias
        if out is None:
            quantised(y, (expected + shift).clamp(-128, 127))
        else:
            close(y, expected.to(out))


def test_quant_matmul_refuses(torch_npu):
    call, ones = torch_npu.npu_quant_matmul, torch.ones(1)
    x, w = torch.ones(2, 8).to(torch.int8), torch.ones(8, 3).to(torch.int8)
    refused(call, "quant_matmul.last", x[:1, :1], torch.ones(1, 65536).to(torch.int8), ones)
    packed = torch.ones(2, 1).int()
    refused(call, "quant_matmul.offset", packed, torch.ones(8, 1).int(), ones, offset=ones)
    refused(call, "both int8", x, w.int(), ones)
    refused(call, "x1 [.., M, K]", x[:, :7], w, ones)
    refused(call, "scale and offset", x, w, torch.ones(2))
    refused(
        call, "pertoken_scale", x, w, ones, pertoken_scale=torch.ones(3), output_dtype=torch.float16
    )
    refused(call, "output_dtype", x, w, ones, output_dtype=torch.float32)
    refused(call, "int8 result", x, w, ones, offset=ones, output_dtype=torch.float16)


def test_quant_matmul_reduce_sum(torch_npu):
    draw = Draw(2)
    for _ in range(CASES):
        b, m, k, n = draw.size(1, 4), draw.size(1, 6), draw.size(1, 10), draw.size(1, 8)
        x1, x2 = small(draw, b, m, k), small(draw, b, k, n)
        s1, s2 = draw.tensor(b, m, scale=0.1), draw.tensor(n, dtype=torch.bfloat16, scale=0.1)
        y = torch_npu.npu_quant_matmul_reduce_sum(x1, x2, x1_scale=s1, x2_scale=s2)
        expected = (x1.float() @ x2.float() * s1[..., None]).sum(0) * s2.float()
        torch.testing.assert_close(y.float(), expected, rtol=1.6e-2, atol=0.02)
        assert y.dtype == torch.bfloat16
    refused(
        torch_npu.npu_quant_matmul_reduce_sum,
        "quant_matmul_reduce_sum.dtype",
        x1.int(),
        x2,
        x1_scale=s1,
        x2_scale=s2,
    )


def per_row(t, group, k):
    """Scales of groups of rows, or of columns, as a matrix that broadcasts to [K, N]."""
    return t.float().repeat_interleave(group, 0)[:k] if group else t.float().view(1, -1)


def test_weight_quant_batchmatmul(torch_npu):
    draw = Draw(3)
    for _ in range(CASES):
        dtype = draw.one_of(HALVES)
        m, k = draw.size(1, 6), draw.size(1, 80)
        packed = draw.maybe(True)
        n = 8 * draw.size(1, 2) if packed else draw.size(1, 10)
        x = draw.tensor(m, k, dtype=dtype, scale=0.3)
        w, values = int4(draw, k, n) if packed else (small(draw, k, n),) * 2
        group = draw.one_of((0, 32))
        shape = (-(-k // group), n) if group else draw.one_of(((1,), (1, 1), (n,), (1, n)))
        scale = draw.tensor(*shape, dtype=dtype, scale=0.1, strided=False)
        offset = draw.maybe(draw.tensor(*shape, dtype=dtype, strided=False))
        bias = draw.maybe(draw.tensor(n, dtype=torch.float32 if dtype == torch.bfloat16 else dtype))
        quant = draw.maybe(draw.tensor(n, scale=3))
        shift = None if quant is None else draw.maybe(draw.tensor(n))
        y = torch_npu.npu_weight_quant_batchmatmul(
            x,
            w,
            scale,
            offset,
            quant_scale=quant,
            quant_offset=shift,
            bias=bias,
            antiquant_group_size=group,
        )

        shift_of = 0 if offset is None else per_row(offset, group, k)
        real = (values.float() + shift_of) * per_row(scale, group, k)
        expected = x.float() @ real
        expected = expected if bias is None else expected + bias.float()
        if quant is None:
            torch.testing.assert_close(y.float(), expected, rtol=1.6e-2, atol=0.02)
            assert y.dtype == dtype
        else:
            expected = expected * quant + (0 if shift is None else shift)
            quantised(y, expected.clamp(-128, 127))
    call = torch_npu.npu_weight_quant_batchmatmul
    x, w, one = torch.ones(1, 4), torch.ones(4, 2).to(torch.int8), torch.ones(1)
    refused(
        call,
        "weight_quant_batchmatmul.bias",
        x.bfloat16(),
        w,
        one.bfloat16(),
        bias=torch.ones(2).bfloat16(),
    )
    wide = torch.ones(1, 65536).half()
    refused(
        call, "weight_quant_batchmatmul.kn", wide, torch.ones(65536, 1).to(torch.int8), one.half()
    )
    refused(call, "antiquant_scale", x.half(), w, one)
    refused(call, "f16 or bf16", x, w, one)


def test_transpose_batchmatmul(torch_npu):
    draw = Draw(4)
    for _ in range(CASES):
        b, m, k, n = (draw.size(1, 7) for _ in range(4))
        dtype = draw.one_of(FLOATS)
        turned = draw.maybe(True)
        x = draw.tensor(*((m, b, k) if turned else (b, m, k)), dtype=dtype)
        w = draw.tensor(b, k, n, dtype=dtype)
        given = {"perm_x1": (1, 0, 2)} if turned else {}
        if draw.maybe(True):
            given |= {"perm_x2": (0, 1, 2), "perm_y": (1, 0, 2)}
        plain = (x.transpose(0, 1) if turned else x).float() @ w.float()
        y = torch_npu.npu_transpose_batchmatmul(x, w, **given)
        close(y, plain.transpose(0, 1).to(dtype))
        parts = draw.one_of([f for f in range(1, b * n + 1) if b * n % f == 0])
        y = torch_npu.npu_transpose_batchmatmul(x, w, batch_split_factor=parts, **given)
        flat = plain.transpose(0, 1).reshape(m, b * n)
        if parts > 1:
            close(y, flat.view(m, parts, -1).transpose(0, 1).to(dtype))
        scale, kept = packed_scale(draw.tensor(b * n, scale=9, strided=False))
        y = torch_npu.npu_transpose_batchmatmul(x, w, scale=scale, **given)
        quantised(y[:, 0], (flat * kept).clamp(-128, 127))
    call = torch_npu.npu_transpose_batchmatmul
    refused(call, "transpose_batchmatmul.rank", x[0], w)
    refused(call, "[B, M, K] and [B, K, N]", x, w[:, :0])
    refused(call, "batch_split_factor", x, w, batch_split_factor=b * n + 1)


def run(name, **given):
    """One rank's part, limits aside: they ask for more ranks."""
    operator = library.operators()[name]
    tensors = [given.pop(t["name"], None) for t in operator.tensors]
    return operator.run(tensors, given)


def test_mm_all_reduce_base(torch_npu):
    draw = Draw(5)
    for _ in range(CASES):
        m, k, n = draw.size(1, 6), draw.size(1, 10), draw.size(1, 8)
        lead = (m,) if draw.maybe(True) else (2, m)
        rows = 2 * m if len(lead) == 2 else m
        form = draw.one_of(("float", "weight", "int8"))
        dtype = draw.one_of(HALVES)
        given = {"hcom": "x"}
        if form == "float":
            x, w = draw.tensor(*lead, k, dtype=dtype), draw.tensor(k, n, dtype=dtype)
            expected = x.float() @ w.float()
        elif form == "weight":
            x, w = draw.tensor(*lead, k, dtype=dtype), small(draw, k, n)
            scale, offset = (
                draw.tensor(n, dtype=dtype, scale=0.1, strided=False) for _ in range(2)
            )
            given |= {"antiquant_scale": scale, "antiquant_offset": offset}
            expected = x.float() @ ((w.float() + offset.float()) * scale.float())
        else:
            x, w = small(draw, *lead, k), small(draw, k, n)
            scale = draw.tensor(n, scale=0.02, strided=False)
            scale = scale.bfloat16() if dtype == torch.bfloat16 else scale
            given["dequant_scale"] = scale
            expected = x.float() @ w.float() * scale.float()
            if draw.maybe(True):
                given["pertoken_scale"] = draw.tensor(rows)
                expected = expected * given["pertoken_scale"].view(*lead, 1)
        if form != "int8" and draw.maybe(True):
            given["bias"] = draw.tensor(n, dtype=dtype)
            expected = expected + given["bias"].float()
        if draw.maybe(True):
            given["x3"] = draw.tensor(*lead, n, dtype=dtype)
            expected = expected + given["x3"].float()
        (y,) = run("npu_mm_all_reduce_base", x1=x, x2=w, **given)
        close(y, expected.to(dtype))
    with pytest.raises(RuntimeError, match="dequant_scale"):
        run("npu_mm_all_reduce_base", x1=small(draw, 2, 3), x2=small(draw, 3, 2), hcom="x")


def test_one_rank_of_gather_and_scatter(torch_npu):
    draw = Draw(6)
    for _ in range(CASES):
        m, k, n = draw.size(1, 6), draw.size(1, 10), draw.size(1, 8)
        dtype = draw.one_of((*HALVES, torch.int8))
        given = {"hcom": "x", "world_size": 1}
        if dtype == torch.int8:
            x, w = small(draw, m, k), small(draw, k, n)
            given |= {"x1_scale": draw.tensor(m, 1), "x2_scale": draw.tensor(1, n, scale=0.02)}
            expected = x.float() @ w.float() * given["x1_scale"] * given["x2_scale"]
            dtype = torch.bfloat16
        else:
            x, w = draw.tensor(m, k, dtype=dtype), draw.tensor(k, n, dtype=dtype)
            expected = x.float() @ w.float()
        y, gathered = run("npu_all_gather_base_mm", input=x, x2=w, **given)
        close(y, expected.to(dtype))
        assert torch.equal(gathered, x)
        (y,) = run("npu_mm_reduce_scatter_base", input=x, x2=w, **given)
        close(y, expected.to(dtype))


def test_one_rank_of_exchanged_products(torch_npu):
    draw = Draw(7)
    for _ in range(CASES):
        counts = [draw.size(0, 3) for _ in range(draw.size(1, 4))]
        m, k, n = sum(counts), draw.size(1, 10), draw.size(1, 8)
        dtype = draw.one_of(HALVES)
        x = draw.tensor(m, k, dtype=dtype)
        w = draw.tensor(len(counts), k, n, dtype=dtype)
        given = {"hcom": "x", "ep_world_size": 1, "send_counts": counts, "recv_counts": counts}
        given |= {"gmm_x": x, "gmm_weight": w}
        expected = torch.cat([r.float() @ e.float() for r, e in zip(x.split(counts), w)])  # noqa: B905
        if draw.maybe(True):
            given |= {"gmm_weight": w.transpose(1, 2), "trans_gmm_weight": True}
        side = None
        if draw.maybe(True):
            a, b = draw.tensor(draw.size(1, 4), k, dtype=dtype), draw.tensor(k, n, dtype=dtype)
            side = (a.float() @ b.float()).to(dtype)
            turned = draw.one_of((False, True))
            given |= {"mm_x": a, "mm_weight": b.t() if turned else b, "trans_mm_weight": turned}
        put = draw.one_of((False, True))
        y, mm, rows = run("npu_alltoallv_gmm", **given, permute_out_flag=put)
        assert torch.equal(rows, x) if put else rows.numel() == 0
        back, mm_back = run("npu_gmm_alltoallv", **given)
        for product, sum_ in ((y, mm), (back, mm_back)):
            close(product, expected.to(dtype))
            assert sum_.numel() == 0 if side is None else close(sum_, side) is None


def test_collectives_refuse(torch_npu):
    x, w = torch.ones(6, 256).half(), torch.ones(256, 4).half()
    scatter, gather = torch_npu.npu_mm_reduce_scatter_base, torch_npu.npu_all_gather_base_mm
    refused(scatter, "mm_reduce_scatter_base.m", x, w, "g", 4)
    refused(scatter, "mm_reduce_scatter_base.k", x[:, :8], w[:8], "g", 2)
    refused(scatter, "mm_reduce_scatter_base.reduce", x, w, "g", 2, reduce_op="max")
    refused(gather, "all_gather_base_mm.k", x[:, :8], w[:8], "g", 2)
    refused(gather, "all_gather_base_mm.ranks_a2", x, w, "g", 3)
    refused(gather, "all_gather_base_mm.bias", x, w, "g", 2, bias=torch.ones(4).half())
    refused(torch_npu.npu_mm_all_reduce_base, "mm_all_reduce_base.turn", x, w, "g", comm_turn=1)
    refused(torch_npu.npu_mm_all_reduce_base, "no HCCL communicator", x, w, "g")
    counts = [3, 3]
    refused(torch_npu.npu_alltoallv_gmm, "alltoallv_gmm.ep", x, w[None], "g", 2, counts, counts)
    refused(torch_npu.npu_gmm_alltoallv, "gmm_alltoallv.ep", x, w[None], "g", 2, counts, counts)

"""Grouped products against loops over groups in PyTorch."""

import pytest
import torch
from draws import CASES, FLOATS, HALVES, Draw, close, quantised, refused, unpack_int4
from tokamak.npu import library

pytestmark = pytest.mark.filterwarnings("ignore:npu_")


def groups_of(draw, rows, experts, kind):
    """(group_list, [(expert, begin, end)]): empty groups, one that takes all, fewer rows."""
    ends = draw.ends(rows - draw.one_of((0, 0, draw.size(0, rows))), experts, dtype=torch.int64)
    if draw.maybe(True, 0.1):
        ends[: experts - 1] = 0
    counts = ends.diff(prepend=torch.zeros(1, dtype=torch.int64))
    owners = list(range(experts))
    if kind == 2:
        draw.random.shuffle(owners)
        listed = torch.stack([torch.tensor(owners), counts], 1)
    else:
        listed = ends if kind == 0 else counts
    begins = [0, *ends.tolist()[:-1]]
    return listed, [(o, b, e) for o, b, e in zip(owners, begins, ends.tolist(), strict=True)]


def small(draw, *shape):
    """int8, and values whose products are exact in f32."""
    return draw.integers(*shape, low=-40, high=40, dtype=torch.int8)


def int4(draw, *shape):
    """(packed int32, values): the last axis a multiple of eight."""
    packed = draw.integers(*shape[:-1], shape[-1] // 8, low=-(2**31), high=2**31 - 1)
    return packed, unpack_int4(packed, 8)


def transposed(t):
    return t.transpose(1, 2).contiguous().transpose(1, 2)


@pytest.mark.parametrize("kind", [0, 1])
def test_floats(torch_npu, kind):
    draw = Draw(kind)
    for _ in range(CASES // 2):
        m, k, n, experts = draw.size(1, 9), draw.size(1, 12), draw.size(1, 12), draw.size(1, 5)
        dtype = draw.one_of(FLOATS)
        x, w = (
            draw.tensor(m, k, dtype=dtype),
            draw.tensor(experts, k, n, dtype=dtype, strided=False),
        )
        w = transposed(w) if draw.maybe(True) else w
        bias_dtype = torch.float16 if dtype == torch.float16 else torch.float32
        bias = draw.maybe(draw.tensor(experts, n, dtype=bias_dtype))
        listed, groups = groups_of(draw, m, experts, kind)
        (y,) = torch_npu.npu_grouped_matmul(
            [x],
            [w],
            bias=None if bias is None else [bias],
            group_list=listed,
            split_item=draw.one_of((2, 3)),
            group_type=0,
            group_list_type=kind,
        )
        expected = torch.zeros(m, n)
        for e, begin, end in groups:
            expected[begin:end] = x[begin:end].float() @ w[e].float()
            if bias is not None:
                expected[begin:end] += bias[e].float()
        close(y, expected.to(dtype))


def test_without_groups_and_along_k(torch_npu):
    draw = Draw(2)
    for _ in range(CASES // 2):
        m, k, n = draw.size(1, 6), draw.size(1, 9), draw.size(1, 9)
        dtype = draw.one_of(FLOATS)
        xs = [draw.tensor(draw.size(1, 3), m, k, dtype=dtype) for _ in range(2)]
        ws = [draw.tensor(k, n, dtype=dtype) for _ in range(2)]
        ys = torch_npu.npu_grouped_matmul(xs, ws, split_item=0, group_type=-1)
        for x, w, y in zip(xs, ws, ys, strict=True):
            close(y, (x.float() @ w.float()).to(dtype))
        x, w = draw.tensor(m, k, dtype=dtype), draw.tensor(k, n, dtype=dtype)
        experts = draw.size(1, 4)
        listed, groups = groups_of(draw, k, experts, 1)
        (y,) = torch_npu.npu_grouped_matmul(
            [x], [w], group_list=listed, split_item=3, group_type=2, group_list_type=1
        )
        expected = torch.stack([x[:, b:e].float() @ w[b:e].float() for _, b, e in groups])
        close(y, expected.to(dtype))


def activation(kind, v):
    return {
        0: lambda: v,
        1: v.relu,
        2: lambda: torch.nn.functional.gelu(v, approximate="tanh"),
        4: lambda: v * (1.702 * v).sigmoid(),
        5: lambda: torch.nn.functional.silu(v),
    }[kind]()


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_int8(torch_npu, kind):
    draw = Draw(3 + kind)
    for _ in range(CASES // 2):
        m, k, n, experts = draw.size(1, 9), draw.size(1, 12), draw.size(1, 12), draw.size(1, 5)
        x, w = small(draw, m, k), small(draw, experts, k, n)
        form = draw.one_of(("sums", "int8", "channel", "token"))
        int_bias = draw.maybe(draw.integers(experts, n, low=-99, high=99))
        scale = draw.tensor(experts, n, scale=0.02, strided=False)
        out = draw.one_of(HALVES)
        scale = scale.bfloat16() if out == torch.bfloat16 else scale
        tokens = draw.tensor(m, strided=False) if form == "token" else None
        act = draw.one_of((0, 1, 2, 4, 5)) if form == "token" else 0
        listed, groups = groups_of(draw, m, experts, kind)
        given = {"bias": None if int_bias is None else [int_bias], "output_dtype": out}
        if form == "sums":
            given["output_dtype"] = torch.int32
        elif form == "int8":  # the scale as npu_trans_quant_param packs it: 19 bits of f32
            bits = scale.float().view(torch.int32) & ~0x1FFF
            scale = bits.view(torch.float32)
            given["scale"] = [(bits.long() & 0xFFFFFFFF) | (1 << 46)]
            del given["output_dtype"]
        else:
            given["scale"] = [scale]
        if tokens is not None:
            given["per_token_scale"] = [tokens]
        (y,) = torch_npu.npu_grouped_matmul(
            [x],
            [w],
            group_list=listed,
            split_item=3,
            group_type=0,
            group_list_type=kind,
            act_type=act,
            **given,
        )
        expected = torch.zeros(m, n)
        for e, b, end in groups:
            v = x[b:end].float() @ w[e].float()
            v = v if int_bias is None else v + int_bias[e]
            if form != "sums":
                v = v * scale[e].float()
            if tokens is not None:
                v = v * tokens[b:end, None]
            expected[b:end] = activation(act, v)
        if form == "sums":
            assert torch.equal(y, expected.int())
        elif form == "int8":
            quantised(y, expected.clamp(-128, 127))
        else:
            close(y, expected.to(out))


def test_integer_weights_alone(torch_npu):
    draw = Draw(7)
    for _ in range(CASES):
        m, experts = draw.size(1, 7), draw.size(1, 4)
        dtype = draw.one_of(HALVES)
        packed = draw.maybe(True)
        parts = draw.size(1, 3) if packed else 1
        k, n = parts * draw.size(1, 5), 8 * draw.size(1, 2) if packed else draw.size(1, 10)
        x = draw.tensor(m, k, dtype=dtype)
        w, values = int4(draw, experts, k, n) if packed else (small(draw, experts, k, n),) * 2
        shape = (experts, parts, n) if packed and draw.maybe(True) else (experts, n)
        scale = draw.tensor(*shape, dtype=dtype, scale=0.1, strided=False)
        offset = draw.maybe(draw.tensor(*shape, dtype=dtype, strided=False))
        bias = draw.maybe(draw.tensor(experts, n, dtype=torch.float32))
        listed, groups = groups_of(draw, m, experts, 1)
        (y,) = torch_npu.npu_grouped_matmul(
            [x],
            [w],
            bias=None if bias is None else [bias],
            antiquant_scale=[scale],
            antiquant_offset=None if offset is None else [offset],
            group_list=listed,
            split_item=3,
            group_type=0,
            group_list_type=1,
        )

        def wide(t, e, rows=k):
            return (
                t[e]
                .float()
                .view(-1, t.shape[-1])
                .repeat_interleave(rows // (t.shape[1] if t.dim() == 3 else 1), 0)
            )

        expected = torch.zeros(m, n)
        for e, b, end in groups:
            real = values[e].float() + (0 if offset is None else wide(offset, e))
            expected[b:end] = x[b:end].float() @ (real * wide(scale, e))
            if bias is not None:
                expected[b:end] += bias[e]
        close(y, expected.to(dtype))


def test_refuses(torch_npu):
    x, w = torch.ones(4, 8).half(), torch.ones(2, 8, 3).half()
    counts = torch.tensor([1, 3])

    def no(check, x=x, w=w, counts=counts, **given):
        given = {"split_item": 3, "group_type": 0, "group_list_type": 1} | given
        refused(torch_npu.npu_grouped_matmul, check, [x], [w], group_list=counts, **given)

    no("grouped_matmul.split", split_item=0)
    no("grouped_matmul.rows1", counts=torch.tensor([1, 4]))
    no("grouped_matmul.rows", counts=torch.tensor([1, 5]), group_list_type=0)
    no("grouped_matmul.act", act_type=5)
    no("grouped_matmul.inner", x=torch.ones(4, 65536).half(), w=torch.ones(2, 65536, 1).half())
    wide = torch.ones(1025, 1, 1).half()
    no("grouped_matmul.E", x=x[:, :1], w=wide, counts=torch.zeros(1025, dtype=torch.int64))
    no("group_list_type 2", counts=torch.tensor([[0, 4]]), group_list_type=2)
    no("out of range", counts=torch.tensor([3, 1]), group_list_type=0)
    no("group_list", counts=torch.tensor([1, 2, 1]))
    no("x [M, K] and weight", x=x[:, :7])
    no("of one dtype", w=w.float())
    no("both int8", x=x.to(torch.int8))
    no("antiquant_scale", w=w.to(torch.int8))
    no("output_dtype", output_dtype=torch.bfloat16)
    no("a bias", bias=[torch.ones(2, 2)])


def test_one_x_and_a_list_of_weights(torch_npu):
    draw = Draw(11)
    for _ in range(CASES):
        m, k, n, experts = draw.size(1, 9), draw.size(1, 12), draw.size(1, 12), draw.size(2, 5)
        dtype = draw.one_of(HALVES)
        x, w = draw.tensor(m, k, dtype=dtype), draw.tensor(experts, k, n, dtype=dtype)
        listed, groups = groups_of(draw, m, experts, 0)
        lists = draw.maybe(True)  # the overload with host lists
        y = torch_npu.npu_grouped_matmul(
            [x],
            list(w),
            group_list=listed.tolist() if lists else listed,
            split_item=3,
            group_type=0,
        )[0]
        for e, begin, end in groups:
            close(y[begin:end], (x[begin:end].float() @ w[e].float()).to(dtype))
    with pytest.raises(RuntimeError, match=r"one shape in weight, got \[3, 2\], \[3, 1\]"):
        torch_npu.npu_grouped_matmul(
            [torch.ones(2, 3)],
            [torch.ones(3, 2), torch.ones(3, 1)],
            split_item=3,
            group_type=0,
            group_list=torch.tensor([1, 2]),
        )


def swiglu(v):
    a, b = v.chunk(2, -1)
    return torch.nn.functional.silu(a) * b


def same_quantised(found, scales, expected, groups):
    """Rows of groups; the others are zeros."""
    done = groups[-1][2]
    s = expected[:done].abs().amax(-1) / 127
    close(scales[:done], s)
    quantised(found[:done], torch.where(s[:, None] > 0, expected[:done] / s[:, None], 0))
    assert not found[done:].any()


def test_swiglu_quant(torch_npu):
    draw = Draw(8)
    for _ in range(CASES + CASES // 10):
        m, k, n, experts = draw.size(1, 8), draw.size(1, 12), 2 * draw.size(1, 8), draw.size(1, 4)
        x, w = small(draw, m, k), small(draw, experts, k, n)
        dtype = draw.one_of(FLOATS)
        scale = draw.tensor(experts, n, dtype=dtype, scale=0.01)
        tokens = draw.tensor(m)
        kind = int(draw.random.random() < 0.05)  # v1 has running totals alone
        listed, groups = groups_of(draw, m, experts, kind)
        expected = torch.zeros(m, n // 2)
        for e, b, end in groups:
            v = x[b:end].float() @ w[e].float() * scale[e].float() * tokens[b:end, None]
            expected[b:end] = swiglu(v)
        y, s = torch_npu.npu_grouped_matmul_swiglu_quant_v2(
            x, [w], [scale], tokens, listed, group_list_type=kind
        )
        same_quantised(y, s, expected, groups)
        if kind == 0:
            first = torch_npu.npu_grouped_matmul_swiglu_quant(x, w, listed, scale, tokens)
            assert torch.equal(first[0], y) and torch.equal(first[1], s)
            assert first[2].shape == ()


def test_swiglu_quant_of_int4(torch_npu):
    draw = Draw(9)
    for _ in range(CASES):
        m, experts, parts = draw.size(1, 7), draw.size(1, 3), draw.size(1, 3)
        k, n = 8 * parts, 8 * draw.size(1, 2)
        w, values = int4(draw, experts, k, n)
        tokens = draw.tensor(m)
        listed, groups = groups_of(draw, m, experts, 1)
        given = {"group_list_type": 1}
        expected = torch.zeros(m, n // 2)
        if draw.maybe(True):  # int8 rows; the compensation is 8 * the sums of the weights
            x = small(draw, m, k)
            per_group = draw.maybe(True)
            shape = (experts, parts, n) if per_group else (experts, n)
            scale = draw.tensor(*shape, scale=0.01, strided=False)
            rows = scale if per_group else scale[:, None]
            real = values.float() * rows.repeat_interleave(k // rows.shape[1], 1)
            given["weight_assist_matrix"] = [8 * real.sum(1)]
            given["dequant_mode"] = 1 if per_group else 0
            weight_scale = scale.view(torch.int32).long() & 0xFFFFFFFF
            left = x.float()
            smooth = None
        else:
            x, ints = int4(draw, m, k)
            weight_scale = draw.tensor(experts, n, scale=0.05)
            real = values.float() * weight_scale[:, None]
            left = ints.float()
            smooth = draw.tensor(*draw.one_of(((experts,), (experts, n // 2))), strided=False)
            given["smooth_scale"] = smooth
        for e, b, end in groups:
            v = swiglu(left[b:end] @ real[e] * tokens[b:end, None])
            expected[b:end] = v if smooth is None else v * smooth[e]
        y, s = torch_npu.npu_grouped_matmul_swiglu_quant_v2(
            x, [w], [weight_scale], tokens, listed, **given
        )
        done = groups[-1][2]
        error = (y[:done].float() * s[:done, None] - expected[:done]).abs()
        top = expected[:done].abs().amax(-1, keepdim=True)
        assert (error <= 0.505 / 127 * top + 1e-6).all()  # half a step


def test_swiglu_quant_refuses(torch_npu):
    call = torch_npu.npu_grouped_matmul_swiglu_quant_v2
    x, w = torch.ones(2, 8).to(torch.int8), torch.ones(1, 8, 4).to(torch.int8)
    scale, tokens, ends = torch.ones(1, 4), torch.ones(2), torch.tensor([2])
    refused(
        call, "grouped_matmul_swiglu_quant_v2.dq", x, [w], [scale], tokens, ends, dequant_mode=2
    )
    packed = torch.ones(2, 1).int()
    refused(
        call,
        "grouped_matmul_swiglu_quant_v2.smooth",
        packed,
        [torch.ones(1, 8, 1).int()],
        [torch.ones(1, 8)],
        tokens,
        ends,
    )
    refused(call, "x_scale", x, [w], [scale], torch.ones(3), ends)
    refused(call, "weight_scale", x, [w], [scale[:, :3]], tokens, ends)
    refused(call, "even N", x, [w[..., :3]], [scale[:, :3]], tokens, ends)
    refused(call, "group_list", x, [w], [scale], tokens, ends.int())


def finalize_of_int4(draw, m, k, n, experts):
    """A call with packed int4 weights, and what it gives. The bias is the compensation of a split
    of the rows: 8 * the sums of the weights."""
    x, (w, values) = small(draw, m, k), int4(draw, experts, k, n)
    scale = draw.tensor(experts, n, scale=0.01, strided=False)
    real = values.float() * scale[:, None]
    batch, tokens = draw.size(1, 6), draw.tensor(m)
    rows = draw.integers(m, low=0, high=batch, dtype=draw.one_of((torch.int32, torch.int64)))
    listed, groups = groups_of(draw, m, experts, 1)
    expected = torch.zeros(batch, n)
    for e, b, end in groups:
        expected.index_add_(0, rows[b:end].long(), x[b:end].float() @ real[e] * tokens[b:end, None])
    given = {"x": x, "w": w, "group_list": listed, "bias": 8 * real.sum(1), "row_index": rows}
    given["scale"] = (scale.view(torch.int32).long() & 0xFFFFFFFF)[:, None]
    return given | {"pertoken_scale": tokens, "output_bs": batch}, expected


def test_finalize_routing_of_int4(torch_npu):
    """Any size, limits aside; and the one that they allow."""
    draw = Draw(11)
    operator = library.operators()["npu_grouped_matmul_finalize_routing"]
    for _ in range(CASES):
        given, expected = finalize_of_int4(
            draw, draw.size(1, 6), draw.size(1, 20), 8 * draw.size(1, 4), draw.size(1, 3)
        )
        tensors = [given.pop(t["name"], None) for t in operator.tensors]
        (y,) = operator.run(tensors, given | {"group_list_type": 1})
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-3)
    given, expected = finalize_of_int4(draw, 2, 2048, 7168, 1)
    y = torch_npu.npu_grouped_matmul_finalize_routing(**given)
    torch.testing.assert_close(y, expected, rtol=1e-3, atol=1e-2)


def test_finalize_routing(torch_npu):
    draw = Draw(10)
    for _ in range(CASES):
        m, k, n, experts = draw.size(1, 8), 16 * draw.size(1, 2), 256, draw.size(1, 3)
        x, w = small(draw, m, k), small(draw, experts, k, n)
        batch = draw.size(1, 6)
        scale = draw.tensor(experts, n, scale=0.01, strided=False)
        tokens, logit = draw.maybe(draw.tensor(m)), draw.maybe(draw.tensor(m))
        rows = draw.integers(m, low=0, high=batch, dtype=draw.one_of((torch.int32, torch.int64)))
        shared = draw.maybe(draw.tensor(draw.size(1, batch), n, dtype=torch.bfloat16))
        at = 0 if shared is None else draw.size(0, batch - len(shared))
        weight, kind = draw.one_of((1.0, 0.5)), draw.size(0, 1)
        listed, groups = groups_of(draw, m, experts, kind)
        y = torch_npu.npu_grouped_matmul_finalize_routing(
            x,
            w,
            listed,
            scale=scale,
            pertoken_scale=tokens,
            shared_input=shared,
            logit=logit,
            row_index=rows,
            shared_input_weight=weight,
            shared_input_offset=at,
            output_bs=batch,
            group_list_type=kind,
        )
        expected = torch.zeros(batch, n)
        if shared is not None:
            expected[at : at + len(shared)] = weight * shared.float()
        for e, b, end in groups:
            v = x[b:end].float() @ w[e].float() * scale[e]
            for t in (tokens, logit):
                v = v if t is None else v * t[b:end, None]
            expected.index_add_(0, rows[b:end].long(), v)
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-3)
    call = torch_npu.npu_grouped_matmul_finalize_routing
    of = "grouped_matmul_finalize_routing."
    given = {"scale": scale, "row_index": rows, "output_bs": batch, "group_list_type": kind}
    refused(call, of + "k", x[:, :8], w[:, :8], listed, **given)
    refused(call, of + "n", x, w[..., :128], listed, **(given | {"scale": scale[:, :128]}))
    refused(call, "row_index", x, w, listed, **(given | {"row_index": rows[:0]}))
    refused(
        call,
        "out of range",
        x,
        w,
        listed * 0 + m,
        **(given | {"row_index": rows + batch, "group_list_type": 0}),
    )

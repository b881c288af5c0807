"""Norms of torch_npu against their formulas in PyTorch."""

import pytest
import torch
from draws import CASES, FLOATS, HALVES, Draw, close, quantised, refused, unpack_int4


def rms(x, gamma, eps, beta=None):
    """(y, rstd) over gamma's axes, in f32."""
    x = x.float()
    axes = tuple(range(-gamma.dim(), 0))
    rstd = torch.rsqrt(x.pow(2).mean(axes, keepdim=True) + eps)
    y = x * rstd * gamma.float()
    return (y if beta is None else y + beta.float()), rstd


def shapes(draw, most=4):
    shape = [draw.size(1, 5) for _ in range(draw.size(1, most))]
    shape[-1] = draw.size(1, 40)
    return shape


@pytest.mark.parametrize("name", ["npu_rms_norm", "npu_gemma_rms_norm"])
def test_rms_norm(torch_npu, name):
    draw = Draw(1)
    for _ in range(CASES):
        dtype, shape = draw.one_of(FLOATS), shapes(draw)
        x = draw.tensor(*shape, dtype=dtype, scale=draw.one_of((0.1, 1, 30)))
        gamma = draw.tensor(*shape[-draw.size(1, len(shape)) :], dtype=dtype)
        eps = draw.one_of((1e-6, 1e-5, 0.1))
        y, rstd = getattr(torch_npu, name)(x, gamma, eps)
        whole = gamma.float() + 1 if name == "npu_gemma_rms_norm" else gamma
        expected = rms(x, whole, eps)
        close(y, expected[0].to(dtype))
        close(rstd, expected[1])


def test_rms_norm_of_one_row_and_of_zeros(torch_npu):
    y, rstd = torch_npu.npu_rms_norm(torch.zeros(8), torch.ones(8), epsilon=1e-6)
    assert torch.equal(y, torch.zeros(8)) and rstd.shape == (1,)
    assert abs(rstd.item() - 1000) < 1


def test_rms_norm_refuses(torch_npu):
    x = torch.ones(2, 8)
    refused(torch_npu.npu_rms_norm, "rms_norm.dtype", x, torch.ones(8).half())
    refused(torch_npu.npu_rms_norm, "rms_norm.dtype", x.double(), torch.ones(8).double())
    refused(torch_npu.npu_rms_norm, "gamma", x, torch.ones(7))
    refused(torch_npu.npu_gemma_rms_norm, "gemma_rms_norm.empty", x[:0], torch.ones(8))


def test_add_rms_norm(torch_npu):
    draw = Draw(2)
    for _ in range(CASES):
        dtype, shape = draw.one_of(FLOATS), shapes(draw)
        a, b = draw.tensor(*shape, dtype=dtype), draw.tensor(*shape, dtype=dtype)
        gamma = draw.tensor(*shape[-draw.size(1, len(shape)) :], dtype=dtype)
        y, rstd, x = torch_npu.npu_add_rms_norm(a, b, gamma, epsilon=1e-5)
        total = (a.float() + b.float()).to(dtype)
        expected = rms(total, gamma, 1e-5)
        assert torch.equal(x, total)
        close(y, expected[0].to(dtype))
        close(rstd, expected[1])


def test_add_rms_norm_refuses(torch_npu):
    x = torch.ones(2, 3, 8)
    call = torch_npu.npu_add_rms_norm
    refused(call, "add_rms_norm.dtype", x, x, torch.ones(8).half())
    refused(call, "add_rms_norm.gamma", x, x, torch.ones(3))
    refused(call, "add_rms_norm.float", x.double(), x.double(), torch.ones(8).double())


@pytest.mark.filterwarnings("ignore:npu_add_rms_norm_v2")
def test_add_rms_norm_v2_is_in_place(torch_npu):
    draw = Draw(3)
    for _ in range(CASES):
        dtype, shape = draw.one_of(FLOATS), shapes(draw)
        a, b = draw.tensor(*shape, dtype=dtype), draw.tensor(*shape, dtype=dtype)
        gamma = draw.tensor(*shape[-draw.size(1, len(shape)) :], dtype=dtype)
        total = (a.float() + b.float()).to(dtype)
        expected = rms(total, gamma, 1e-6)
        rstd = torch_npu.npu_add_rms_norm_v2(a, b, gamma)
        assert torch.equal(b, total)
        close(a, expected[0].to(dtype))
        close(rstd, expected[1])


def test_add_rms_norm_cast(torch_npu):
    draw = Draw(4)
    for _ in range(CASES):
        dtype, shape = draw.one_of(HALVES), shapes(draw)
        a, b = draw.tensor(*shape, dtype=dtype), draw.tensor(*shape, dtype=dtype)
        gamma = draw.tensor(shape[-1], dtype=dtype)
        y1, y2, rstd, x = torch_npu.npu_add_rms_norm_cast(a, b, gamma)
        total = (a.float() + b.float()).to(dtype)
        expected = rms(total, gamma, 1e-6)
        assert torch.equal(x, total) and torch.equal(y1.to(dtype), y2)
        close(y1, expected[0])
        close(rstd, expected[1])
    x = torch.ones(2, 8)
    refused(torch_npu.npu_add_rms_norm_cast, "add_rms_norm_cast.dtype", x, x, torch.ones(8))


def dynamic(v, top):
    scale = v.abs().amax(-1) / top
    return torch.where(scale[..., None] > 0, v / scale[..., None], v), scale


def test_add_rms_norm_dynamic_quant(torch_npu):
    draw = Draw(5)
    for _ in range(CASES):
        dtype, shape = draw.one_of(HALVES), shapes(draw)
        shape = shape if len(shape) > 1 else [2, *shape]
        int4 = draw.maybe(True, 0.2)
        if int4:
            shape[-1] = 8 * draw.size(1, 4)
        a, b = draw.tensor(*shape, dtype=dtype), draw.tensor(*shape, dtype=dtype)
        gamma = draw.tensor(shape[-1], dtype=dtype)
        mask = draw.one_of((None, [True, True], [True, False], [False, True]))
        first = draw.maybe(draw.tensor(shape[-1], dtype=dtype)) if not mask or mask[0] else None
        second = None
        if first is not None or (mask and mask[1]):
            second = (
                draw.maybe(draw.tensor(shape[-1], dtype=dtype)) if not mask or mask[1] else None
            )
        beta = draw.maybe(draw.tensor(shape[-1], dtype=dtype))
        y1, y2, x, s1, s2 = torch_npu.npu_add_rms_norm_dynamic_quant(
            a,
            b,
            gamma,
            smooth_scale1=first,
            smooth_scale2=second,
            beta=beta,
            output_mask=mask,
            y_dtype=torch.quint4x2 if int4 else None,
        )
        total = (a.float() + b.float()).to(dtype)
        assert torch.equal(x, total)
        y = rms(total, gamma, 1e-6, beta)[0]
        there = mask or [True, first is not None and second is not None]
        for is_there, found, scale, smooth in (
            (there[0], y1, s1, first),
            (there[1], y2, s2, second),
        ):
            if not is_there:
                assert found.shape == () and scale.shape == ()
                continue
            v, expected = dynamic(y if smooth is None else y * smooth.float(), 7 if int4 else 127)
            close(scale, expected)
            quantised(unpack_int4(found, 8) if int4 else found, v)


def test_add_rms_norm_dynamic_quant_refuses(torch_npu):
    x, g = torch.ones(2, 8).half(), torch.ones(8).half()
    call = torch_npu.npu_add_rms_norm_dynamic_quant
    of = "add_rms_norm_dynamic_quant."
    refused(call, of + "mask", x, x, g, output_mask=[False, False])
    refused(call, of + "smooth2", x, x, g, smooth_scale2=g)
    refused(call, of + "smooth1_mask", x, x, g, smooth_scale1=g, output_mask=[False, True])
    refused(call, of + "smooth2_mask", x, x, g, smooth_scale2=g, output_mask=[True, False])
    refused(call, of + "dtype", x.float(), x.float(), g.float())


def test_add_rms_norm_quant(torch_npu):
    draw = Draw(6)
    for _ in range(CASES):
        dtype, shape = draw.one_of(HALVES), shapes(draw)
        a, b = draw.tensor(*shape, dtype=dtype), draw.tensor(*shape, dtype=dtype)
        inner = shape[-draw.size(1, len(shape)) :]
        gamma = draw.tensor(*inner, dtype=dtype)
        scale_type = torch.bfloat16 if dtype == torch.bfloat16 else torch.float32
        zero_type = torch.bfloat16 if dtype == torch.bfloat16 else torch.int32
        divide = draw.one_of((True, False))

        def scales(inner=inner, scale_type=scale_type):
            return draw.tensor(*inner, dtype=scale_type, low=0.02, high=2)

        def zeros(inner=inner, zero_type=zero_type):
            return draw.maybe(draw.integers(*inner, low=-9, high=9, dtype=zero_type))

        s1, z1, s2 = scales(), zeros(), draw.maybe(scales())
        z2 = zeros() if s2 is not None else None
        beta = draw.maybe(draw.tensor(*inner, dtype=dtype))
        y1, y2, x = torch_npu.npu_add_rms_norm_quant(
            a, b, gamma, s1, z1, beta, s2, z2, div_mode=divide
        )
        total = (a.float() + b.float()).to(dtype)
        assert torch.equal(x, total) and y2.shape == x.shape
        y = rms(total, gamma, 1e-6, beta)[0]
        for found, s, z in ((y1, s1, z1), (y2, s2, z2)):
            if s is None:
                continue
            v = (y / s.float() if divide else y * s.float()) + (0 if z is None else z.float())
            quantised(found, v.clamp(-128, 127))


def test_add_rms_norm_quant_refuses(torch_npu):
    x, g, s = torch.ones(2, 8).half(), torch.ones(8).half(), torch.ones(8)
    call = torch_npu.npu_add_rms_norm_quant
    refused(call, "add_rms_norm_quant.axis", x, x, g, s, None, axis=0)
    refused(call, "add_rms_norm_quant.scale0", x, x, g, torch.arange(8.0), None)
    refused(call, "add_rms_norm_quant.scales", x, x, g, s.half(), None)
    refused(call, "add_rms_norm_quant.zeros", x, x, g, s, s)
    refused(call, "add_rms_norm_quant.dtype", x.float(), x.float(), s, s, None)


def test_rms_norm_quant(torch_npu):
    draw = Draw(7)
    for _ in range(CASES):
        dtype, shape = draw.one_of(HALVES), shapes(draw)
        int4 = draw.maybe(True, 0.3)
        shape[-1] = 8 * draw.size(2, 6) if int4 else draw.size(16, 48)
        x = draw.tensor(*shape, dtype=dtype)
        gamma, beta = (draw.tensor(shape[-1], dtype=dtype) for _ in range(2))
        if draw.maybe(True):
            gamma, beta = gamma[None], beta[None]
        scale = draw.tensor(1, dtype=dtype, low=1, high=60)
        offset = draw.integers(1, low=-20, high=20, dtype=torch.int8)
        found = torch_npu.npu_rms_norm_quant(
            x, gamma, beta, scale, offset, 1e-5, dst_dtype=torch.quint4x2 if int4 else None
        )
        y = rms(x, gamma.reshape(-1), 1e-5, beta.reshape(-1))[0]
        v = y * scale.float() + offset.float()
        bounds = (-8, 7) if int4 else (-128, 127)
        quantised(unpack_int4(found, 8) if int4 else found, v.clamp(*bounds))


def test_rms_norm_quant_refuses(torch_npu):
    def call(width=16, dtype=torch.half, offset=torch.int8, dst=None):
        x, g = torch.ones(2, width, dtype=dtype), torch.ones(width, dtype=dtype)
        one = torch.ones(1)
        return torch_npu.npu_rms_norm_quant(x, g, g, one.to(dtype), one.to(offset), dst_dtype=dst)

    refused(call, "rms_norm_quant.row", 8)
    refused(call, "rms_norm_quant.dtype", dtype=torch.float32)
    refused(call, "rms_norm_quant.dtype", offset=torch.int32)
    refused(call, "rms_norm_quant.int4", 20, dst=torch.quint4x2)


def test_group_norm_silu(torch_npu):
    draw = Draw(8)
    for _ in range(CASES):
        dtype, group = draw.one_of(FLOATS), draw.size(1, 4)
        shape = [draw.size(1, 3), group * draw.size(1, 4)]
        shape += [draw.size(1, 4) for _ in range(draw.size(0, 3))]
        x = draw.tensor(*shape, dtype=dtype)
        parameter = draw.one_of((dtype, torch.float32))
        w = draw.maybe(draw.tensor(shape[1], dtype=parameter))
        b = draw.maybe(draw.tensor(shape[1], dtype=parameter))
        out, mean, rstd = torch_npu.npu_group_norm_silu(x, w, b, group, 1e-4)
        grouped = x.float().reshape(shape[0], group, -1)
        close(mean, grouped.mean(-1).to(dtype))
        close(rstd, torch.rsqrt(grouped.var(-1, unbiased=False) + 1e-4).to(dtype))
        normed = (
            torch.nn.functional.group_norm(
                x.float(), group, w if w is None else w.float(), b if b is None else b.float(), 1e-4
            )
            if grouped.shape[-1] > 1 or shape[0] > 1
            else None
        )
        if normed is None:
            continue
        close(out, torch.nn.functional.silu(normed).to(dtype))


def test_group_norm_silu_refuses(torch_npu):
    x = torch.ones(2, 6, 3)
    call = torch_npu.npu_group_norm_silu
    refused(call, "group_norm_silu.group", x, None, None, 4)
    refused(call, "group_norm_silu.eps", x, None, None, 3, 0.0)
    refused(call, "group_norm_silu.parameters", x, torch.ones(6).half(), None, 3)
    refused(call, "group_norm_silu.dtype", x.double(), None, None, 3)


@pytest.mark.filterwarnings("ignore:npu_layer_norm_eval")
def test_layer_norm_eval(torch_npu):
    draw = Draw(9)
    for _ in range(CASES):
        dtype, shape = draw.one_of(FLOATS), shapes(draw)
        inner = shape[-draw.size(1, len(shape)) :]
        x = draw.tensor(*shape, dtype=dtype)
        w = draw.maybe(draw.tensor(*inner, dtype=dtype))
        b = draw.maybe(draw.tensor(*inner, dtype=dtype))
        found = torch_npu.npu_layer_norm_eval(x, inner, w, b, 1e-5)
        expected = torch.nn.functional.layer_norm(
            x.float(), inner, w if w is None else w.float(), b if b is None else b.float(), 1e-5
        )
        close(found, expected.to(dtype))

"""Quantisation of torch_npu against its formulas in PyTorch."""

import pytest
import torch
from draws import CASES, FLOATS, HALVES, Draw, close, quantised, refused, rows_by_group, unpack_int4


def smoothed_call(draw):
    """(input, options, values in f32 [rows, H], int4)"""
    dtype, int4 = draw.one_of(HALVES), draw.maybe(True, 0.3)
    shape = [draw.size(1, 4) for _ in range(draw.size(1, 3))]
    shape.append(8 * draw.size(1, 5) if int4 else draw.size(1, 40))
    x = draw.tensor(*shape, dtype=dtype, scale=draw.one_of((0.1, 1, 20)))
    v = x.float().reshape(-1, shape[-1])
    options = {}
    if int4:
        options["dst_type"] = torch.quint4x2
    elif draw.maybe(True, 0.3):
        options["dst_type"] = torch.int8
    rows = v.shape[0]
    kind = draw.one_of(("none", "plain", "groups"))
    if kind == "plain":
        options["smooth_scales"] = draw.tensor(shape[-1], dtype=dtype)
        v = v * options["smooth_scales"].float()
    elif kind == "groups":
        ends = draw.ends(rows, draw.size(1, rows), increasing=True)
        smooth = draw.tensor(len(ends), shape[-1], dtype=dtype)
        options |= {"smooth_scales": smooth, "group_index": ends}
        v = v * torch.stack(rows_by_group(smooth.float(), ends, rows))
    return x, options, v, int4


def test_dynamic_quant(torch_npu):
    draw = Draw(31)
    for _ in range(CASES):
        x, options, v, int4 = smoothed_call(draw)
        y, scale = torch_npu.npu_dynamic_quant(x, **options)
        expected = v.abs().amax(-1) / (7 if int4 else 127)
        close(scale, expected.reshape(x.shape[:-1]))
        v = torch.where(expected[:, None] > 0, v / expected[:, None], v)
        y = unpack_int4(y, 8) if int4 else y
        assert y.dtype == torch.int8 or int4
        quantised(y.reshape(v.shape), v)


def test_dynamic_quant_of_zeros_and_ties(torch_npu):
    y, scale = torch_npu.npu_dynamic_quant(torch.zeros(2, 8).half())
    assert not y.any() and not scale.any()
    x = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]]).half()
    y, scale = torch_npu.npu_dynamic_quant(x)
    assert scale.item() == 1
    assert y.tolist() == [[127, 0, 2, 2, 0, -2]]  # half to even


def test_dynamic_quant_refuses(torch_npu):
    call, x = torch_npu.npu_dynamic_quant, torch.ones(4, 12).half()
    refused(call, "dynamic_quant.int4", x, dst_type=torch.quint4x2)
    ends = torch.tensor([2, 3], dtype=torch.int32)
    smooth = torch.ones(2, 12).half()
    refused(call, "dynamic_quant.group", x, smooth_scales=smooth, group_index=ends)
    down = torch.tensor([5, 4], dtype=torch.int32)
    refused(call, "dynamic_quant.group", x, smooth_scales=smooth, group_index=down)
    refused(call, "dynamic_quant.dtype", x.float())
    refused(call, "dynamic_quant.index", x, smooth_scales=smooth, group_index=ends.long())
    refused(call, "dynamic_quant.dst", x, dst_type=torch.uint8)
    refused(call, "dynamic_quant.rank", x[0])


def test_dynamic_quant_asymmetric(torch_npu):
    draw = Draw(32)
    for _ in range(CASES):
        x, options, v, int4 = smoothed_call(draw)
        y, scale, offset = torch_npu.npu_dynamic_quant_asymmetric(x, **options)
        top, span = (7, 15) if int4 else (127, 255)
        high, low = v.amax(-1), v.amin(-1)
        expected = (high - low) / span
        close(scale, expected.reshape(x.shape[:-1]))
        there = expected > 0
        off = torch.where(there, top - high / expected, 0)
        torch.testing.assert_close(offset.reshape(-1), off, rtol=1e-4, atol=1e-3)
        v = torch.where(there[:, None], v / expected[:, None] + off[:, None], 0)
        y = unpack_int4(y, 8) if int4 else y
        quantised(y.reshape(v.shape), v.clamp(top - span, top))


def test_dynamic_quant_asymmetric_refuses(torch_npu):
    call, of = torch_npu.npu_dynamic_quant_asymmetric, "dynamic_quant_asymmetric."
    x, smooth = torch.ones(4, 12).half(), torch.ones(2, 12).half()
    refused(call, of + "int4", x, dst_type=torch.quint4x2)
    ends = torch.tensor([0, 4], dtype=torch.int32)
    refused(call, of + "group", x, smooth_scales=smooth, group_index=ends)
    refused(call, of + "dtype", x, smooth_scales=torch.ones(12))
    refused(call, of + "rank", x[0])


def test_dynamic_block_quant(torch_npu):
    draw = Draw(33)
    for _ in range(CASES):
        dtype = draw.one_of(HALVES)
        lead = [draw.size(1, 3) for _ in range(draw.size(1, 2))]
        x = draw.tensor(*lead, draw.size(1, 300), dtype=dtype)
        least = draw.one_of((0.0, 0.01, 1.0))
        y, scale = torch_npu.npu_dynamic_block_quant(x, min_scale=least)
        for i, part in enumerate(x.float().split(128, -1)):
            expected = (part.abs().amax(-1) / 127).clamp(min=least)
            close(scale[..., i], expected)
            v = torch.where(expected[..., None] > 0, part / expected[..., None], part)
            quantised(y[..., 128 * i : 128 * (i + 1)], v)
    refused(torch_npu.npu_dynamic_block_quant, "dynamic_block_quant.dst", x, dst_type=3)
    refused(torch_npu.npu_dynamic_block_quant, "dynamic_block_quant.blk", x, col_block_size=64)
    refused(torch_npu.npu_dynamic_block_quant, "dynamic_block_quant.rank", x.flatten())
    refused(torch_npu.npu_dynamic_block_quant, "dynamic_block_quant.dtype", x.float())


DIVIDED = {torch.qint8: (-128, 127), torch.quint8: (0, 255), torch.qint32: (-(2**31), 2**31 - 1)}
DIVIDED[torch.int32] = DIVIDED[torch.qint32]


def test_quantize(torch_npu):
    draw = Draw(34)
    for _ in range(CASES):
        dtype, divide = draw.one_of(FLOATS), draw.one_of((True, False))
        shape = [draw.size(1, 5) for _ in range(draw.size(2, 4))]
        if divide:
            target = draw.one_of(DIVIDED)
            bounds, int4 = DIVIDED[target], False
            axis = draw.size(0, len(shape) - 1)
            scale_type = draw.one_of((torch.float32, torch.bfloat16))
            zero_types = (torch.int8, torch.uint8, torch.int32, torch.bfloat16)
        else:
            target = draw.one_of((torch.qint8, torch.quint4x2))
            int4 = target == torch.quint4x2
            bounds = (-8, 7) if int4 else (-128, 127)
            axis = draw.one_of((-2, -1))
            scale_type, zero_types = dtype, (dtype,)
            if int4:
                shape[-1] = 8 * draw.size(1, 3)
        x = draw.tensor(*shape, dtype=dtype, scale=10)
        n = draw.one_of((1, shape[axis]))
        scales = draw.tensor(n, dtype=scale_type, low=0.1, high=3)
        zeros = draw.maybe(draw.integers(n, low=-9, high=9, dtype=draw.one_of(zero_types)))
        y = torch_npu.npu_quantize(x, scales, zeros, target, axis, divide)
        along = [1] * len(shape)
        along[axis] = n
        s = scales.float().reshape(along)
        v = x.float() / s if divide else x.float() * s
        v = v + (0 if zeros is None else zeros.float().reshape(along))
        quantised(unpack_int4(y, 8) if int4 else y, v.clamp(*bounds))


def test_quantize_refuses(torch_npu):
    call, x, s = torch_npu.npu_quantize, torch.ones(2, 12), torch.ones(12)
    refused(call, "quantize.dst", x, s, None, torch.quint4x2)
    refused(call, "quantize.dst", x, s, None, torch.quint8, -1, False)
    refused(call, "quantize.int4", x, s, None, torch.quint4x2, -1, False)
    refused(call, "quantize.scales", x, s.half(), None, torch.qint8)
    refused(call, "quantize.zeros", x, s, s, torch.qint8)
    refused(call, "quantize.dtype", x.double(), s, None, torch.qint8)


@pytest.mark.filterwarnings("ignore:npu_group_quant")
def test_group_quant(torch_npu):
    draw = Draw(35)
    for _ in range(CASES):
        dtype, int4 = draw.one_of(FLOATS), draw.maybe(True, 0.3)
        rows, h = draw.size(1, 8), 8 * draw.size(1, 4)
        ends = draw.ends(rows, draw.size(1, 4), dtype=draw.one_of((torch.int32, torch.int64)))
        x = draw.tensor(rows, h, dtype=dtype)
        scale = draw.tensor(len(ends), h, dtype=draw.one_of(FLOATS), low=1, high=60)
        offset = draw.maybe(draw.tensor(1, dtype=scale.dtype, scale=5))
        y = torch_npu.npu_group_quant(
            x, scale, ends, offset=offset, dst_dtype=torch.quint4x2 if int4 else None
        )
        v = x.float() * torch.stack(rows_by_group(scale.float(), ends, rows))
        v = v + (0 if offset is None else offset.float())
        quantised(unpack_int4(y, 8) if int4 else y, v.clamp(*((-8, 7) if int4 else (-128, 127))))
    with pytest.raises(RuntimeError, match="group 0 is rows 0 to 9 of"):
        torch_npu.npu_group_quant(x[:2], scale[:1], torch.tensor([9]))


def packed_scale(scale, offset, nearest):
    bits = scale.view(torch.int32).long() & 0xFFFFFFFF
    if nearest:
        bits = bits + 0xFFF + ((bits >> 13) & 1)
    word = (bits & 0xFFFFE000) | (1 << 46)
    if offset is not None:
        word = word | ((offset.round().clamp(-256, 255).long() & 0x1FF) << 37)
    return word


def test_trans_quant_param(torch_npu):
    draw = Draw(36)
    for _ in range(CASES):
        n = draw.size(1, 9)
        shape = draw.one_of(((n,), (1, n)))
        scale = draw.tensor(*shape, scale=0.1, strided=False)
        offset = draw.maybe(draw.tensor(*shape, scale=200, strided=False))
        mode = draw.one_of((0, 1))
        found = torch_npu.npu_trans_quant_param(scale, offset, mode)
        assert found.dtype == torch.int64
        assert torch.equal(found, packed_scale(scale, offset, mode == 1))
    one = torch.ones(1)
    assert torch_npu.npu_trans_quant_param(one, torch.arange(3.0)).shape == (3,)
    refused(torch_npu.npu_trans_quant_param, "trans_quant_param.shape", torch.ones(1, 2, 3))
    refused(torch_npu.npu_trans_quant_param, "trans_quant_param.dtype", one.half())
    wide = torch.ones(2, 3)
    refused(torch_npu.npu_trans_quant_param, "trans_quant_param.offset", wide, wide)


def test_int4_there_and_back(torch_npu):
    draw = Draw(37)
    for _ in range(CASES):
        rows, n = draw.size(1, 6), 8 * draw.size(1, 5)
        weight = draw.integers(rows, n, low=-8, high=8)
        packed = torch_npu.npu_convert_weight_to_int4pack(weight)
        assert torch.equal(unpack_int4(packed, 8), weight.long())
        scale = draw.tensor(draw.one_of((1, n)), dtype=draw.one_of((torch.float32, torch.bfloat16)))
        offset = draw.maybe(draw.tensor(*scale.shape, dtype=scale.dtype))
        dst = draw.one_of((None, torch.float16, torch.bfloat16))
        found = torch_npu.npu_anti_quant(packed, scale, offset=offset, dst_dtype=dst)
        v = weight.float() + (0 if offset is None else offset.float())
        close(found, (v * scale.float()).to(dst or torch.float16))


def test_anti_quant_of_int8(torch_npu):
    draw = Draw(38)
    for _ in range(CASES):
        x = draw.integers(draw.size(1, 4), draw.size(1, 9), low=-128, high=128, dtype=torch.int8)
        scale = draw.tensor(x.shape[1], low=0.01, high=0.1)
        found = torch_npu.npu_anti_quant(x, scale, src_dtype=torch.int8)
        close(found, (x.float() * scale).half())


def test_int4_refuses(torch_npu):
    pack, anti = torch_npu.npu_convert_weight_to_int4pack, torch_npu.npu_anti_quant
    w = torch.ones(2, 8, dtype=torch.int32)
    refused(pack, "convert_weight_to_int4pack.align", w[:, :7].contiguous())
    refused(pack, "convert_weight_to_int4pack.range", 8 * w)
    refused(pack, "convert_weight_to_int4pack.dtype", w.long())
    refused(anti, "anti_quant.dtype", w.long(), torch.ones(8))
    refused(anti, "anti_quant.scale", w, torch.ones(8))
    refused(anti, "anti_quant.scale_dtype", w, torch.ones(64).half())
    refused(anti, "anti_quant.src", w, torch.ones(64), src_dtype=torch.int8)


def test_mx_formats_are_of_newer_devices(torch_npu):
    with pytest.raises(RuntimeError, match="not supported on a2"):
        torch_npu.npu_dynamic_mx_quant(torch.ones(2, 64).half())

"""npu_fused_infer_attention_score and _v2 against attention written in PyTorch."""

import itertools
import random

import pytest

torch = pytest.importorskip("torch")

from attention_cases import (  # noqa: E402
    attend,
    close,
    draw,
    page,
    put,
    shape_cache,
    take,
    totals,
    triangle,
    window,
)

PADDED = [
    ("BSH", "BSH", "BSH"),
    ("BSND", "BSND", "BSND"),
    ("BNSD", "BNSD", "BNSD"),
    ("BNSD_BSND", "BNSD", "BSND"),
    ("BSH_NBSD", "BSH", "NBSD"),
    ("BSND_NBSD", "BSND", "NBSD"),
    ("BNSD_NBSD", "BNSD", "NBSD"),
]
PACKED = [("TND", "TND", "TND"), ("TND_NTD", "TND", "NTD"), ("NTD_TND", "NTD", "TND")]

V1 = dict(
    heads="num_heads",
    scale="scale",
    q="actual_seq_lengths",
    kv="actual_seq_lengths_kv",
    lse="softmax_lse_flag",
    key="key_antiquant_{}",
    value="value_antiquant_{}",
    mode="{}_antiquant_mode",
)
V2 = dict(
    heads="num_query_heads",
    scale="softmax_scale",
    q="actual_seq_qlen",
    kv="actual_seq_kvlen",
    lse="return_softmax_lse",
    key="dequant_{}_key",
    value="dequant_{}_value",
    mode="{}_quant_mode",
)


def call(torch_npu, version, q, k, v, common, **others):
    name = "npu_fused_infer_attention_score" + ("_v2" if version is V2 else "")
    names = {version[key]: value for key, value in common.items()}
    return getattr(torch_npu, name)(q, k, v, **names, **others)


def masks(rng, mode, q_lens, kv_lens, size, width):
    """Arguments of the mask, and which keys each request's queries see."""
    if mode == 0 and rng.random() < 0.4:
        return {}, [window(n, m, 0) for n, m in zip(q_lens, kv_lens, strict=True)]
    args = {"sparse_mode": mode}
    pre = after = None
    if mode in (0, 4):
        pre, after = rng.randrange(6), rng.randrange(4)
        args.update(pre_tokens=pre, next_tokens=after)
    seen = [window(n, m, mode, pre, after) for n, m in zip(q_lens, kv_lens, strict=True)]
    if mode >= 2:
        mask = triangle(rng.choice([torch.bool, torch.int8, torch.uint8]))
        args["atten_mask"] = rng.choice([mask, mask[None], mask[None, None]])
        return args, seen
    batch = rng.choice([1, len(q_lens)])
    mask = draw(rng, batch, 1, size, width) > 0.3
    form = mask
    if batch == 1:
        form = rng.choice([mask, mask[0]])
    args["atten_mask"] = form.to(rng.choice([torch.bool, torch.int8, torch.uint8]))
    for b, (n, m) in enumerate(zip(q_lens, kv_lens, strict=True)):
        seen[b] = seen[b] & ~mask[b % batch, 0, :n, :m]
    return args, seen


def run_case(torch_npu, rng, version):
    packed = rng.random() < 0.3
    layout, into, out_of = rng.choice(PACKED if packed else PADDED)
    kv_heads, group = rng.choice([1, 2, 3]), rng.choice([1, 2, 4])
    heads = kv_heads * group
    batch = rng.randint(1, 3)
    dtype = torch.bfloat16 if packed else rng.choice([torch.bfloat16, torch.float16])
    dim = rng.choice([128, 64] if group == 1 else [128]) if packed else rng.choice([16, 32])
    v_dim = dim if packed else rng.choice([16, dim])
    decode = rng.random() < 0.4
    size = 1 if decode else rng.randint(2, 7)
    q_lens = [1] * batch if decode else [rng.randint(0, size) for _ in range(batch)]
    if packed and not decode:
        q_lens[0] = size
    paged = rng.random() < 0.5
    block = rng.choice([16, 32]) if decode else 128
    deep = rng.random() < (0.3 if decode else 0.1)
    kv_lens = [rng.choice([0, 1, block, rng.randint(1, 20)]) for _ in range(batch)]
    if deep:
        kv_lens[-1] = block + rng.randint(1, 9)
    width = max([*kv_lens, 1])
    q = [draw(rng, n, heads, dim, dtype=dtype) for n in q_lens]
    k = [draw(rng, m, kv_heads, dim, dtype=dtype) for m in kv_lens]
    v = [draw(rng, m, kv_heads, v_dim, dtype=dtype) for m in kv_lens]
    mode = rng.choice([0, 3, 4] if packed else [0, 1, 2, 3, 4])
    common = dict(heads=heads, scale=dim**-0.5, lse=rng.random() < 0.3)
    others = dict(num_key_value_heads=rng.choice([kv_heads, 0]) if group == 1 else kv_heads)
    if paged:
        form = (
            "BSH" if packed or (into[0] == "B" and into[1] == "S") else rng.choice(["BSH", "BNSD"])
        )
        keys, table = page(rng, k, block)
        values = torch.zeros(len(keys), block, kv_heads, v_dim, dtype=dtype)
        for b, c in itertools.product(range(batch), range(table.shape[1])):
            if table[b, c] >= 0:
                part = v[b][c * block : (c + 1) * block]
                values[table[b, c], : len(part)] = part
        others.update(block_table=table, block_size=block)
        tensors = shape_cache(keys, form), shape_cache(values, form)
        common["kv"] = kv_lens
        width = table.shape[1] * block
    else:
        tensors = put(k, into, width), put(v, into, width)
        common["kv"] = totals(kv_lens) if packed else kv_lens
    common["q"] = totals(q_lens) if packed else q_lens
    if packed and mode == 0:
        args, seen = {}, [window(n, m, 0) for n, m in zip(q_lens, kv_lens, strict=True)]
    else:
        args, seen = masks(rng, mode, q_lens, kv_lens, size, width)
    sinks = None
    if version is V2 and layout in ("TND", "NTD_TND") and rng.random() < 0.5:
        sinks = others["learnable_sink"] = draw(rng, heads)
    bias = None
    if not packed and rng.random() < 0.2:
        bias = others["pse_shift"] = draw(rng, rng.choice([1, batch]), heads, size, width)
    out, lse = call(
        torch_npu,
        version,
        put(q, into, size),
        *tensors,
        common,
        input_layout=layout,
        **args,
        **others,
    )
    assert out.dtype == dtype
    results = take(out, out_of, q_lens, heads)
    if common["lse"]:
        lses = (
            take(lse, "TND" if packed else "BNSD", q_lens, heads)
            if packed
            else [lse[b, :, :n].transpose(0, 1) for b, n in enumerate(q_lens)]
        )
    else:
        assert lse.shape == (0,)
    for b, (n, m) in enumerate(zip(q_lens, kv_lens, strict=True)):
        part = None if bias is None else bias[b % len(bias), :, :n, :m]
        want, want_lse = attend(q[b], k[b], v[b], seen[b], common["scale"], sinks, part)
        close(results[b], want)
        if common["lse"]:
            close(lses[b][..., 0], want_lse)


@pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])
def test_random_calls(torch_npu, version):
    rng = random.Random(20)
    for number in range(500):
        try:
            run_case(torch_npu, rng, version)
        except Exception as error:
            raise AssertionError(f"case {number}") from error


@pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])
def test_quantised_keys_and_values(torch_npu, version):
    rng = random.Random(21)
    for _ in range(500):
        mode = rng.randrange(6)
        batch, kv_heads, dim, block = rng.randint(1, 3), rng.choice([1, 2]), 32, 32
        heads = kv_heads * rng.choice([1, 2])
        lens = [rng.randint(1, 40) for _ in range(batch)]
        paged = mode >= 4 or rng.random() < 0.5
        q = [draw(rng, 1, heads, dim) for _ in lens]
        k, v = ([draw(rng, n, kv_heads, dim, dtype=torch.int8) for n in lens] for _ in "kv")
        width = max(lens)
        # A factor of each element of each request, and the tensor that says so.
        others, factors, table = {}, {}, None
        pages, table = page(rng, k, block)
        blocks = len(pages)
        for which in ("key", "value"):
            for what in ("scale", "offset"):
                if what == "offset" and mode % 2:
                    continue
                positive = lambda *s: draw(rng, *s).float().abs() / 50 + 0.01  # noqa: E731
                if mode == 0 and rng.random() < 0.3 and what == "offset":
                    f = positive(1)
                    full = [f.expand(n, kv_heads, dim) for n in lens]
                elif mode == 0:
                    f = positive(kv_heads, dim).bfloat16()
                    full = [f.float().expand(n, -1, -1) for n in lens]
                    f = rng.choice([f, f[None], f[:, None], f.flatten()])
                elif mode == 1:
                    f = positive(batch, width)
                    full = [
                        f[b, :n, None, None].expand(-1, kv_heads, dim) for b, n in enumerate(lens)
                    ]
                elif mode == 2:
                    f = positive(kv_heads)
                    full = [f[:, None].expand(n, -1, dim) for n in lens]
                elif mode == 3:
                    f = positive(batch, kv_heads, width)
                    full = [
                        f[b, :, :n].T[..., None].expand(-1, -1, dim) for b, n in enumerate(lens)
                    ]
                else:
                    f = positive(blocks, kv_heads, block)
                    if mode == 4:
                        f = f[:, :1].expand(-1, kv_heads, -1).contiguous()
                    full = []
                    for b, n in enumerate(lens):
                        rows = f[table[b].clamp(min=0).long()].transpose(1, 2).flatten(0, 1)[:n]
                        full.append(rows[..., None].expand(-1, -1, dim))
                    if mode == 4:
                        f = f[:, 0].contiguous()
                factors[which, what] = full
                others[version[which].format(what)] = f
            others[version["mode"].format(which)] = mode
        if paged:
            values = torch.zeros(blocks, block, kv_heads, dim, dtype=torch.int8)
            for b, n in enumerate(lens):
                for j in range(n):
                    values[table[b, j // block], j % block] = v[b][j]
            form = "BSH"
            tensors = shape_cache(pages, form), shape_cache(values, form)
            others.update(block_table=table, block_size=block)
        else:
            tensors = put(k, "BSND", width), put(v, "BSND", width)
        common = dict(heads=heads, scale=dim**-0.5, kv=lens)
        out, _ = call(
            torch_npu,
            version,
            put(q, "BSND", 1),
            *tensors,
            common,
            num_key_value_heads=kv_heads,
            input_layout="BSND",
            **others,
        )
        for b, n in enumerate(lens):
            key, value = k[b].float(), v[b].float()
            if ("key", "offset") in factors:
                key, value = (
                    key + factors["key", "offset"][b],
                    value + factors["value", "offset"][b],
                )
            key, value = key * factors["key", "scale"][b], value * factors["value", "scale"][b]
            close(out[b], attend(q[b], key, value, window(1, n, 0), common["scale"])[0])


@pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])
def test_latent_attention(torch_npu, version):
    """The absorbed form over a paged cache, ND and NZ, and the expanded form of prefill."""
    rng = random.Random(22)
    for number in range(60):
        absorbed = number % 3 < 2
        dim, kv_heads = (512, 1) if absorbed else (128, 2)
        heads = 2
        batch = rng.randint(1, 3)
        n = rng.choice([1, 1, 3])
        q_lens = [n] * batch
        kv_lens = [rng.choice([n, 16, rng.randint(n, 40)]) for _ in q_lens]
        q = [draw(rng, n, heads, dim) for _ in q_lens]
        q_rope = [draw(rng, n, heads, 64) for _ in q_lens]
        k = [draw(rng, m, kv_heads, dim) for m in kv_lens]
        v = k if absorbed else [draw(rng, m, kv_heads, dim) for m in kv_lens]
        k_rope = [draw(rng, m, kv_heads, 64) for m in kv_lens]
        others = dict(num_key_value_heads=kv_heads)
        causal = n > 1 or not absorbed
        if causal:
            others.update(sparse_mode=3, atten_mask=triangle())
        if absorbed:
            layout, into, out_of = PACKED[number % 2]
            form = rng.choice(["BSH", "BNSD", "NZ"])
            block = 128 if form == "NZ" else rng.choice([16, 128])
            cache, table = page(
                rng, [torch.cat([x, y], -1) for x, y in zip(k, k_rope, strict=True)], block
            )
            keys = values = shape_cache(cache[..., :512].contiguous(), form)
            rope = shape_cache(cache[..., 512:].contiguous(), form)
            others.update(block_table=table, block_size=block, key_rope=rope)
            kv = kv_lens
        else:
            layout, into, out_of = rng.choice([PACKED[0], PACKED[2]])
            keys, values = put(k, into, 0), put(v, into, 0)
            others.update(key_rope=put(k_rope, into, 0))
            kv = totals(kv_lens)
        common = dict(heads=heads, scale=0.07, q=totals(q_lens), kv=kv)
        out, _ = call(
            torch_npu,
            version,
            put(q, into, 0),
            keys,
            values,
            common,
            input_layout=layout,
            query_rope=put(q_rope, into, 0),
            **others,
        )
        for b, got in enumerate(take(out, out_of, q_lens, heads)):
            both = torch.cat([q[b], q_rope[b]], -1), torch.cat([k[b], k_rope[b]], -1)
            seen = window(n, kv_lens[b], 3 if causal else 0)
            close(got, attend(*both, v[b], seen, 0.07)[0])


def test_quantised_latent_attention(torch_npu):
    rng = random.Random(23)
    q, k = draw(rng, 2, 2, 512, dtype=torch.int8), draw(rng, 20, 1, 512, dtype=torch.int8)
    q_rope, k_rope = draw(rng, 2, 2, 64), draw(rng, 20, 1, 64)
    scale = draw(rng, 2, 2, 1).float().abs() / 100
    cache, table = page(rng, [k[:7], k[7:]], 128)
    ropes = torch.zeros(len(cache), 128, 1, 64, dtype=torch.bfloat16)
    ropes[table[0, 0], :7], ropes[table[1, 0], :13] = k_rope[:7], k_rope[7:]
    keys = shape_cache(cache, "NZ")
    out, _ = torch_npu.npu_fused_infer_attention_score_v2(
        q,
        keys,
        keys,
        query_rope=q_rope,
        key_rope=shape_cache(ropes, "NZ"),
        actual_seq_qlen=[1, 2],
        actual_seq_kvlen=[7, 13],
        block_table=table,
        block_size=128,
        num_query_heads=2,
        num_key_value_heads=1,
        softmax_scale=0.05,
        input_layout="TND_NTD",
        dequant_scale_query=scale,
        dequant_scale_key=torch.tensor([0.02]),
        dequant_scale_value=torch.tensor([0.02]),
        query_quant_mode=3,
    )
    assert out.dtype == torch.bfloat16
    for b, part in enumerate((slice(0, 7), slice(7, 20))):
        query = torch.cat([q[b : b + 1].float() * scale[b : b + 1], q_rope[b : b + 1].float()], -1)
        key = torch.cat([k[part].float() * 0.02, k_rope[part].float()], -1)
        seen = window(1, len(key), 0)
        close(out[:, b], attend(query, key, k[part].float() * 0.02, seen, 0.05)[0][0])


def test_int8_result(torch_npu):
    rng = random.Random(24)
    q, k, v = (draw(rng, 2, 3, 4, 32, dtype=torch.float16) for _ in "qkv")
    plain, _ = torch_npu.npu_fused_infer_attention_score(
        q, k, v, num_heads=4, scale=0.2, input_layout="BSND"
    )
    scale, offset = torch.rand(4, 32) * 100, torch.rand(4, 32) * 5
    for s, o in [(scale, offset), (torch.tensor([40.0]), None)]:
        out, _ = torch_npu.npu_fused_infer_attention_score(
            q, k, v, num_heads=4, scale=0.2, input_layout="BSND", quant_scale2=s, quant_offset2=o
        )
        want = plain.float() * s + (0 if o is None else o)
        assert out.dtype == torch.int8
        assert (out.float() - want.round().clamp(-128, 127)).abs().max() <= 1


def packed_call(torch_npu, **changes):
    """A legal packed, paged call of v2 with some arguments changed."""
    args = dict(
        query=torch.zeros(3, 4, 128, dtype=torch.bfloat16),
        key=torch.zeros(2, 128, 256, dtype=torch.bfloat16),
        value=torch.zeros(2, 128, 256, dtype=torch.bfloat16),
        atten_mask=triangle(),
        actual_seq_qlen=[1, 3],
        actual_seq_kvlen=[5, 128],
        block_table=torch.tensor([[0], [1]], dtype=torch.int32),
        num_query_heads=4,
        num_key_value_heads=2,
        input_layout="TND",
        sparse_mode=3,
        block_size=128,
    )
    args.update(changes)
    return torch_npu.npu_fused_infer_attention_score_v2(**args)


def zeros(*shape, dtype=torch.bfloat16):
    return torch.zeros(*shape, dtype=dtype)


MLA = dict(
    query=zeros(3, 4, 512),
    key=zeros(2, 128, 512),
    value=zeros(2, 128, 512),
    query_rope=zeros(3, 4, 64),
    key_rope=zeros(2, 128, 64),
    num_key_value_heads=1,
)
ILLEGAL = {
    "rope_pair": dict(query_rope=zeros(3, 4, 64)),
    "rope_dim": MLA | dict(query_rope=zeros(3, 4, 32), key_rope=zeros(2, 128, 32)),
    "mla_query_dim": MLA
    | dict(query=zeros(3, 4, 256), key=zeros(2, 128, 256), value=zeros(2, 128, 256)),
    "mla512_q": MLA
    | dict(query=zeros(18, 4, 512), query_rope=zeros(18, 4, 64), actual_seq_qlen=[1, 18]),
    "mla512_block": MLA
    | dict(
        key=zeros(2, 32, 512),
        value=zeros(2, 32, 512),
        key_rope=zeros(2, 32, 64),
        block_size=32,
        actual_seq_kvlen=[5, 30],
    ),
    "mla512_kvheads": MLA
    | dict(
        key=zeros(2, 128, 1024),
        value=zeros(2, 128, 1024),
        key_rope=zeros(2, 128, 128),
        num_key_value_heads=2,
    ),
    "mla512_heads": MLA
    | dict(query=zeros(3, 3, 512), query_rope=zeros(3, 3, 64), num_query_heads=3),
    "mla512_sparse": MLA | dict(sparse_mode=4),
    "gqa_ratio": dict(num_key_value_heads=3),
    "mask_dtype": dict(atten_mask=triangle(torch.float16)),
    "mask_2048": dict(atten_mask=triangle()[:1024, :1024].contiguous()),
    "mask_required": dict(atten_mask=None),
    "block_table": dict(actual_seq_kvlen=[5, 129]),
    "pa_kvlen": dict(actual_seq_kvlen=None),
    "block_prefill": dict(
        key=zeros(2, 64, 256), value=zeros(2, 64, 256), block_size=64, actual_seq_kvlen=[5, 64]
    ),
    "block_decode": dict(
        query=zeros(2, 4, 128),
        actual_seq_qlen=[1, 2],
        key=zeros(2, 24, 256),
        value=zeros(2, 24, 256),
        block_size=24,
        actual_seq_kvlen=[5, 24],
    ),
    "axes": dict(query=zeros(3, 258, 128), num_query_heads=258),
    "d_align": dict(query=zeros(3, 4, 72), key=zeros(2, 128, 144), value=zeros(2, 128, 144)),
    "tnd_len": dict(actual_seq_qlen=None),
    "tnd_q_cumulative": dict(actual_seq_qlen=[3, 1]),
    "tnd_dims": dict(query=zeros(3, 4, 64), key=zeros(2, 128, 128), value=zeros(2, 128, 128)),
    "tnd_dtype": dict(
        query=zeros(3, 4, 128, dtype=torch.float16),
        key=zeros(2, 128, 256, dtype=torch.float16),
        value=zeros(2, 128, 256, dtype=torch.float16),
    ),
    "sink": dict(input_layout="TND_NTD", learnable_sink=zeros(4)),
}


@pytest.mark.parametrize("check", sorted(ILLEGAL))
def test_illegal_calls_name_the_check(torch_npu, check):
    packed_call(torch_npu)
    with pytest.raises(RuntimeError, match=rf"fused_infer_attention_score_v2\.{check} "):
        packed_call(torch_npu, **ILLEGAL[check])


REFUSED = {
    "atten_mask": dict(atten_mask=triangle().T.contiguous()),
    "sparse_mode": dict(sparse_mode=9),
    "input_layout": dict(
        input_layout="SBH",
        block_table=None,
        atten_mask=None,
        sparse_mode=0,
        actual_seq_qlen=None,
        actual_seq_kvlen=None,
    ),
    "block_size": dict(block_size=256),
    "quant_scale_p": dict(quant_scale_p=zeros(1)),
    "actual_seq_qlen": dict(actual_seq_qlen=[1, 4]),
    "block 7": dict(block_table=torch.tensor([[0], [7]], dtype=torch.int32)),
}


@pytest.mark.parametrize("word", sorted(REFUSED))
def test_refusals_name_the_argument(torch_npu, word):
    with pytest.raises(RuntimeError, match=word):
        packed_call(torch_npu, **REFUSED[word])


def test_padding_sizes_are_refused_by_name(torch_npu):
    q = zeros(1, 2, 16)
    for name in ("query_padding_size", "kv_padding_size"):
        with pytest.raises(RuntimeError, match=name):
            torch_npu.npu_fused_infer_attention_score(q, q, q, **{name: torch.tensor([1])})

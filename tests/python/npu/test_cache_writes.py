"""Operators that write into caches, against plain indexing in PyTorch."""

import random

import pytest

torch = pytest.importorskip("torch")

from attention_cases import close, draw  # noqa: E402

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.int8]
INDICES = [torch.int32, torch.int64]


def distinct(rng, n, count):
    return torch.tensor(rng.sample(range(n), count), dtype=torch.int64)


def test_scatter_nd_update(torch_npu):
    rng = random.Random(30)
    for _ in range(500):
        rank = rng.randint(1, 4)
        shape = [rng.randint(1, 5) for _ in range(rank)]
        depth = rng.randint(1, rank)
        lead = rng.choice([(), (1,), (2,)])
        n = rng.randint(0, 4)
        indices = torch.zeros(n, *lead, depth, dtype=torch.int64)
        for axis in range(depth):
            indices[..., axis] = torch.tensor(
                [rng.randrange(shape[axis]) for _ in range(n * (lead[0] if lead else 1))]
            ).view(n, *lead)
        dtype = rng.choice([*DTYPES, torch.bool, torch.int64])
        data = draw(rng, *shape, dtype=dtype)
        updates = draw(rng, n, *lead, *shape[depth:], dtype=dtype)
        want = data.clone()
        for place, value in zip(
            indices.reshape(-1, depth).tolist(), updates.reshape(-1, *shape[depth:]), strict=True
        ):
            want[tuple(place)] = value
        kind = rng.choice(INDICES)
        got = torch_npu.npu_scatter_nd_update_(data, indices.to(kind), updates)
        assert torch.equal(data, want)
        assert got.data_ptr() == data.data_ptr()


def test_scatter_update(torch_npu):
    rng = random.Random(31)
    for number in range(500):
        rank = rng.randint(2, 5)
        shape = [rng.randint(1, 4) for _ in range(rank)]
        axis = rng.randint(1, rank - 1)
        shape[axis] = rng.randint(1, 8)
        length = rng.randint(1, shape[axis])
        rows = rng.randint(1, shape[0])
        dtype = rng.choice([*DTYPES, torch.int32])
        data = draw(rng, *shape, dtype=dtype)
        size = [rows, *shape[1:]]
        size[axis] = length
        updates = draw(rng, *size, dtype=dtype)
        starts = [rng.randint(0, shape[axis] - length) for _ in range(rows)]
        where = list(range(rows)) if number % 2 else rng.sample(range(shape[0]), rows)
        indices = torch.tensor(starts if number % 2 else list(zip(where, starts, strict=True)))
        want = data.clone()
        for i, (row, start) in enumerate(zip(where, starts, strict=True)):
            want[row].narrow(axis - 1, start, length).copy_(updates[i])
        sign = rng.choice([axis, axis - rank])
        got = torch_npu.scatter_update_(data, indices.to(rng.choice(INDICES)), updates, sign)
        assert torch.equal(data, want)
        assert got.data_ptr() == data.data_ptr()


def test_quant_scatter(torch_npu):
    rng = random.Random(32)
    for _ in range(500):
        rank = rng.randint(3, 5)
        axis = rng.randint(1, rank - 2)
        shape = [3, *(rng.randint(1, 3) for _ in range(rank - 2)), rng.choice([32, 64])]
        shape[axis] = 6
        data = draw(rng, *shape, dtype=torch.int8)
        rows, length, last = rng.randint(1, 3), rng.randint(1, 6), shape[-1]
        size = [rows, *shape[1:]]
        size[axis] = length
        updates = draw(rng, *size, dtype=rng.choice([torch.bfloat16, torch.float16]))
        scales = (
            draw(rng, last, dtype=rng.choice([torch.bfloat16, torch.float32])).abs() / 20 + 0.01
        )
        zero = rng.choice([None, torch.randint(-5, 5, (last,), dtype=torch.int32)])
        starts = [rng.randint(0, 6 - length) for _ in range(rows)]
        pairs = rng.random() < 0.5
        where = rng.sample(range(3), rows) if pairs else list(range(rows))
        want = data.clone()
        quantised = updates.float() / scales.float() + (0 if zero is None else zero)
        quantised = quantised.round().clamp(-128, 127).to(torch.int8)
        for i, (row, start) in enumerate(zip(where, starts, strict=True)):
            want[row].narrow(axis - 1, start, length).copy_(quantised[i])
        indices = list(zip(where, starts, strict=True)) if pairs else starts
        torch_npu.npu_quant_scatter_(
            data,
            torch.tensor(indices, dtype=torch.int32),
            updates,
            scales,
            quant_zero_points=zero,
            axis=rng.choice([axis, axis - rank]),
        )
        assert torch.equal(data, want)


def as_nz(cache, lanes):
    """[blocks, block, N, D] as [blocks, N * D / lanes, block, lanes]."""
    return cache.flatten(2).unflatten(2, (-1, lanes)).transpose(1, 2).contiguous()


def test_scatter_pa_kv_cache(torch_npu):
    rng = random.Random(33)
    for number in range(500):
        blocks, block, heads = rng.randint(1, 3), rng.choice([1, 4, 16]), rng.choice([1, 2])
        dims = rng.choice([16, 32]), rng.choice([16, 48])
        dtype = rng.choice(DTYPES)
        lanes = rng.choice([n for n in (8, 16, 32) if all(heads * d % n == 0 for d in dims)])
        n = rng.randint(0, blocks * block)
        slots = distinct(rng, blocks * block, n)
        tokens = [draw(rng, n, heads, d, dtype=dtype) for d in dims]
        caches = [draw(rng, blocks, block, heads, d, dtype=dtype) for d in dims]
        wants = [c.clone() for c in caches]
        for want, token in zip(wants, tokens, strict=True):
            want.view(blocks * block, heads, -1)[slots] = token
        nz = number % 2
        if nz:
            caches, wants = ([as_nz(c, lanes) for c in x] for x in (caches, wants))
        mode = {} if nz else {"cache_mode": rng.choice(["Norm", None])}
        kind = rng.choice(INDICES)
        torch_npu.npu_scatter_pa_kv_cache(*tokens, *caches, slots.to(kind), **mode)
        assert all(torch.equal(c, w) for c, w in zip(caches, wants, strict=True))


def norm(x, weight, eps):
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight.float()


def half_turned(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos.float() + torch.cat([-second, first], -1) * sin.float()


def pairs_turned(x, cos, sin):
    x = x.float()
    return half_turned(torch.cat([x[..., ::2], x[..., 1::2]], -1), cos, sin)


def as_pa_nz(cache):
    """A cache [blocks, block, 1, D] whose blocks are stored as [D / lanes, block, lanes]."""
    lanes = 32 if cache.dtype == torch.int8 else 16
    return as_nz(cache, lanes).view(cache.shape)


@pytest.mark.parametrize("version", [1, 2])
def test_kv_rmsnorm_rope_cache(torch_npu, version):
    rng = random.Random(34)
    modes = ["Norm", "PA", "PA_BNSD", "PA_NZ", "PA_BLK_BNSD", "PA_BLK_NZ"]
    for number in range(500):
        mode = modes[number % 6]
        batch, n = rng.randint(1, 2), rng.randint(1, 5)
        dtype = rng.choice([torch.bfloat16, torch.float16])
        quantised = rng.random() < 0.3
        kv = draw(rng, batch, 1, n, 576, dtype=dtype)
        gamma = draw(rng, 512, dtype=dtype)
        cos, sin = (draw(rng, batch, 1, n, 64, dtype=dtype) for _ in "cs")
        eps = rng.choice([1e-5, 1e-2])
        latent = norm(kv[..., :512], gamma, eps)[:, 0]
        rope = pairs_turned(kv[..., 512:], cos, sin)[:, 0]
        scales = {}
        parts = {"k_cache": rope, "ckv_cache": latent}
        if quantised:
            scales = {
                "k_rope_scale": draw(rng, 64).float().abs() * 40,
                "c_kv_scale": draw(rng, 512).float().abs() * 40,
            }
            parts = {
                name: (part * scale).round().clamp(-128, 127)
                for (name, part), scale in zip(parts.items(), scales.values(), strict=True)
            }
        kind = torch.int8 if quantised else dtype
        block = rng.choice([2, 4])
        blocks = batch * -(-n // block) + 1
        caches, wants = [], []
        if mode == "Norm":
            # The check of unique indices counts all requests together.
            index = distinct(rng, 10, batch * n).view(batch, n)
            places = [[(b, 0, int(index[b, t])) for t in range(n)] for b in range(batch)]
            shapes = [(batch, 1, 10, 64), (batch, 1, 10, 512)]
        else:
            shapes = [(blocks, block, 1, 64), (blocks, block, 1, 512)]
            if "BLK" in mode:
                pages = -(-n // block)
                index = distinct(rng, blocks, batch * pages) * block
                slots = [
                    [int(index[b * pages + t // block]) + t % block for t in range(n)]
                    for b in range(batch)
                ]
            else:
                index = distinct(rng, blocks * block, batch * n)
                if rng.random() < 0.2:
                    index[0] = -1
                slots = index.view(batch, n).tolist()
            places = [[None if s < 0 else (s // block, s % block, 0) for s in row] for row in slots]
        for part, shape in zip(parts.values(), shapes, strict=True):
            cache = draw(rng, *shape, dtype=kind)
            want = cache.clone()
            for b in range(batch):
                for t in range(n):
                    if places[b][t] is not None:
                        want[places[b][t]] = part[b, t].to(kind)
            if mode.endswith("NZ"):
                cache, want = as_pa_nz(cache), as_pa_nz(want)
            caches.append(cache)
            wants.append(want)
        give = rng.random() < 0.5
        name = "npu_kv_rmsnorm_rope_cache" + ("_v2" if version == 2 else "")
        results = getattr(torch_npu, name)(
            kv,
            gamma,
            cos,
            sin,
            index,
            *caches,
            epsilon=eps,
            cache_mode=mode,
            is_output_kv=give,
            **scales,
        )
        for cache, want in zip(caches, wants, strict=True):
            if quantised:
                assert (cache.int() - want.int()).abs().max() <= 1
            else:
                close(cache, want)
        if version == 1:
            assert results[0].data_ptr() == caches[0].data_ptr()
            results = results[2:]
        for got, want in zip(results, (rope, latent), strict=True):
            close(got[:, 0], want if give else torch.zeros_like(want))


def test_qkv_rms_norm_rope_cache(torch_npu):
    rng = random.Random(35)
    for _ in range(500):
        batch, n, nq, nk, dim = (
            rng.randint(1, 2),
            rng.randint(1, 3),
            rng.choice([1, 4]),
            rng.choice([1, 2]),
            32,
        )
        tokens, dtype = batch * n, torch.float16
        quantised = rng.random() < 0.5
        lanes, blocks, block = 32 if quantised else 16, 2, 4
        qkv = draw(rng, tokens, (nq + 2 * nk) * dim, dtype=dtype)
        gammas = [draw(rng, dim, dtype=dtype) for _ in "qk"]
        cos, sin = (draw(rng, tokens, dim, dtype=dtype) for _ in "cs")
        index = distinct(rng, blocks * block, tokens)
        kind = torch.int8 if quantised else dtype
        caches = [draw(rng, blocks, block, nk, dim, dtype=kind) for _ in "kv"]
        scales = [draw(rng, nk, dim).float().abs() / 20 + 0.02 for _ in "kv"]
        heads = list(qkv.unflatten(1, (-1, dim)).float().split([nq, nk, nk], 1))
        for part in (0, 1):
            heads[part] = half_turned(
                norm(heads[part], gammas[part], 1e-6), cos[:, None], sin[:, None]
            )
        wants = []
        for cache, part, scale in zip(caches, heads[1:], scales, strict=True):
            want = cache.clone()
            value = (part / scale).round().clamp(-128, 127) if quantised else part
            want.view(blocks * block, nk, dim)[index] = value.to(kind)
            wants.append(as_nz(want, lanes))
        caches = [as_nz(c, lanes) for c in caches]
        out = torch.zeros(tokens, nq * dim, dtype=dtype)
        more = {"k_scale": scales[0], "v_scale": scales[1]} if quantised else {}
        results = torch_npu.npu_qkv_rms_norm_rope_cache(
            qkv,
            *gammas,
            cos,
            sin,
            index,
            out,
            *caches,
            [batch, n, nq + 2 * nk, dim],
            [nq, nk, nk],
            is_output_qkv=True,
            **more,
        )
        close(out, heads[0].flatten(1))
        for got, want in zip(results, heads, strict=True):
            close(got, want.flatten(1))
        for cache, want in zip(caches, wants, strict=True):
            assert (cache.float() - want.float()).abs().max() <= (1 if quantised else 0.05)


def test_advance_step(torch_npu):
    rng = random.Random(36)
    for number in range(500):
        n, block, columns = rng.randint(2, 5), rng.randint(1, 4), 12
        queries, spec = (n, rng.randint(1, 3)) if number % 2 else (rng.randint(1, n - 1), 0)
        each = spec + 1
        tables = torch.randint(1, 50, (n, columns))
        lens = torch.randint(1, block * columns - 8 if block * columns > 9 else 2, (n * each,))
        sampled = torch.randint(5, 50, (queries, each))
        tokens, positions, slots = (torch.randint(0, 9, (n * each,)) for _ in "tps")
        more = {}
        if spec:
            positions = lens - 1
            accepted = torch.tensor([rng.randint(0, spec) for _ in range(n)])
            for i in range(n):
                sampled[i, accepted[i] + 1 :] = -1
            drafts = torch.randint(5, 50, (n, spec))
            more = dict(spec_token=drafts, accepted_num=accepted)
            last = sampled[torch.arange(n), accepted]
            want_tokens = torch.cat([last[:, None], drafts], 1).flatten()
            want_positions = positions + 1 + accepted.repeat_interleave(each)
            want_lens = want_positions + 1
            request = torch.arange(n).repeat_interleave(each)
            if int(want_positions.max()) // block >= columns:
                continue
            want_slots = tables[request, want_positions // block] * block + want_positions % block
        else:
            live = torch.arange(n) < queries
            want_tokens = torch.cat([sampled[:, 0], torch.zeros(n - queries, dtype=torch.int64)])
            want_positions = torch.where(live, lens, 0)
            want_lens = lens + live
            places = tables[torch.arange(n), lens // block] * block + lens % block
            want_slots = torch.where(live, places, -1)
        torch_npu.npu_advance_step_flashattn(
            tokens, sampled, positions, lens, slots, tables, n, queries, block, **more
        )
        assert torch.equal(tokens, want_tokens)
        assert torch.equal(positions, want_positions)
        assert torch.equal(lens, want_lens)
        assert torch.equal(slots, want_slots)


def zeros(*shape, dtype=torch.bfloat16):
    return torch.zeros(*shape, dtype=dtype)


def latent_call(torch_npu, **changes):
    args = dict(
        kv=zeros(1, 1, 2, 576),
        gamma=zeros(512),
        cos=zeros(1, 1, 2, 64),
        sin=zeros(1, 1, 2, 64),
        index=torch.tensor([0, 1]),
        k_cache=zeros(2, 16, 1, 64),
        ckv_cache=zeros(2, 16, 1, 512),
        cache_mode="PA",
    )
    torch_npu.npu_kv_rmsnorm_rope_cache(**(args | changes))


ILLEGAL = {
    "scatter_nd_update_.rank": lambda m: m.npu_scatter_nd_update_(
        zeros(4, 2), torch.tensor([0]), zeros(1, 2)
    ),
    "scatter_nd_update_.last": lambda m: m.npu_scatter_nd_update_(
        zeros(4), torch.zeros(1, 2, dtype=torch.int64), zeros(1)
    ),
    "scatter_nd_update_.shape": lambda m: m.npu_scatter_nd_update_(
        zeros(4, 2), torch.tensor([[0]]), zeros(1, 3)
    ),
    "scatter_nd_update_.range": lambda m: m.npu_scatter_nd_update_(
        zeros(4, 2), torch.tensor([[4]]), zeros(1, 2)
    ),
    "scatter_update_.rank": lambda m: m.scatter_update_(
        zeros(2, 4, 3), torch.tensor([0]), zeros(1, 4), 1
    ),
    "quant_scatter_.align": lambda m: m.npu_quant_scatter_(
        zeros(1, 4, 16, dtype=torch.int8),
        torch.zeros(1, dtype=torch.int32),
        zeros(1, 1, 16),
        zeros(16),
    ),
    "quant_scatter_.axis": lambda m: m.npu_quant_scatter_(
        zeros(1, 4, 32, dtype=torch.int8),
        torch.zeros(1, dtype=torch.int32),
        zeros(1, 1, 32),
        zeros(32),
        axis=0,
    ),
    "quant_scatter_.scale": lambda m: m.npu_quant_scatter_(
        zeros(1, 4, 32, dtype=torch.int8),
        torch.zeros(1, dtype=torch.int32),
        zeros(1, 1, 32),
        zeros(1),
    ),
    "scatter_pa_kv_cache.range": lambda m: m.npu_scatter_pa_kv_cache(
        zeros(1, 1, 16), zeros(1, 1, 16), zeros(2, 1, 4, 16), zeros(2, 1, 4, 16), torch.tensor([8])
    ),
    "scatter_pa_kv_cache.unique": lambda m: m.npu_scatter_pa_kv_cache(
        zeros(2, 1, 16),
        zeros(2, 1, 16),
        zeros(2, 1, 4, 16),
        zeros(2, 1, 4, 16),
        torch.tensor([3, 3]),
    ),
    "scatter_pa_kv_cache.dtype": lambda m: m.npu_scatter_pa_kv_cache(
        zeros(1, 1, 16),
        zeros(1, 1, 16),
        zeros(2, 1, 4, 16).float(),
        zeros(2, 1, 4, 16),
        torch.tensor([3]),
    ),
    "kv_rmsnorm_rope_cache.hidden": lambda m: latent_call(m, kv=zeros(1, 1, 2, 512)),
    "kv_rmsnorm_rope_cache.unique": lambda m: latent_call(m, index=torch.tensor([1, 1])),
    "kv_rmsnorm_rope_cache.quant_pair": lambda m: latent_call(m, c_kv_scale=zeros(512).float()),
    "kv_rmsnorm_rope_cache.blocks": lambda m: latent_call(
        m, k_cache=zeros(0, 16, 1, 64), ckv_cache=zeros(0, 16, 1, 512)
    ),
}


@pytest.mark.parametrize("check", sorted(ILLEGAL))
def test_illegal_calls_name_the_check(torch_npu, check):
    with pytest.raises(RuntimeError, match=check.replace(".", r"\.") + " "):
        ILLEGAL[check](torch_npu)


def test_refusals_name_the_argument(torch_npu):
    with pytest.raises(RuntimeError, match="k_rope_offset"):
        latent_call(torch_npu, k_rope_offset=zeros(64).float())
    with pytest.raises(RuntimeError, match="cache_mode"):
        latent_call(torch_npu, cache_mode="PB")

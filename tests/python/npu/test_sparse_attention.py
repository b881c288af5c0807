"""MLA front part, indexers and attention over chosen keys, shards merged, older attentions."""

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
    window,
)
from draws import CASES  # noqa: E402
from test_cache_writes import as_pa_nz, norm, pairs_turned  # noqa: E402


def i32(values):
    return torch.tensor(values, dtype=torch.int32)


class Requests:
    """Ragged queries and keys of one kv head, in one of the layouts of the sparse operators."""

    def __init__(self, rng, layout, block=16):
        self.rng = rng
        self.query_layout, self.key_layout = layout
        batch = rng.randint(1, 3)
        self.q_lens = [rng.randint(1, 3) for _ in range(batch)]
        self.kv_lens = [n + rng.choice([0, rng.randint(0, 40)]) for n in self.q_lens]
        self.block = block
        self.size, self.width = max(self.q_lens), max(self.kv_lens)

    def queries(self, rows):
        return put(rows, self.query_layout, self.size)

    def keys(self, rows):
        """The tensor of keys and what goes with it."""
        if self.key_layout != "PA_BSND":
            return put(rows, self.key_layout, self.width)
        if not hasattr(self, "table"):
            cache, self.table = page(self.rng, rows, self.block)
            self.blocks = len(cache)
            return cache
        cache = torch.zeros(self.blocks, self.block, *rows[0].shape[1:], dtype=rows[0].dtype)
        for b, row in enumerate(rows):
            for j, x in enumerate(row):
                cache[self.table[b, j // self.block], j % self.block] = x
        return cache

    def arguments(self, keys_name):
        packed = self.query_layout == "TND"
        args = {
            "actual_seq_lengths_query": i32(totals(self.q_lens) if packed else self.q_lens),
            f"actual_seq_lengths_{keys_name}": i32(
                totals(self.kv_lens) if self.key_layout == "TND" else self.kv_lens
            ),
            "layout_query": self.query_layout,
            "layout_" + keys_name: self.key_layout,
        }
        if self.key_layout == "PA_BSND":
            args["block_table"] = self.table
        return args


LAYOUTS = [("BSND", "BSND"), ("TND", "TND"), ("BSND", "PA_BSND"), ("TND", "PA_BSND")]


@pytest.mark.parametrize("quantised", [False, True])
def test_lightning_indexer(torch_npu, quantised):
    rng = random.Random(40)
    for number in range(500):
        r = Requests(rng, LAYOUTS[number % 4])
        heads, dim, count = rng.choice([1, 4]), 16, rng.choice([1, 5, 64])
        mode = rng.choice([0, 3])
        # Small whole numbers: sums are exact, and there are ties.
        whole = lambda *s: draw(rng, *s).float().round().clamp(-2, 2)  # noqa: E731
        q = [whole(n, heads, dim) for n in r.q_lens]
        k = [whole(m, 1, dim) for m in r.kv_lens]
        w = [whole(n, heads) for n in r.q_lens]
        kind = torch.int8 if quantised else rng.choice([torch.bfloat16, torch.float16])
        keys = r.keys([x.to(kind) for x in k])
        rest = {"sparse_count": count, "sparse_mode": mode, **r.arguments("key")}
        heavy = torch.float16 if quantised else rng.choice([kind, torch.float32])
        weights = r.queries([x.to(heavy)[..., None] for x in w])[..., 0]
        query = r.queries([x.to(kind) for x in q])
        if quantised:
            factors = lambda *s: 2.0 ** draw(rng, *s).float().round().clamp(-1, 1)  # noqa: E731
            qs, ks = [factors(n, heads) for n in r.q_lens], [factors(m, 1) for m in r.kv_lens]
            q = [x * s[..., None] for x, s in zip(q, qs, strict=True)]
            k = [x * s[..., None] for x, s in zip(k, ks, strict=True)]
            half = torch.float16
            got = torch_npu.npu_quant_lightning_indexer(
                query,
                keys,
                weights,
                r.queries([s.to(half)[..., None] for s in qs])[..., 0],
                r.keys([s.to(half)[..., None] for s in ks])[..., 0],
                0,
                0,
                **rest,
            )
            values = None
        else:
            give = rng.random() < 0.3
            got, values = torch_npu.npu_lightning_indexer(
                query, keys, weights, return_value=give, **rest
            )
            values = values if give else None
        assert got.dtype == torch.int32
        got = (
            list(got.split(r.q_lens))
            if r.query_layout == "TND"
            else [got[b, :n] for b, n in enumerate(r.q_lens)]
        )
        for b, (n, m) in enumerate(zip(r.q_lens, r.kv_lens, strict=True)):
            scores = torch.einsum("nhd,md->nhm", q[b], k[b][:, 0]).relu()
            scores = (scores * w[b][..., None]).sum(1)
            seen = window(n, m, mode)
            for i, row in enumerate(scores.tolist()):
                places = [j for j in range(m) if seen[i, j]]
                places.sort(key=lambda j: (-row[j], j))
                want = (places[:count] + [-1] * count)[:count]
                assert got[b][i, 0].tolist() == want


@pytest.mark.parametrize("quantised", [False, True])
def test_sparse_flash_attention(torch_npu, quantised):
    rng = random.Random(41)
    for number in range(CASES):
        layout = LAYOUTS[2 + number % 2] if quantised else LAYOUTS[number % 4]
        r = Requests(rng, layout)
        heads, size = rng.choice([1, 2, 4]), rng.choice([1, 2, 16])
        dim, rope = (128, 64) if quantised else (32, 16)
        mode, width = rng.choice([0, 3]), rng.randint(1, 6)
        dtype = torch.bfloat16 if quantised else rng.choice([torch.bfloat16, torch.float16])
        q = [draw(rng, n, heads, dim + rope, dtype=dtype) for n in r.q_lens]
        k = [draw(rng, m, 1, dim + rope, dtype=dtype) for m in r.kv_lens]
        chosen, seen = [], []
        for n, m in zip(r.q_lens, r.kv_lens, strict=True):
            rows, keep = [], torch.zeros(n, m, dtype=torch.bool)
            for i in range(n):
                blocks = rng.sample(range(-(-m // size)), min(-(-m // size), rng.randint(0, width)))
                rows.append(blocks + [-1] * (width - len(blocks)))
                for c in blocks:
                    keep[i, c * size : (c + 1) * size] = True
            chosen.append(i32(rows)[:, None])
            seen.append(keep & window(n, m, mode))
        rest = {"sparse_block_size": size, "sparse_mode": mode, "attention_mode": 2}
        lse = False
        if quantised:
            scales = [draw(rng, m, 1, 1).float().abs() / 50 + 0.01 for m in r.kv_lens]
            whole = [draw(rng, m, 1, dim, dtype=torch.int8) for m in r.kv_lens]
            rows = [
                torch.cat([x, y[..., dim:].contiguous().view(torch.int8), s.view(torch.int8)], -1)
                for x, y, s in zip(whole, k, scales, strict=True)
            ]
            cache = r.keys(rows)
            out = torch_npu.npu_kv_quant_sparse_flash_attention(
                r.queries(q),
                cache,
                cache,
                r.queries(chosen),
                0.1,
                2,
                2,
                **rest,
                **r.arguments("kv"),
            )
            k = [
                torch.cat([x.float() * s, y[..., dim:].float()], -1)
                for x, y, s in zip(whole, k, scales, strict=True)
            ]
        else:
            lse = rng.random() < 0.3
            keys = r.keys([x[..., :dim].contiguous() for x in k])
            ropes = r.keys([x[..., dim:].contiguous() for x in k])
            value = rng.choice([None, keys])
            out, top, total = torch_npu.npu_sparse_flash_attention(
                r.queries([x[..., :dim].contiguous() for x in q]),
                keys,
                value,
                r.queries(chosen),
                0.1,
                query_rope=r.queries([x[..., dim:].contiguous() for x in q]),
                key_rope=ropes,
                return_softmax_lse=lse,
                **rest,
                **r.arguments("kv"),
            )
        for b, got in enumerate(take(out, r.query_layout, r.q_lens, heads)):
            want, want_lse = attend(q[b], k[b], k[b][..., :dim], seen[b], 0.1)
            close(got, want)
            if lse:
                at = sum(r.q_lens[:b])
                n = r.q_lens[b]
                part = [
                    t[0, at : at + n] if r.query_layout == "TND" else t[b, 0, :n]
                    for t in (top, total)
                ]
                merged = part[0] + part[1].log()
                known = want_lse.isfinite()
                torch.testing.assert_close(merged[known], want_lse[known], rtol=1e-3, atol=1e-3)


PROLOG_MODES = {
    2: ["PA_BSND", "PA_NZ"],
    3: ["PA_BSND", "PA_NZ", "PA_BLK_BSND", "PA_BLK_NZ", "BSND", "TND"],
}


def numbered_blocks(rng, lens, block, blocks):
    """The number of each request's blocks, and the slot of each token."""
    pages = [-(-n // block) for n in lens]
    numbers = rng.sample(range(blocks), sum(pages))
    slots, rest = [], list(numbers)
    for n, count in zip(lens, pages, strict=True):
        own, rest = rest[:count], rest[count:]
        slots += [own[i // block] * block + i % block for i in range(n)]
    return torch.tensor(numbers), torch.tensor(slots)


# (weight_quant_mode, kv_cache_quant_mode): 3 keeps latent, rope part and scales in one row.
PROLOG_QUANT = [(0, 0), (1, 0), (1, 2), (2, 0), (2, 1)]
PROLOG_TILED = [(1, 3), (2, 3)]


def tiled_parts(rows):
    """Latent, rope part and scales of rows of 656 bytes, as floats."""
    scales = rows[:, 640:].contiguous().view(torch.float32)
    latent = rows[:, :512].float() * scales.repeat_interleave(128, 1)
    return latent, rows[:, 512:640].contiguous().view(torch.bfloat16).float(), scales


@pytest.mark.parametrize("version", [2, 3])
def test_mla_prolog(torch_npu, version):
    """At the least size that the operator takes; all forms of caches and of quantisation."""
    rng = random.Random(40 + version)
    older = version == 2  # v2 has the less arguments
    hidden, rank, latent, dim, rope, heads = 6144, 1536, 512, 128, 64, 2
    w_dq, w_dkv = draw(rng, hidden, rank) / 60, draw(rng, hidden, latent + rope) / 60
    w_uq, w_uk = draw(rng, rank, heads * (dim + rope)) / 30, draw(rng, heads, dim, latent) / 10
    whole = {
        name: draw(rng, *w.shape, dtype=torch.int8)
        for name, w in (("dq", w_dq), ("uq", w_uq), ("dkv", w_dkv))
    }
    floats = {"dq": w_dq.float(), "uq": w_uq.float(), "dkv": w_dkv.float(), "uk": w_uk.float()}
    wholes = {name: w.float() for name, w in whole.items()}
    gammas = draw(rng, rank), draw(rng, latent)
    bf = lambda x: x.bfloat16().float()  # noqa: E731

    def rows_quantised(x):
        scale = x.abs().amax(-1, keepdim=True) / 127
        return (x / scale).round().clamp(-128, 127), scale

    for number in range(CASES):
        modes = PROLOG_MODES[version]
        mode = modes[number % len(modes)]
        one = not older and mode in ("PA_BSND", "BSND", "TND")
        forms = PROLOG_QUANT + PROLOG_TILED if one else PROLOG_QUANT
        weights, cached = forms[number // len(modes) % len(forms)]
        one = cached == 3
        flat = mode == "TND" or (rng.random() < 0.5 and mode != "BSND")
        lens = [rng.randint(1, 3)] if flat else [2, 2]
        if flat and "BLK" in mode:
            lens = rng.choice([[2, 1], [1, 0, 2], [1, 17]])
        n = sum(lens)
        lead = [n] if flat else [2, 2]
        x = draw(rng, *lead, hidden)
        cos, sin = draw(rng, *lead, rope), draw(rng, *lead, rope)
        args, scales = {}, {}
        xs = x.float().view(n, hidden)
        if weights == 2:
            x = draw(rng, *lead, hidden, dtype=torch.int8)
            scales["dequant_scale_x"] = torch.rand(n, 1) / 50
            for name in ("dq", "dkv"):
                full = {"dq": "dequant_scale_w_dq", "dkv": "dequant_scale_w_dkv_kr"}[name]
                scales[full] = torch.rand(1, whole[name].shape[1]) / 1000
            xs = x.float().view(n, hidden) * scales["dequant_scale_x"]
        eps, factors = (1e-3, 1e-2), (1.0, 1.0) if older else (1.5, 0.5)
        by = lambda name: wholes[name] if weights == 2 else floats[name]  # noqa: E731, B023
        down, k = xs @ by("dq"), xs @ by("dkv")
        if weights == 2:
            down, k = down * scales["dequant_scale_w_dq"], k * scales["dequant_scale_w_dkv_kr"]
        c = bf(norm(bf(down), gammas[0], eps[0]) * factors[0])
        if weights:
            scales["dequant_scale_w_uq_qr"] = torch.rand(1, w_uq.shape[1]) / 500
            smooth = torch.rand(1, rank) + 0.5
            scales["smooth_scales_cq"] = smooth
            c, c_scale = rows_quantised(c * smooth)
        q = c @ (wholes if weights else floats)["uq"]
        q = q * c_scale * scales["dequant_scale_w_uq_qr"] if weights else q
        q = q.view(n, heads, dim + rope)
        want_q = torch.einsum("nhd,hdl->nhl", bf(q[..., :dim]), floats["uk"])
        flat_cos, flat_sin = cos.view(n, 1, rope), sin.view(n, 1, rope)
        want_rope = pairs_turned(bf(q[..., dim:]), flat_cos, flat_sin)
        k = bf(k)
        want_kv = norm(k[:, :latent], gammas[1], eps[1]) * factors[1]
        want_kr = pairs_turned(k[:, latent:], flat_cos[:, 0], flat_sin[:, 0])
        if cached in (1, 2):
            scales["quant_scale_ckv"] = (
                torch.rand(1, latent) * 40 if cached == 2 else torch.tensor([30.0])
            )
            want_kv = (want_kv * scales["quant_scale_ckv"]).round().clamp(-128, 127)
        if cached == 2:
            scales["quant_scale_ckr"] = torch.rand(1, rope) * 20
            want_kr = (want_kr * scales["quant_scale_ckr"]).round().clamp(-128, 127)
        shape = {"TND": (n, 1), "BSND": (*lead, 1)}.get(mode, (4, 16, 1))
        slots = torch.arange(n)
        if "BLK" in mode:
            args["cache_index"], slots = numbered_blocks(rng, lens, 16, 4)
            if flat:
                args["actual_seq_len"] = i32(totals(lens))
            else:
                args["cache_index"] = args["cache_index"].view(2, 1)
        elif mode.startswith("PA"):
            slots = torch.tensor(rng.sample(range(64), n))
            args["cache_index"] = slots.view(lead)
        caches, wants = [], []
        for width, part, quantised in ((latent, want_kv, cached), (rope, want_kr, cached == 2)):
            kind = torch.int8 if quantised else torch.bfloat16
            cache = draw(rng, *shape, width, dtype=kind)
            want = cache.clone()
            want.view(-1, width)[slots] = part.to(kind)
            if mode.endswith("NZ"):
                cache, want = as_pa_nz(cache), as_pa_nz(want)
            caches.append(cache)
            wants.append(want)
        if one:
            caches = [draw(rng, *shape, 656, dtype=torch.int8), torch.zeros(0)]
            before = caches[0].clone().view(-1, 656)
            args |= dict(ckvkr_repo_mode=1, quant_scale_repo_mode=1)
        full = weights == 2 and cached == 1
        give = not older and rng.random() < 0.5
        common = (
            x,
            whole["dq"] if weights == 2 else w_dq,
            whole["uq"] if weights else w_uq,
            w_uk,
            whole["dkv"] if weights == 2 else w_dkv,
            *gammas,
            sin,
            cos,
        )
        scales |= dict(rmsnorm_epsilon_cq=eps[0], rmsnorm_epsilon_ckv=eps[1], cache_mode=mode)
        if older:
            query, query_rope, *changed, query_scale = torch_npu.npu_mla_prolog_v2(
                *common, args["cache_index"], *caches, **scales
            )
            assert all(torch.equal(t, cache) for t, cache in zip(changed, caches, strict=True))
        else:
            query, query_rope, query_scale, query_norm, norm_scale = torch_npu.npu_mla_prolog_v3(
                *common,
                *caches,
                query_norm_flag=give,
                weight_quant_mode=weights,
                kv_cache_quant_mode=cached,
                query_quant_mode=int(full),
                qc_qr_scale=factors[0],
                kc_scale=factors[1],
                **args,
                **scales,
            )
        assert query.shape == (*lead, heads, latent)
        got = query.view(n, heads, latent).float()
        if full:
            got = got * query_scale
        bound = want_q.abs().max() * 2**-6
        assert (got - want_q).abs().max() <= bound
        assert (
            query_rope.view(n, heads, rope).float() - want_rope
        ).abs().max() <= want_rope.abs().max() / 50
        if one:
            rows = caches[0].view(-1, 656)
            latents, ropes, tiles = tiled_parts(rows[slots])
            top = want_kv.view(n, 4, 128).abs().amax(-1)
            torch.testing.assert_close(tiles, top / 127, rtol=2**-6, atol=1e-6)
            assert (latents - want_kv).abs().max() <= top.max() * 2**-6
            assert (ropes - want_kr).abs().max() <= want_kr.abs().max() * 2**-6
            before[slots] = rows[slots]
            assert torch.equal(rows, before)
            caches = wants = []
        for cache, want, quantised in zip(caches, wants, (cached, cached == 2), strict=False):
            off = (cache.float() - want.float()).abs().max()
            assert off <= (1 if quantised else want.float().abs().max() * 2**-6)
        if give:
            scale = norm_scale if weights else 1
            wanted = c * c_scale if weights else c
            assert (
                query_norm.view(n, rank).float() * scale - wanted
            ).abs().max() <= wanted.abs().max() / 50
        elif not older:
            assert query_norm.numel() == norm_scale.numel() == 0


def test_attention_update(torch_npu):
    rng = random.Random(43)
    for _ in range(CASES):
        shards, rows, dim = rng.randint(1, 5), rng.randint(1, 6), rng.choice([8, 24])
        dtype = rng.choice([torch.float32, torch.bfloat16, torch.float16])
        q, lens = draw(rng, rows, 1, dim), [rng.randint(0, 4) for _ in range(shards)]
        lens[0] += 1
        k, v = draw(rng, sum(lens), 1, dim), draw(rng, sum(lens), 1, dim)
        outs, lses = [], []
        for kp, vp in zip(k.split(lens), v.split(lens), strict=True):
            out, lse = attend(q, kp, vp, window(rows, len(kp), 0), 0.3)
            outs.append(out[:, 0].to(dtype))
            lses.append(lse[:, 0].contiguous())
        want, want_lse = attend(q, k, v, window(rows, sum(lens), 0), 0.3)
        got, got_lse = torch_npu.npu_attention_update(lses, outs, 1)
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), want[:, 0], rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(got_lse, want_lse[:, 0], rtol=1e-4, atol=1e-4)
        assert torch_npu.npu_attention_update(lses, outs, 0)[1].numel() == 0
    with pytest.raises(RuntimeError, match="local_out"):
        torch_npu.npu_attention_update(lses, outs + outs, 1)


def test_older_attentions(torch_npu):
    rng = random.Random(44)
    for number in range(2 * CASES):
        layout = rng.choice(["BSH", "BSND", "BNSD"])
        decode = number % 2
        heads, kv_heads, dim, batch = rng.choice([(4, 2, 16, 2), (2, 2, 32, 1), (3, 1, 16, 3)])
        size = 1 if decode else rng.randint(2, 5)
        q_lens = [size] * batch if decode else [rng.randint(0, size) for _ in range(batch)]
        kv_lens = [rng.randint(0, 20) for _ in range(batch)]
        width = max([*kv_lens, 1])
        into = out_of = layout
        if not decode:
            layout = rng.choice([layout, "BNSD_BSND", "TND"])
            into, out_of = layout[:4], layout[-4:]
        packed, dtype = layout == "TND", rng.choice([torch.bfloat16, torch.float16])
        if packed:
            q_lens[0], kv_lens[0] = size, max(kv_lens[0], 1)
        width = max([*kv_lens, 1])
        q = [draw(rng, n, heads, dim, dtype=dtype) for n in q_lens]
        k, v = ([draw(rng, m, kv_heads, dim, dtype=dtype) for m in kv_lens] for _ in "kv")
        common = dict(
            num_heads=heads, num_key_value_heads=kv_heads, scale_value=0.2, input_layout=layout
        )
        seen = [window(n, m, 0) for n, m in zip(q_lens, kv_lens, strict=True)]
        if not packed and rng.random() < 0.5:
            mask = draw(rng, batch, 1, size, width) > 0.3
            common["atten_mask"] = mask
            behind = [window(n, m, 2) for n, m in zip(q_lens, kv_lens, strict=True)]
            seen = [
                ~mask[b, 0, :n, :m] & (torch.tensor(True) if decode else behind[b])
                for b, (n, m) in enumerate(zip(q_lens, kv_lens, strict=True))
            ]
        if decode:
            keys, values = put(k, layout, width), put(v, layout, width)
            if layout == "BSH" and "atten_mask" not in common and rng.random() < 0.5:
                cache, table = page(rng, [torch.cat(p, -1) for p in zip(k, v, strict=True)], 16)
                keys, values = (shape_cache(c.contiguous(), "BSH") for c in cache.split(dim, -1))
                common.update(block_table=table, block_size=16)
            out = torch_npu.npu_incre_flash_attention(
                put(q, layout, 1), keys, values, actual_seq_lengths=kv_lens, **common
            )
        else:
            out = torch_npu.npu_prompt_flash_attention(
                put(q, into, size),
                put(k, into, width),
                put(v, into, width),
                actual_seq_lengths=totals(q_lens) if packed else q_lens,
                actual_seq_lengths_kv=totals(kv_lens) if packed else kv_lens,
                **common,
            )
        for b, got in enumerate(take(out, out_of, q_lens, heads)):
            close(got, attend(q[b], k[b], v[b], seen[b], 0.2)[0])


def prolog(
    torch_npu, heads=2, hidden=6144, rank=1536, dim=128, tokens=2, blocks=2, block=16, index=None
):
    zeros = lambda *s: torch.zeros(*s, dtype=torch.bfloat16)  # noqa: E731
    torch_npu.npu_mla_prolog_v3(
        zeros(tokens, hidden),
        zeros(hidden, rank),
        zeros(rank, heads * (dim + 64)),
        zeros(heads, dim, 512),
        zeros(hidden, 576),
        zeros(rank),
        zeros(512),
        zeros(tokens, 64),
        zeros(tokens, 64),
        zeros(blocks, block, 1, 512),
        zeros(blocks, block, 1, 64),
        cache_index=torch.arange(tokens) if index is None else index,
    )


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("N", dict(heads=3)),
        ("He", dict(hidden=6000)),
        ("Hcq", dict(rank=512)),
        ("D", dict(dim=64)),
        ("block", dict(block=32)),
        ("index", dict(index=torch.tensor([0, 32]))),
    ],
)
def test_illegal_prologs_name_the_check(torch_npu, check, changes):
    with pytest.raises(RuntimeError, match=rf"mla_prolog_v3\.{check} "):
        prolog(torch_npu, **changes)


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("mode", dict(sparse_mode=1)),
        ("count", dict(sparse_count=3000)),
        ("layout", dict(layout_key="TND")),
    ],
)
def test_illegal_indexers_name_the_check(torch_npu, check, changes):
    q, k, w = torch.zeros(1, 2, 4, 128), torch.zeros(1, 5, 1, 128), torch.zeros(1, 2, 4)
    with pytest.raises(RuntimeError, match=rf"lightning_indexer\.{check} "):
        torch_npu.npu_lightning_indexer(q.half(), k.half(), w.half(), **changes)

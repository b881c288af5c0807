"""Routing to experts and back against loops over experts in PyTorch."""

import pytest
import torch
from draws import CASES, FLOATS, HALVES, Draw, close, quantised, refused
from tokamak.npu import library

pytestmark = pytest.mark.filterwarnings("ignore:npu_")


def reference(name, **given):
    """The C++ reference without limits: forms that op-plugin documents and the wheel does not."""
    operator = library.operators()[name]
    tensors = [given.pop(t["name"], None) for t in operator.tensors]
    return operator.run(tensors, given)


def ids_of(draw, tokens, k, experts):
    """Random experts; sometimes one takes all, or few have any."""
    low, high = draw.one_of(((0, experts), (0, experts), (0, 1), (experts - 1, experts)))
    return draw.integers(tokens, k, low=low, high=high)


def sort_pairs(ids, first, last):
    """Pairs whose expert is in range, by expert, stable."""
    flat = ids.flatten().tolist()
    return sorted((p for p in range(len(flat)) if first <= flat[p] < last), key=lambda p: flat[p])


def counts_of(ids, first, last):
    return torch.bincount(ids.flatten(), minlength=last)[first:last]


@pytest.mark.parametrize("quant", [-1, 0, 1])
def test_init_routing_v2(torch_npu, quant):
    draw = Draw(10 + quant)
    for _ in range(CASES):
        tokens, k, experts, h = (draw.size(1, n) for n in (7, 4, 9, 12))
        dtype = draw.one_of(FLOATS if quant != -1 else (*FLOATS, torch.int8))
        x = draw.tensor(tokens, h, dtype=dtype, scale=20 if dtype == torch.int8 else 1)
        ids = ids_of(draw, tokens, k, experts)
        first = draw.size(0, experts - 1)
        last = draw.size(first + 1, experts)
        if draw.maybe(True):
            first, last = 0, experts
        kind, scatter = draw.one_of((1, 2, 0)), draw.size(0, 1)
        active = draw.one_of((-1, 0, tokens * k, draw.size(1, tokens * k)))
        scale = offset = None
        if quant == -1:
            scale = draw.maybe(draw.tensor(tokens))
        elif quant == 0:
            scale, offset = draw.tensor(1, scale=20), draw.tensor(1, scale=5)
        else:
            scale = draw.one_of((None, draw.tensor(1, h), draw.tensor(last - first, h)))
        given = {
            "scale": scale,
            "offset": offset,
            "active_num": active,
            "expert_num": experts,
            "expert_tokens_num_type": kind,
            "expert_tokens_num_flag": True,
            "quant_mode": quant,
            "active_expert_range": [first, last],
            "row_idx_type": scatter,
        }
        if quant == 0 or kind == 0:
            refused(torch_npu.npu_moe_init_routing_v2, "moe_init_routing_v2.", x, ids, **given)
            result = reference("npu_moe_init_routing_v2", x=x, expert_idx=ids, **given)
        else:
            result = torch_npu.npu_moe_init_routing_v2(x, ids, **given)
        rows, index, counts, row_scale = result
        pairs = sort_pairs(ids, first, last)
        room = tokens * k if active <= 0 else min(active, tokens * k)
        assert rows.shape == (room, h)
        expected_index = torch.full((tokens * k,), -1, dtype=torch.int32)
        for place, p in enumerate(pairs):
            expected_index[place if scatter else p] = p if scatter else place
        assert torch.equal(index, expected_index)
        each = counts_of(ids, first, last)
        if kind == 2:
            pairs_of = [[first + e, n] for e, n in enumerate(each.tolist()) if n > 0]
            pairs_of += [[0, 0]] * (experts - len(pairs_of))
            each = torch.tensor(pairs_of)
        elif kind == 0:
            each = each.cumsum(0)
        assert torch.equal(counts, each)
        for place, p in enumerate(pairs[:room]):
            row = x[p // k]
            if quant == -1:
                assert torch.equal(rows[place], row)
                if scale is not None:
                    assert row_scale[place] == scale[p // k]
            elif quant == 0:
                quantised(rows[place], (row.float() * scale + offset).clamp(-128, 127))
            else:
                v = row.float()
                if scale is not None:
                    v = v * scale[0 if len(scale) == 1 else ids.flatten()[p] - first]
                expected = v.abs().max() / 127
                close(row_scale[place], expected)
                quantised(rows[place], v / expected if expected > 0 else v)
        assert not rows[len(pairs) :].any()


def test_init_routing_v2_with_room_for_few(torch_npu):
    draw = Draw(20)
    for _ in range(CASES):
        tokens, k, experts, h = (draw.size(1, n) for n in (7, 4, 6, 8))
        capacity = draw.size(1, 6)
        x, ids = draw.tensor(tokens, h), ids_of(draw, tokens, k, experts)
        given = {
            "expert_capacity": capacity,
            "expert_num": experts,
            "drop_pad_mode": 1,
            "expert_tokens_num_type": 1,
            "expert_tokens_num_flag": True,
        }
        rows, index, counts, _ = reference("npu_moe_init_routing_v2", x=x, expert_idx=ids, **given)
        expected = torch.zeros(experts, capacity, h)
        expected_index = torch.full((tokens * k,), -1, dtype=torch.int32)
        for e in range(experts):
            for i, p in enumerate(sort_pairs(ids, e, e + 1)[:capacity]):
                expected[e, i] = x[p // k]
                expected_index[p] = e * capacity + i
        assert torch.equal(rows, expected) and torch.equal(index, expected_index)
        assert torch.equal(counts, counts_of(ids, 0, experts))
    refused(torch_npu.npu_moe_init_routing_v2, "moe_init_routing_v2.drop", x, ids, **given)


def test_init_routing_v2_refuses(torch_npu):
    x, ids = torch.ones(3, 8), torch.zeros(3, 2, dtype=torch.int32)
    given = {"expert_num": 4, "expert_tokens_num_type": 1, "expert_tokens_num_flag": True}
    call = torch_npu.npu_moe_init_routing_v2

    def no(check, **changed):
        refused(call, check, x, ids, **(given | changed))

    no("moe_init_routing_v2.count_type", expert_tokens_num_type=0)
    no("moe_init_routing_v2.flag", expert_tokens_num_flag=False)
    no("moe_init_routing_v2.experts", expert_num=10241)
    no("moe_init_routing_v2.experts", expert_num=5121, expert_tokens_num_type=2)
    no("moe_init_routing_v2.quant", quant_mode=0, scale=torch.ones(1), offset=torch.ones(1))
    no("active_expert_range", active_expert_range=[2, 2])
    no("active_expert_range", active_expert_range=[0, 5])
    no("quant_mode", quant_mode=3)
    no("scale", scale=torch.ones(2))
    refused(call, "expert_idx", x, ids.long(), **given)
    refused(call, "out of range", x, ids + 4, **given)


def test_init_routing(torch_npu):
    draw = Draw(21)
    for _ in range(CASES):
        tokens, k, h = draw.size(1, 7), draw.size(1, 4), draw.size(1, 12)
        x = draw.tensor(tokens, h, dtype=draw.one_of(FLOATS))
        ids = ids_of(draw, tokens, k, 5)
        rows = torch.arange(tokens * k, dtype=torch.int32).view(k, tokens).t()
        active = draw.size(0, tokens + 2)
        out, index, experts = torch_npu.npu_moe_init_routing(x, rows, ids, active)
        order = ids.flatten().sort(stable=True).indices
        source = rows.flatten()[order].long()
        assert torch.equal(out, x[source[: min(tokens, active) * k] % tokens])
        assert torch.equal(index[source], torch.arange(tokens * k, dtype=torch.int32))
        assert torch.equal(experts, ids.flatten()[order])
    refused(torch_npu.npu_moe_init_routing, "row_idx", x, rows[:, :0], ids, 1)


def test_compute_expert_tokens(torch_npu):
    draw = Draw(22)
    for _ in range(CASES):
        experts = draw.size(1, 12)
        ids = draw.integers(draw.size(0, 30), low=0, high=experts).sort().values
        totals = torch_npu.npu_moe_compute_expert_tokens(ids, experts)
        assert torch.equal(totals, torch.bincount(ids, minlength=experts).cumsum(0).int())
    call = torch_npu.npu_moe_compute_expert_tokens
    refused(call, "moe_compute_expert_tokens.n", ids, 2049)
    refused(call, "unsorted", torch.tensor([1, 0], dtype=torch.int32), 2)
    refused(call, "out of range", torch.tensor([2], dtype=torch.int32), 2)


def test_re_routing(torch_npu):
    draw = Draw(23)
    for _ in range(CASES):
        ranks, experts, h = draw.size(1, 5), draw.size(1, 5), draw.size(1, 10)
        counts = draw.integers(
            ranks, experts, low=0, high=4, dtype=draw.one_of((torch.int32, torch.int64))
        )
        if not counts.any():
            counts[0, 0] = 1
        n = int(counts.sum())
        tokens = draw.tensor(n, h, dtype=draw.one_of((*HALVES, torch.int8)), scale=20)
        scales = draw.maybe(draw.tensor(n, strided=False))
        out, out_scales, index, each = torch_npu.npu_moe_re_routing(
            tokens, counts, per_token_scales=scales
        )
        owner = torch.arange(ranks * experts).repeat_interleave(counts.flatten())
        order = (owner % experts).sort(stable=True).indices
        assert torch.equal(out, tokens[order]) and torch.equal(index, order.int())
        assert torch.equal(each, counts.sum(0).to(counts.dtype))
        if scales is not None:
            assert torch.equal(out_scales, scales[order])
    call = torch_npu.npu_moe_re_routing
    refused(call, "moe_re_routing.sum", tokens, counts + 1)
    refused(call, "moe_re_routing.H", torch.ones(1, 16384).half(), torch.ones(1, 1).int())
    refused(call, "idx_type", tokens, counts, idx_type=1)
    refused(call, "f16, bf16 or int8", tokens.float(), counts)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_finalize_routing(torch_npu, mode):
    draw = Draw(30 + mode)
    for _ in range(CASES // 2):
        tokens, k, h, experts = (draw.size(1, n) for n in (6, 4, 10, 5))
        dtype = draw.one_of(FLOATS)
        if mode % 2:
            capacity = draw.size(1, 5)
            rows = draw.tensor(experts, capacity, h, dtype=dtype)
            places = draw.integers(tokens * k, low=-1, high=experts * capacity)
        else:
            rows = draw.tensor(tokens * k, h, dtype=dtype)
            places = torch.randperm(tokens * k).int()
        skip1 = draw.maybe(draw.tensor(tokens, h, dtype=dtype))
        skip2 = draw.maybe(draw.tensor(tokens, h, dtype=dtype)) if skip1 is not None else None
        bias = draw.maybe(draw.tensor(experts, h, dtype=dtype))
        scales = (
            draw.tensor(tokens, k, dtype=dtype)
            if k > 1
            else draw.maybe(draw.tensor(tokens, 1, dtype=dtype))
        )
        owner = draw.integers(tokens, k, low=0, high=experts)
        y = torch_npu.npu_moe_finalize_routing(
            rows, skip1, skip2, bias, scales, places, owner, drop_pad_mode=mode
        )
        flat = torch.cat([rows.reshape(-1, h).float(), torch.zeros(1, h)])  # -1: the zeros
        at = places.view(tokens, k) if mode >= 2 else places.view(k, tokens).t()
        part = flat[at.long()]
        if bias is not None:
            part = part + bias.float()[owner.long()]
        if scales is not None:
            part = part * scales.float()[..., None]
        expected = part.sum(1)
        for skip in (skip1, skip2):
            expected = expected if skip is None else expected + skip.float()
        close(y, expected.to(dtype))
    call = torch_npu.npu_moe_finalize_routing
    other = torch.zeros(tokens, h, dtype=dtype)
    refused(call, "moe_finalize_routing.skip", rows, None, other, None, scales, places, owner, mode)
    refused(call, "moe_finalize_routing.drop", rows, None, None, None, scales, places, owner, 4)
    refused(call, "skip1", rows, other[:, :0], None, None, scales, places, owner, mode)
    refused(
        call,
        "export_for_source_row",
        rows,
        None,
        None,
        torch.zeros(1, h, dtype=dtype),
        scales,
        places,
        None,
        mode,
    )


def test_token_permute_and_back(torch_npu):
    draw = Draw(40)
    for _ in range(CASES):
        tokens, k, h = draw.size(1, 7), draw.size(1, 4), draw.size(1, 10)
        dtype = draw.one_of(FLOATS)
        x = draw.tensor(tokens, h, dtype=dtype)
        ids = draw.integers(tokens, k, low=0, high=5, dtype=draw.one_of((torch.int32, torch.int64)))
        ids = ids[:, 0] if k == 1 and draw.maybe(True) else ids
        keep = draw.one_of((None, 0, draw.size(1, tokens * k + 2), -draw.size(1, tokens * k)))
        rows, index = torch_npu.npu_moe_token_permute(x, ids, keep)
        order = ids.flatten().sort(stable=True).indices
        kept = order if not keep else order[:keep]
        assert torch.equal(rows, x[kept // k])
        assert torch.equal(index, order.argsort().int())
        probs = draw.tensor(tokens, k, dtype=dtype) if k > 1 else None
        y = torch_npu.npu_moe_token_unpermute(rows, index, probs)
        there = (index < len(rows)).view(tokens, k)
        w = there.float() if probs is None else there * probs.float()
        close(
            y,
            (x.float() * w.sum(1, keepdim=True)).to(dtype)
            if k == 1
            else torch.einsum("th,tk->th", x.float(), w).to(dtype),
        )
    refused(torch_npu.npu_moe_token_permute, "padded_mode", x, ids, padded_mode=True)
    probs = torch.ones(1, 513)
    refused(
        torch_npu.npu_moe_token_unpermute,
        "moe_token_unpermute.k",
        torch.ones(513, 2),
        torch.arange(513).int(),
        probs,
    )


def test_update_expert(torch_npu):
    draw = Draw(41)
    for _ in range(CASES):
        tokens, k, experts, copies = (
            draw.size(1, 6),
            draw.size(1, 4),
            draw.size(1, 6),
            draw.size(1, 4),
        )
        table = draw.integers(experts, 1 + copies, low=0, high=50)
        table[:, 0] = draw.integers(experts, low=1, high=copies + 1)
        dtype = draw.one_of((torch.int32, torch.int64))
        ids = draw.integers(tokens, k, low=0, high=experts, dtype=dtype)
        mode, world = draw.size(0, 1), draw.size(2, 8)
        rank = draw.size(0, world - 1)
        scales = draw.maybe(draw.tensor(tokens, k, low=0, high=1).sort(descending=True).values)
        threshold = None if scales is None else draw.tensor(k, low=0, high=0.5)
        active = None if scales is None else draw.maybe(torch.arange(tokens) < draw.size(0, tokens))
        found, mask = torch_npu.npu_moe_update_expert(
            ids,
            table,
            expert_scales=scales,
            pruning_threshold=threshold,
            active_mask=active,
            local_rank_id=rank,
            world_size=world,
            balance_mode=mode,
        )
        for t in range(tokens):
            for j in range(k):
                n = int(table[ids[t, j], 0])
                at = t % n if mode == 1 else rank // -(-world // n)
                assert found[t, j] == table[ids[t, j], 1 + at]
        expected = torch.ones(tokens, k, dtype=torch.bool)
        if scales is not None:
            expected = scales.sum(1, keepdim=True) * threshold < scales
        if active is not None:
            expected = expected & active[:, None]
        assert (mask != expected).sum() <= 1  # a sum on the edge
    call = torch_npu.npu_moe_update_expert
    refused(call, "moe_update_expert.ws", ids, table, local_rank_id=0, world_size=769)
    refused(call, "moe_update_expert.mode", ids, table, balance_mode=2)
    refused(call, "together", ids, table, expert_scales=torch.ones(tokens, k), balance_mode=1)

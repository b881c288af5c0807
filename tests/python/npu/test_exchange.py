"""Experts in parallel over gloo: dispatch and combine of two and four ranks against the loop over
experts, and products with collectives against the whole."""

import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

H = 64  # a multiple of 32


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _rank(rank, world, port, body):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ["TOKAMAK_NPU_SOC"] = "a2"
    import tokamak.npu  # noqa: F401
    import torch_npu

    torch.set_num_threads(1)
    dist.init_process_group("hccl", rank=rank, world_size=world)
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("npu"))
    body(torch_npu, rank, world, backend.get_hccl_comm_name(rank))
    dist.barrier()
    dist.destroy_process_group()


def _everywhere(body, world):
    mp.spawn(_rank, args=(world, _free_port(), body), nprocs=world)


def _tokens(seed, rank, tokens, k, experts, skew=False):
    g = torch.Generator().manual_seed(1000 * seed + rank)
    x = torch.randn(tokens, H, generator=g).bfloat16()
    ids = torch.stack([torch.randperm(experts, generator=g)[:k] for _ in range(tokens)]).int()
    if skew:  # one expert takes all
        ids = torch.arange(k, dtype=torch.int32).expand(tokens, k).contiguous()
    return x, ids, torch.rand(tokens, k, generator=g)


def _weights(experts):
    g = torch.Generator().manual_seed(7)
    return torch.randn(experts, H, generator=g), torch.randn(experts, H, generator=g)


def _loop(x, ids, weights, scale, shift):
    """Expert e is x * scale[e] + shift[e], rounded as its result is."""
    rows = (x.float()[:, None] * scale[ids.long()] + shift[ids.long()]).bfloat16()
    return (rows.float() * weights[..., None]).sum(1)


def _experts(rows, counts, first, scale, shift):
    out, begin = torch.zeros(rows.shape, dtype=torch.bfloat16), 0
    for e, n in enumerate(counts.tolist(), start=first):
        out[begin : begin + n] = (rows[begin : begin + n].float() * scale[e] + shift[e]).bfloat16()
        begin += n
    return out


def _round_trip(torch_npu, rank, world, name):
    experts = 4 * world
    local = experts // world
    scale, shift = _weights(experts)
    for seed, (tokens, k, quant, v1) in enumerate(
        [(5, 3, 0, False), (1, 1, 0, True), (7, 2, 2, False), (4, 4, 2, True), (6, 2, 0, False)]
    ):
        x, ids, weights = _tokens(seed, rank, tokens, k, experts, skew=seed == 4)
        mask = torch.arange(tokens) < tokens - rank if seed == 0 else None
        group = {
            "group_ep": name,
            "ep_world_size": world,
            "ep_rank_id": rank,
            "moe_expert_num": experts,
            "x_active_mask": mask,
        }
        send, back = (
            (torch_npu.npu_moe_distribute_dispatch, torch_npu.npu_moe_distribute_combine)
            if v1
            else (torch_npu.npu_moe_distribute_dispatch_v2, torch_npu.npu_moe_distribute_combine_v2)
        )
        rows, scales, assist, counts, ep_counts, tp_counts, expanded = send(
            x, ids, expert_scales=weights, quant_mode=quant, **group
        )
        room = tokens * world * min(local, k)
        assert rows.shape == (room, H) and scales.shape == expanded.shape == (room,)
        assert assist.shape == ((tokens * k,) if v1 else (room * 128,))
        assert counts.shape == (local,) and tp_counts.shape == (0,)
        assert len(ep_counts) >= local * world and ep_counts[local * world - 1] == counts.sum()
        assert rows.dtype == (torch.int8 if quant else torch.bfloat16)
        n = int(counts.sum())
        real = rows.float() * scales[:, None] if quant else rows.float()
        # What should have come: of each of my experts the tokens of all ranks, in order.
        expected = []
        for e in range(rank * local, (rank + 1) * local):
            for r in range(world):
                other, chosen, w = _tokens(seed, r, tokens, k, experts, skew=seed == 4)
                alive = tokens - r if seed == 0 else tokens
                expected += [
                    (other[t].float(), w[t, j])
                    for t in range(alive)
                    for j in range(k)
                    if chosen[t, j] == e
                ]
        assert n == len(expected)
        for i, (row, w) in enumerate(expected):
            assert (real[i] - row).abs().max() <= (row.abs().max() / 254 + 1e-6 if quant else 0)
            assert expanded[i] == w
        assert not rows[n:].any()
        done = _experts(real.bfloat16(), counts, rank * local, scale, shift)
        info = {"expand_idx" if v1 else "assist_info_for_combine": assist}
        y = back(done, ids, ep_send_counts=ep_counts, expert_scales=weights,
                 expand_scales=expanded, **info, **group)  # fmt: skip
        expected = _loop(x, ids, weights, scale, shift)
        if mask is not None:
            expected[~mask] = 0
        torch.testing.assert_close(
            y.float(), expected, rtol=2e-2, atol=0.25 if quant else 2e-2 * expected.abs().max()
        )
        if not v1:
            _altered(back, done, ids, ep_counts, weights, expanded, assist, group)


def _altered(back, done, ids, ep_counts, weights, expanded, assist, group):
    """Every rank is refused before it exchanges anything, so none waits for another."""
    for word in (0, 3, 6, 77, len(assist) - 1):
        changed = assist.clone()
        changed[word] += 1
        with pytest.raises(RuntimeError, match="assist info"):
            back(done, ids, changed, ep_counts, weights, expand_scales=expanded, **group)


@pytest.mark.parametrize("world", [2, 4])
def test_dispatch_and_combine(torch_npu, world):
    _everywhere(_round_trip, world)


def _mismatch(torch_npu, rank, world, name):
    x, ids, weights = _tokens(0, rank, 4, 2, 8)
    group = {"group_ep": name, "ep_world_size": world, "ep_rank_id": rank, "moe_expert_num": 8}
    out = torch_npu.npu_moe_distribute_dispatch_v2(x, ids, expert_scales=weights, **group)
    other = (ids + 1) % 8
    with pytest.raises(RuntimeError, match="gets back token"):
        torch_npu.npu_moe_distribute_combine_v2(
            out[0], other, out[2], out[4], weights, expand_scales=out[6], **group
        )
    dist.barrier()
    with pytest.raises(RuntimeError, match="no HCCL communicator"):
        torch_npu.npu_moe_distribute_dispatch_v2(x, ids, **(group | {"group_ep": "lost"}))
    with pytest.raises(RuntimeError, match="the call is for rank"):
        torch_npu.npu_moe_distribute_dispatch_v2(x, ids, **(group | {"ep_rank_id": 1 - rank}))
    ids[0] = ids[0, 0]
    with pytest.raises(RuntimeError, match="twice for token 0"):
        torch_npu.npu_moe_distribute_dispatch_v2(x, ids, **group)


def test_what_does_not_belong_together_is_refused(torch_npu):
    _everywhere(_mismatch, 2)


def _products(torch_npu, rank, world, name):
    g = torch.Generator().manual_seed(3)
    x = torch.randn(world, 4 * world, 256, generator=g).bfloat16()
    w = (torch.randn(world, 256, 8, generator=g) / 16).bfloat16()
    parts = x.float() @ w.float()
    total = parts.sum(0)
    near = {"rtol": 2e-2, "atol": 5e-2}
    y = torch_npu.npu_mm_all_reduce_base(x[rank], w[rank], name)
    torch.testing.assert_close(y.float(), total, **near)
    y = torch_npu.npu_mm_reduce_scatter_base(x[rank], w[rank], name, world)
    torch.testing.assert_close(y.float(), total.chunk(world)[rank], **near)
    y, gathered = torch_npu.npu_all_gather_base_mm(x[rank], w[rank], name, world)
    assert torch.equal(gathered, x.flatten(0, 1))
    torch.testing.assert_close(y.float(), x.flatten(0, 1).float() @ w[rank].float(), **near)


def test_products_with_collectives(torch_npu):
    _everywhere(_products, 2)


def _grouped(torch_npu, rank, world, name):
    """The limits ask for eight ranks or more: below them, with two."""
    from tokamak.npu.composed import COMPOSED

    def unlimited():
        raise AssertionError("the reference of one rank")

    unlimited.check = lambda **given: None
    e, k, n = 2, 8, 6
    g = torch.Generator().manual_seed(5)
    counts = torch.randint(0, 4, (world, world, e), generator=g)  # [from, to, expert]
    rows = [torch.randn(int(counts[r].sum()), k, generator=g).bfloat16() for r in range(world)]
    weight = torch.randn(world, e, k, n, generator=g).bfloat16()
    given = {
        "gmm_weight": weight[rank].transpose(1, 2).contiguous(),
        "hcom": name,
        "ep_world_size": world,
        "mm_x": rows[rank],
        "mm_weight": weight[0, 0],
        "trans_gmm_weight": True,
        "trans_mm_weight": False,
        "permute_out_flag": True,
    }
    to, of = counts[rank].flatten().tolist(), counts[:, rank].flatten().tolist()
    y, shared, permuted = COMPOSED["npu_alltoallv_gmm"](
        unlimited, gmm_x=rows[rank], send_counts=to, recv_counts=of, **given
    )
    torch.testing.assert_close(
        shared.float(), rows[rank].float() @ weight[0, 0].float(), rtol=2e-2, atol=2e-2
    )
    begins = [counts[r].flatten().cumsum(0) - counts[r].flatten() for r in range(world)]
    parts = [
        (i, rows[r][int(begins[r][rank * e + i]) :][: int(counts[r, rank, i])])
        for i in range(e)
        for r in range(world)
    ]
    assert torch.equal(permuted, torch.cat([p for _, p in parts]))
    expected = torch.cat([p.float() @ weight[rank, i].float() for i, p in parts])
    torch.testing.assert_close(y.float(), expected, rtol=2e-2, atol=2e-2)
    back, _ = COMPOSED["npu_gmm_alltoallv"](
        unlimited, gmm_x=permuted, send_counts=of, recv_counts=to, **given
    )
    owner = torch.arange(world * e).repeat_interleave(counts[rank].flatten())
    mine = torch.stack(
        [
            v.float() @ weight.flatten(0, 1)[o].float()
            for v, o in zip(rows[rank], owner, strict=True)
        ]
    )
    torch.testing.assert_close(back.float(), mine, rtol=2e-2, atol=2e-2)


@pytest.mark.filterwarnings("ignore:npu_")
def test_grouped_products_with_an_exchange(torch_npu):
    _everywhere(_grouped, 2)

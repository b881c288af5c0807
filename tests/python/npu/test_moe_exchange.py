"""The halves of dispatch and combine for all ranks in one process: shared and special experts,
masks, quantisation; the exchange between them is a concatenation."""

import pytest
import torch
from draws import CASES, HALVES, Draw
from tokamak.npu import library


def run(name, given, **changed):
    operator = library.operators()[name]
    given = given | changed
    tensors = [given.get(t["name"]) for t in operator.tensors]
    return operator.run(
        tensors, {a["name"]: given[a["name"]] for a in operator.attrs if a["name"] in given}
    )


def exchange(parts, counts, to):
    """Rank `to`'s share of what each rank sends: parts[r] in rows, counts[r] [ranks, columns]."""
    each = [c.sum(1).tolist() for c in counts]
    return torch.cat([p[: sum(n)].split(n)[to] for p, n in zip(parts, each, strict=True)])


def call_of(draw, world):
    shared = draw.size(1, 2) if world > 2 and draw.maybe(True) else 0
    routed = (world - shared) * draw.size(1, 3)
    zero, copied, constant = (draw.size(0, 2) for _ in range(3))
    return {
        "ep_world_size": world,
        "moe_expert_num": routed,
        "shared_expert_num": 1 if shared else draw.size(0, 1),
        "shared_expert_rank_num": shared,
        "quant_mode": draw.one_of((0, 0, 2)),
        "comm_quant_mode": draw.one_of((0, 0, 2)),
        "zero_expert_num": zero,
        "copy_expert_num": copied,
        "const_expert_num": constant,
    }


def test_all_ranks(torch_npu):
    draw = Draw(1)
    for _ in range(CASES):
        world, tokens, k, h = draw.size(1, 4), draw.size(1, 5), draw.size(1, 3), draw.size(1, 8)
        call = call_of(draw, world)
        routed, special = call["moe_expert_num"], call["moe_expert_num"] + call["zero_expert_num"]
        total = special + call["copy_expert_num"] + call["const_expert_num"]
        k, dtype = min(k, total), draw.one_of(HALVES)
        shared = call["shared_expert_rank_num"]
        local = routed // (world - shared)
        quant = call["quant_mode"] == 2
        smooth = (
            draw.maybe(draw.tensor(routed + (shared > 0), h, low=0.5, high=2)) if quant else None
        )
        constants = {
            name: draw.tensor(call["const_expert_num"], h, dtype=dtype, strided=False)
            for name in ("const_expert_alpha_1", "const_expert_alpha_2", "const_expert_v")
        } if call["const_expert_num"] else {}  # fmt: skip
        ranks = []
        for r in range(world):
            ids = torch.stack([torch.randperm(total)[:k] for _ in range(tokens)]).int()
            mask = draw.one_of(
                (
                    None,
                    torch.arange(tokens) < draw.size(0, tokens),
                    draw.integers(tokens, k, low=0, high=2).bool(),
                )
            )
            ranks.append(call | {
                "ep_rank_id": r,
                "x": draw.tensor(tokens, h, dtype=dtype),
                "expert_ids": ids,
                "x_active_mask": mask,
                "expert_scales": draw.tensor(tokens, k),
                "scales": smooth,
            })  # fmt: skip
        sent = [run("_moe_dispatch_send", g) for g in ranks]
        counts = [s[4] for s in sent]
        # Expert e multiplies by 1 + e; shared ones by -1.
        back, info, back_counts = [], [], []
        for r in range(world):
            arrived = {
                name: exchange([s[i] for s in sent], counts, r)
                for i, name in enumerate(("rows", "row_scales", "info", "weights"))
            }
            got = run("_moe_dispatch_receive", ranks[r], weighted=True,
                      counts=torch.stack([c[r] for c in counts]), **arrived)  # fmt: skip
            rows, scales, assist, each, totals = got[:5]
            n = int(each.sum())
            assert totals[world * len(each) - 1] == n and not rows[n:].any()
            real = rows.float() * scales[:, None] if quant else rows.float()
            first = -2 if r < shared else (r - shared) * local
            owner = first + torch.arange(len(each)).repeat_interleave(each)
            if smooth is not None:  # taken out again
                line = 0 if r < shared else owner + (shared > 0)
                real[:n] /= smooth[line]
            done = torch.zeros(rows.shape, dtype=dtype)
            done[:n] = (real[:n] * (1 + owner)[:, None]).to(dtype)
            out = run(
                "_moe_combine_send",
                ranks[r],
                expand_x=done,
                ep_send_counts=totals,
                assist_info=assist,
            )
            back.append(out[0])
            info.append(out[1])
            back_counts.append(out[2])
            if n > 0:
                changed = assist.clone()
                changed[draw.size(0, len(assist) - 1)] ^= 1 << draw.size(0, 30)
                with pytest.raises(RuntimeError, match="assist info"):
                    run(
                        "_moe_combine_send",
                        ranks[r],
                        expand_x=done,
                        ep_send_counts=totals,
                        assist_info=changed,
                    )
        for r, given in enumerate(ranks):
            more = draw.maybe(draw.tensor(tokens, h, dtype=dtype))
            (y,) = run("_moe_combine_receive", given, rows=exchange(back, back_counts, r),
                       info=exchange(info, back_counts, r), ori_x=given["x"], shared_expert_x=more,
                       **constants)  # fmt: skip
            x, ids, mask = given["x"].float(), given["expert_ids"], given["x_active_mask"]
            part = torch.ones(tokens, k, dtype=torch.bool)
            if mask is not None:
                part = mask if mask.dim() == 2 else mask[:, None].expand(tokens, k)
            expected = torch.zeros(tokens, h) if more is None else more.float()
            for t in range(tokens):
                if shared and part[t].any():
                    expected[t] -= x[t]
                for j in range(k):
                    e, w = int(ids[t, j]), given["expert_scales"][t, j]
                    if not part[t, j] or routed <= e < special:
                        continue
                    if e < routed:
                        expected[t] += w * (1 + e) * x[t]
                    elif e < special + call["copy_expert_num"]:
                        expected[t] += w * x[t]
                    else:
                        a, b, v = (
                            c[e - special - call["copy_expert_num"]].float()
                            for c in constants.values()
                        )
                        expected[t] += w * (a * x[t] + b * v)
            top = (1 + routed) * x.abs().max() * given["expert_scales"].abs().max() * k + 1
            steps = quant + (call["comm_quant_mode"] == 2)
            tolerance = top * (4 * steps / 127 if steps else 0.02)
            torch.testing.assert_close(y.float(), expected, rtol=2e-2, atol=float(tolerance))


def test_packed_rows_arrive_as_they_are(torch_npu):
    """int4, eight to an int32, of A2: rows are moved, not read, with the scale of their token."""
    draw = Draw(2)
    for _ in range(CASES):
        world, tokens, k = draw.size(1, 4), draw.size(1, 5), draw.size(1, 2)
        experts = 2 * world
        call = {"ep_world_size": world, "moe_expert_num": experts, "quant_mode": 0}
        ranks = []
        for r in range(world):
            x = draw.integers(tokens, 3, low=-(2**31), high=2**31 - 1)
            ids = torch.stack([torch.randperm(experts)[:k] for _ in range(tokens)]).int()
            scales = draw.tensor(tokens, strided=False)
            ranks.append(call | {"ep_rank_id": r, "x": x, "expert_ids": ids, "scales": scales})
        sent = [run("_moe_dispatch_send", g) for g in ranks]
        counts = [s[4] for s in sent]
        for r in range(world):
            arrived = {
                name: exchange([s[i] for s in sent], counts, r)
                for i, name in enumerate(("rows", "row_scales", "info", "weights"))
            }
            rows, scales, _, each, _ = run(
                "_moe_dispatch_receive",
                ranks[r],
                counts=torch.stack([c[r] for c in counts]),
                **arrived,
            )[:5]
            wanted = [
                (g["x"][t], g["scales"][t])
                for e in (2 * r, 2 * r + 1)
                for g in ranks
                for t in range(tokens)
                if e in g["expert_ids"][t]
            ]
            assert int(each.sum()) == len(wanted)
            for row, scale, (x, s) in zip(rows, scales, wanted, strict=False):
                assert torch.equal(row, x) and scale == s

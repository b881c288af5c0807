"""Gates of routed experts against their formulas in PyTorch."""

import pytest
import torch
from draws import CASES, FLOATS, Draw, close, refused

pytestmark = pytest.mark.filterwarnings("ignore:npu_")


def logits(draw, *shape, dtype):
    """Steps of a quarter: many ties, and scores whose order no rounding changes."""
    return draw.integers(*shape, low=-12, high=12).to(dtype) / 4


def best(scores, k):
    """The k largest, the lower index first among equals."""
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :k]


@pytest.mark.parametrize("version", ["", "_v2"])
def test_gating_softmax(torch_npu, version):
    draw = Draw(1)
    for _ in range(CASES):
        dtype = draw.one_of(FLOATS)
        shape = [draw.size(1, 6) for _ in range(draw.size(1, 2))]
        experts = draw.size(1, 40)
        k = draw.size(1, experts)
        x = logits(draw, *shape, experts, dtype=dtype)
        finished = draw.maybe(draw.integers(*shape, low=0, high=2).bool())
        if version == "":
            renorm, keep = 0, False
            y, ids, rows = torch_npu.npu_moe_gating_top_k_softmax(x, finished, k=k)
        else:
            renorm, keep = draw.size(0, 1), draw.one_of((True, False))
            y, ids, rows = torch_npu.npu_moe_gating_top_k_softmax_v2(
                x, k=k, finished=finished, renorm=renorm, output_softmax=keep
            )
        p = x.float().softmax(-1)
        expected = best(x.float(), k)
        weights = p.gather(-1, expected)
        if renorm:
            weights = weights / weights.sum(-1, keepdim=True)
        close(y, weights.to(dtype))
        if finished is not None:
            expected = torch.where(finished[..., None], experts, expected)
        assert torch.equal(ids, expected.int())
        if keep and not renorm:
            close(rows, p)
        else:
            tokens = y.numel() // k
            order = torch.arange(tokens * k, dtype=torch.int32).view(k, tokens).t()
            assert torch.equal(rows, order.reshape(y.shape))


def test_gating_softmax_refuses(torch_npu):
    x = torch.ones(2, 4)
    refused(torch_npu.npu_moe_gating_top_k_softmax, "moe_gating_top_k_softmax.k", x, k=5)
    refused(
        torch_npu.npu_moe_gating_top_k_softmax,
        "moe_gating_top_k_softmax.k",
        torch.ones(1, 2000),
        k=1025,
    )
    refused(
        torch_npu.npu_moe_gating_top_k_softmax_v2,
        "moe_gating_top_k_softmax_v2.k",
        torch.ones(1, 2000),
        k=1025,
    )
    refused(torch_npu.npu_moe_gating_top_k_softmax, "finished", x, torch.ones(3).bool(), k=1)
    refused(torch_npu.npu_moe_gating_top_k_softmax, "f16, bf16 or f32", x.double(), k=1)


def gate(x, bias, k, groups, top, two, sigmoid, scale, eps):
    s = x.float().sigmoid() if sigmoid else x.float().softmax(-1)
    choice = s if bias is None else s + bias.float()
    if groups > 1:
        grouped = choice.view(len(x), groups, -1)
        score = grouped.topk(2).values.sum(-1) if two else grouped.amax(-1)
        keep = torch.zeros_like(score, dtype=torch.bool).scatter(1, best(score, top), True)
        choice = torch.where(keep[..., None], grouped, -torch.inf).view(len(x), -1)
    ids = best(choice, k)
    y = s.gather(1, ids)
    if sigmoid:
        y = y / (y.sum(-1, keepdim=True) + eps)
    return y * scale, ids, s


def test_gating(torch_npu):
    draw, same = Draw(2), 0
    for _ in range(CASES):
        dtype = draw.one_of(FLOATS)
        groups, each = draw.size(1, 6), draw.size(3, 9)
        top = draw.size(1, groups)
        k = draw.size(1, each * top)
        x = logits(draw, draw.size(1, 6), groups * each, dtype=dtype)
        sigmoid, two = draw.one_of((True, False)), draw.one_of((True, False))
        scale, eps = draw.one_of((1.0, 2.5)), draw.one_of((1e-20, 0.5))
        bias = draw.maybe(draw.integers(groups * each, low=0, high=4).to(dtype) * 8)
        y, ids, out = torch_npu.npu_moe_gating_top_k(
            x,
            k,
            bias=bias,
            k_group=top,
            group_count=groups,
            group_select_mode=int(two),
            norm_type=int(sigmoid),
            out_flag=True,
            routed_scaling_factor=scale,
            eps=eps,
        )
        expected = gate(x, bias, k, groups, top, two, sigmoid, scale, eps)
        close(out, expected[2])
        # Scores that differ by rounding alone may change places: then weights are compared.
        assert all(len(set(row)) == k for row in ids.tolist())
        chosen = out if bias is None else out + bias.float()
        if groups == 1:
            close(chosen.gather(1, ids.long()), chosen.gather(1, expected[1]))
        if torch.equal(ids.long(), expected[1]):
            same += 1
            close(y, expected[0].to(dtype))
    assert same > CASES * 0.8


def test_gating_by_a_table_of_tokens(torch_npu):
    draw = Draw(3)
    for _ in range(500):
        tokens, experts, k = draw.size(1, 5), draw.size(3, 12), 2
        x = draw.tensor(tokens, experts)
        ids = draw.integers(tokens, low=0, high=7, dtype=torch.int64)
        table = torch.stack([torch.randperm(experts)[:k] for _ in range(7)]).int()
        y, chosen, _ = torch_npu.npu_moe_gating_top_k(
            x, k, input_ids=ids, tid2eid=table, norm_type=1
        )
        assert torch.equal(chosen, table[ids])
        s = x.sigmoid().gather(1, chosen.long())
        close(y, s / (s.sum(-1, keepdim=True) + 1e-20))


def test_gating_refuses(torch_npu):
    call, x = torch_npu.npu_moe_gating_top_k, torch.ones(2, 12)
    refused(call, "moe_gating_top_k.E", torch.ones(1, 2049), 1)
    refused(call, "moe_gating_top_k.g", x, 2, group_count=6, k_group=2)
    refused(call, "moe_gating_top_k.renorm", x, 2, renorm=1)
    refused(call, "moe_gating_top_k.g", x, 2, group_count=5)
    refused(call, "moe_gating_top_k.k", x, 5, group_count=4, k_group=1)
    refused(call, "moe_gating_top_k.kg", x, 2, group_count=3, k_group=4)
    refused(call, "moe_gating_top_k.k", x, 13)
    refused(call, "bias", x, 2, bias=torch.ones(11))
    refused(call, "together", x, 2, input_ids=torch.zeros(2, dtype=torch.int64))

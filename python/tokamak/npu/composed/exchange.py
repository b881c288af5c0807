"""Operators that exchange rows with other ranks: experts in parallel, products with collectives.

What a rank sends, and what it makes of what arrives, are operators of the C++ side (npu._moe_*);
here are the exchanges between them, over the process group that the call names.
"""

import torch
import torch.distributed as dist

from .. import hccl, library
from . import composed


def _run(name, given, **changed):
    """The results of an operator of the C++ side, its arguments taken by name."""
    operator = library.operators()[name]
    given = given | changed
    tensors = [given.get(t["name"]) for t in operator.tensors]
    attrs = {a["name"]: given[a["name"]] for a in operator.attrs if a["name"] in given}
    return operator.run(tensors, attrs)


def _group(name, size, rank=None):
    """The group of that name; its size, and this rank in it, are those of the call."""
    group = hccl.group(name)
    found = dist.get_world_size(group), dist.get_rank(group)
    wanted = size, found[1] if rank is None else rank
    if found != wanted:
        raise RuntimeError(
            f"the call is for rank {wanted[1]} of {wanted[0]}; the group {name!r} has this process "
            f"as rank {found[1]} of {found[0]}"
        )
    return group


def _exchange(t, send, receive, group):
    """The first sum(send) rows of t go to the ranks in turn; what they sent here comes back."""
    width = t.shape[1:].numel()
    rows = t[: sum(send)].reshape(sum(send), width).contiguous()
    out = rows.new_empty(sum(receive), width)
    if width > 0:  # as bytes: gloo does not know every dtype
        dist.all_to_all_single(
            out.view(torch.uint8), rows.view(torch.uint8), receive, send, group=group
        )
    return out.reshape(sum(receive), *t.shape[1:])


def _exchange_counts(counts, group):
    """counts [ranks, n]: row r goes to rank r; the answer has what each rank sent here."""
    out = torch.empty_like(counts)
    dist.all_to_all_single(out, counts.contiguous(), group=group)
    return out, counts.sum(1).tolist(), out.sum(1).tolist()


# ---- experts in parallel


def _dispatch(reference, given):
    if given["ep_world_size"] == 1:
        return reference(**given)
    reference.check(**given)
    group = _group(given["group_ep"], given["ep_world_size"], given["ep_rank_id"])
    *packet, counts, expand_idx = _run("_moe_dispatch_send", given)
    counts, send, receive = _exchange_counts(counts, group)
    names = ("rows", "row_scales", "info", "weights")
    arrived = {n: _exchange(t, send, receive, group) for n, t in zip(names, packet, strict=True)}
    weighted = given["expert_scales"] is not None
    results = _run("_moe_dispatch_receive", given, counts=counts, weighted=weighted, **arrived)
    return results, expand_idx


@composed("npu_moe_distribute_dispatch_v2")
def dispatch_v2(reference, **given):
    results = _dispatch(reference, given)
    return results if given["ep_world_size"] == 1 else tuple(results[0])


@composed("npu_moe_distribute_dispatch")
def dispatch(reference, **given):
    results = _dispatch(reference, given)
    if given["ep_world_size"] == 1:
        return results
    (expand_x, dynamic_scales, _, *rest), expand_idx = results
    return expand_x, dynamic_scales, expand_idx, *rest


def _combine(given, assist, expand_idx):
    group = _group(given["group_ep"], given["ep_world_size"], given["ep_rank_id"])
    rows, info, counts = _run("_moe_combine_send", given, assist_info=assist)
    _, send, receive = _exchange_counts(counts, group)
    back = {"rows": _exchange(rows, send, receive, group), "info": None}
    if assist is not None:
        back["info"] = _exchange(info, send, receive, group)
    return _run("_moe_combine_receive", given, expand_idx=expand_idx, **back)[0]


@composed("npu_moe_distribute_combine_v2")
def combine_v2(reference, **given):
    if given["ep_world_size"] == 1:
        return reference(**given)
    reference.check(**given)
    return _combine(given, given["assist_info_for_combine"], None)


@composed("npu_moe_distribute_combine")
def combine(reference, **given):
    if given["ep_world_size"] == 1:
        return reference(**given)
    reference.check(**given)
    return _combine(given, None, given["expand_idx"])


@composed("npu_moe_distribute_combine_add_rms_norm")
def combine_add_rms_norm(reference, **given):
    if given["ep_world_size"] == 1:
        return reference(**given)
    reference.check(**given)
    y = _combine(given, given["expand_idx"], None).unsqueeze(1)
    named = {"x1": y, "x2": given["residual_x"], "gamma": given["gamma"]}
    return tuple(_run("npu_add_rms_norm", named, epsilon=given["norm_eps"]))


# ---- products with a collective


def _sum(t, group):
    """The sum over the ranks, in f32, rounded once."""
    total = t.float()
    dist.all_reduce(total, group=group)
    return total.to(t.dtype)


@composed("npu_mm_all_reduce_base")
def mm_all_reduce_base(reference, **given):
    return _sum(reference(**given), hccl.group(given["hcom"]))


def _gather(t, group):
    parts = [torch.empty_like(t) for _ in range(dist.get_world_size(group))]
    dist.all_gather([p.view(torch.uint8) for p in parts], t.view(torch.uint8), group=group)
    return torch.cat(parts)


@composed("npu_all_gather_base_mm")
def all_gather_base_mm(reference, **given):
    if given["world_size"] == 1:
        return reference(**given)
    reference.check(**given)
    group = _group(given["hcom"], given["world_size"])
    for name in ("input", "x1_scale"):
        if given[name] is not None:
            given[name] = _gather(given[name].contiguous(), group)
    return tuple(_run("npu_all_gather_base_mm", given, world_size=1))


@composed("npu_mm_reduce_scatter_base")
def mm_reduce_scatter_base(reference, **given):
    if given["world_size"] == 1:
        return reference(**given)
    reference.check(**given)
    group = _group(given["hcom"], given["world_size"])
    total = _sum(_run("npu_mm_reduce_scatter_base", given, world_size=1)[0], group)
    return total.chunk(given["world_size"])[dist.get_rank(group)].clone()


def _grouped(given, x, counts):
    """gmm_weight of each expert times its rows of x."""
    weight = given["gmm_weight"]
    named = {
        "x": x,
        "weight": weight.transpose(1, 2) if given["trans_gmm_weight"] else weight,
        "group_list": counts,
    }
    return _run("npu_grouped_matmul", named, split_item=3, group_type=0, group_list_type=1)[0]


def _shared(given):
    x, weight = given["mm_x"], given["mm_weight"]
    if x is None:
        return given["gmm_x"].new_empty(0)
    named = {"x": x, "weight": weight.t() if given["trans_mm_weight"] else weight}
    return _run("npu_grouped_matmul", named, group_type=-1)[0]


def _per_rank(given, name):
    """Counts [ranks, experts of a rank]."""
    return torch.tensor(given[name], dtype=torch.int64).view(given["ep_world_size"], -1)


@composed("npu_alltoallv_gmm")
def alltoallv_gmm(reference, **given):
    if given["ep_world_size"] == 1:
        return reference(**given)
    reference.check(**given)
    group = _group(given["hcom"], given["ep_world_size"])
    send, receive = _per_rank(given, "send_counts"), _per_rank(given, "recv_counts")
    rows = _exchange(given["gmm_x"], send.sum(1).tolist(), receive.sum(1).tolist(), group)
    named = {"tokens": rows, "expert_token_num_per_rank": receive}
    permuted, _, _, counts = _run("npu_moe_re_routing", named)
    kept = permuted if given["permute_out_flag"] else permuted.new_empty(0)
    return _grouped(given, permuted, counts), _shared(given), kept


@composed("npu_gmm_alltoallv")
def gmm_alltoallv(reference, **given):
    if given["ep_world_size"] == 1:
        return reference(**given)
    reference.check(**given)
    group = _group(given["hcom"], given["ep_world_size"])
    send, receive = _per_rank(given, "send_counts"), _per_rank(given, "recv_counts")
    y = _grouped(given, given["gmm_x"], send.sum(0))
    # From the order of the experts to that of the ranks: the inverse of re-routing.
    named = {"tokens": y, "expert_token_num_per_rank": send}
    order = _run("npu_moe_re_routing", named)[2]
    by_rank = torch.empty_like(y)
    by_rank[order.long()] = y
    back = _exchange(by_rank, send.sum(1).tolist(), receive.sum(1).tolist(), group)
    return back, _shared(given)

"""Random illegal calls of every operator: a legal one with one thing changed, so that a limit does
not hold. Which, says `limit_oracle`; the call must be refused, naming just those limits.

And random calls of which nobody knows whether they are legal: they run, or are refused.
"""

import re
import warnings
from pathlib import Path

import calls
import limit_oracle as oracle
import mutate
import pytest
import torch
from draws import Draw

DEFINITIONS = Path(__file__).resolve().parents[3] / "src" / "ops" / "npu" / "npu_ops.def"
OPERATORS = [
    name
    for name in re.findall(r"TK_OP\((\w+)\)", DEFINITIONS.read_text())
    if not re.match(r"moe_(dispatch|combine)_", name)  # halves of an exchange, not in the library
]
SOCS = ("a2", "a3")
TRIES = 2500  # changes to find one that violates a limit
EACH = 2  # refused calls of each limit that violate nothing else

# Limits of what a call does not say itself, and what is to be known for one to be violated: that it
# is part of a graph (calls of the emulation are eager), the phase, the ranks, a format of memory.
UNSAID = {
    "format_cast.graph": {"graph": True},
    "quant_matmul.graph_fp32": {"graph": True},
    "prefetch.dep": {"graph": True},
    "mm_all_reduce_base.prefill": {"phase": "decode"},
    "mm_all_reduce_base.ranks": {"world": 3},
    "weight_quant_batchmatmul.nz_eager": {"weight_nz": True},
}
# Limits that no call violates alone, and what falls with them.
TOGETHER = {
    "fused_infer_attention_score.pa_kvlen": "blocks that a table needs follow from the lengths",
    "fused_infer_attention_score_v2.pa_kvlen": "blocks that a table needs follow from the lengths",
    "moe_gating_top_k.E": "so many experts do not fit into groups of moe_gating_top_k.g",
}


def _zeros(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype)


def _by_hand():
    """{limit: (operator, call)}: of limits that no one change of a random call violates alone."""
    i32, i64, int8 = torch.int32, torch.int64, torch.int8
    v1, v2 = "npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2"
    # A cache of latents, [blocks, block, 1, 512] as the layouts read it, and its rope part.
    latent = {"actual_seq_kvlen": [17], "block_table": _zeros(1, 1, dtype=i32), "block_size": 128}
    latent |= {"num_query_heads": 2, "num_key_value_heads": 1}
    flat = {
        "key": _zeros(1, 128, 512),
        "value": _zeros(1, 128, 512),
        "key_rope": _zeros(1, 128, 64),
    }
    nz = {name: t.view(1, 1, -1, 128, 16) for name, t in flat.items()}
    mask = {"sparse_mode": 3, "atten_mask": torch.ones(2048, 2048, dtype=torch.bool).triu(1)}
    # 128 heads of 512 in one axis.
    wide = _zeros(1).expand(1, 128, 128 * 512)
    paged = {"block_table": _zeros(1, 1, dtype=i32), "block_size": 128, "key": wide, "value": wide}
    paged |= {"query": wide[:, :1], "num_key_value_heads": 128, "input_layout": "BSH"}
    row = _zeros(1).expand(1, 5, 2, 128)
    rope = _zeros(1).expand(1, 5, 2, 64)
    many = _zeros(1).expand(4097, 1, 128)
    ends = list(range(1, 4098))
    return {
        "convert_weight_to_int4pack.empty": (
            "npu_convert_weight_to_int4pack",
            {"weight": _zeros(0, 8, dtype=i32)},
        ),
        f"{v2[4:]}.mla512_q": (
            v2,
            {"query": _zeros(1, 17, 2, 512), "query_rope": _zeros(1, 17, 2, 64)}
            | {"input_layout": "BSND", "actual_seq_qlen": [17]}
            | latent
            | flat
            | mask,
        ),
        f"{v2[4:]}.mla512_nz_layout": (
            v2,
            {"query": _zeros(1, 2, 1, 512), "query_rope": _zeros(1, 2, 1, 64)}
            | {"input_layout": "BNSD"}
            | latent
            | nz,
        ),
        f"{v2[4:]}.mla128_layout": (
            v2,
            {"query": row, "key": row, "value": row, "query_rope": rope, "key_rope": rope}
            | {"input_layout": "BSND", "num_query_heads": 2, "num_key_value_heads": 2},
        ),
        f"{v2[4:]}.tnd_batch": (
            v2,
            {"query": many, "key": many, "value": many, "input_layout": "TND"}
            | {"num_query_heads": 1, "num_key_value_heads": 1}
            | {"actual_seq_qlen": ends, "actual_seq_kvlen": ends},
        ),
        f"{v1[4:]}.pa_h_limit": (v1, paged | {"num_heads": 128, "actual_seq_lengths_kv": [1]}),
        f"{v2[4:]}.pa_h_limit": (v2, paged | {"num_query_heads": 128, "actual_seq_kvlen": [1]}),
        "mrope.section": (
            "npu_mrope",
            {"positions": _zeros(3, 2, dtype=i64), "head_size": 128}
            | {"query": _zeros(2, 128), "key": _zeros(2, 128), "cos_sin_cache": _zeros(4, 96)}
            | {"mrope_section": [16, 24, 24]},
        ),
        "scatter_nd_update_.rank": (
            "npu_scatter_nd_update_",
            {"input": _zeros(4, 2), "indices": _zeros(1, dtype=i64), "updates": _zeros(2)},
        ),
        "quant_scatter_.quant_axis": (
            "npu_quant_scatter_",
            {"input": _zeros(1, 32, 32, 32, dtype=int8), "indices": _zeros(1, dtype=i32)}
            | {"updates": _zeros(1, 32, 32, 32), "quant_scales": _zeros(32), "quant_axis": 1},
        ),
        "quant_scatter_.align": (
            "npu_quant_scatter_",
            {"input": _zeros(1, 4, 16, dtype=int8), "indices": _zeros(1, dtype=i32)}
            | {"updates": _zeros(1, 1, 16), "quant_scales": _zeros(16)},
        ),
    }


def _written():
    """Legal calls of operators that need a group of processes, or that no loop draws."""
    product = {"hcom": "g", "world_size": 2}
    exchange = {"hcom": "g", "ep_world_size": 8, "send_counts": [1] * 8, "recv_counts": [1] * 8}
    grouped = {"gmm_x": _zeros(8, 16), "gmm_weight": _zeros(1, 16, 8)}
    found = {
        "npu_all_gather_base_mm": [{"input": _zeros(4, 256), "x2": _zeros(256, 8)} | product],
        "npu_mm_reduce_scatter_base": [{"input": _zeros(4, 256), "x2": _zeros(256, 8)} | product],
        "npu_mm_all_reduce_base": [{"x1": _zeros(4, 256), "x2": _zeros(256, 8), "hcom": "g"}],
        "npu_alltoallv_gmm": [grouped | exchange],
        "npu_gmm_alltoallv": [grouped | exchange],
        "npu_prefetch": [{"input": _zeros(4, 8), "dependency": None, "max_size": 16}],
    }
    i32 = torch.int32
    x, shared = _zeros(8, 7168), "shared_expert_rank_num"
    rows = {"expert_ids": _zeros(8, 4, dtype=i32), "expert_scales": _zeros(8, 4)}
    for ep in (
        {"ep_world_size": 16, "moe_expert_num": 64},
        {"ep_world_size": 3, "moe_expert_num": 24},
        {"ep_world_size": 64, "moe_expert_num": 64, shared: 62},  # not on a2
    ):
        ep |= {"group_ep": "g", "ep_rank_id": ep.get(shared, 0)} | rows
        back = {"expand_x": x, "ep_send_counts": _zeros(64, dtype=i32)} | ep
        index, info = _zeros(32, dtype=i32), _zeros(128 * 32, dtype=i32)
        norm = {"residual_x": _zeros(8, 1, 7168), "gamma": _zeros(7168)}
        for name, given in (
            ("dispatch", {"x": x} | ep),
            ("dispatch_v2", {"x": x} | ep),
            ("combine", back | {"expand_idx": index}),
            ("combine_v2", back | {"assist_info_for_combine": info}),
            ("combine_add_rms_norm", back | {"expand_idx": info} | norm),
        ):
            found.setdefault(f"npu_moe_distribute_{name}", []).append(given)
    return found


BY_HAND = _by_hand()


@pytest.fixture(scope="module")
def legal(torch_npu):
    from tokamak.npu import library, registry

    found = dict(calls.legal(torch_npu))
    for name, written in _written().items():
        operator = library.operators()[name]
        bound = registry.Bound(operator, operator.facts["signature"].splitlines()[0])
        found[name] = [(bound, bound.fill((), given)) for given in written]
    return found


@pytest.fixture(autouse=True)
def quiet():
    """That a document does not name a chip is said elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def call(bound, given):
    import torch_npu

    function = getattr(torch_npu, bound.operator.name)
    given = {k: calls.cloned(v) for k, v in given.items()}
    for a in bound.arguments:  # of a composed operator, whose reference has one tensor
        if "List[Tensor]" in str(a.type) and isinstance(given[a.name], torch.Tensor):
            given[a.name] = list(given[a.name])
    return function(**given)


def violated(bound, given, soc, among=None):
    found = set()
    for tensors, attrs in calls.each(bound, given):
        found |= oracle.violated(bound.operator, tensors, attrs, soc, bound.facts(tensors), among)
    return found


def lacking(bound, given):
    """A list of no tensors where the operator needs one."""
    needed = [t["name"] for t in bound.operator.tensors if not t["optional"]]
    return any(given.get(n) == [] for n in needed)


def illegal_calls(draw, legal, limit, soc):
    """(bound, given, violated ids): EACH that violate this limit alone, or what there is."""
    operator = legal[0][0].operator
    legal = [c for c in legal if not violated(*c, soc)]
    names, literals = mutate.names_of(operator, limit)
    alone, others = [], []
    for _ in range(TRIES if names else 0):
        bound, given = draw.one_of(legal)
        try:
            changed = mutate.mutated(draw, bound, given, names, literals)
            if lacking(bound, changed) or not violated(bound, changed, soc, [limit]):
                continue
        except RuntimeError:  # no call at all: lists of two lengths
            continue
        found = violated(bound, changed, soc)
        (alone if len(found) == 1 else others).append((bound, changed, found))
        if len(alone) == EACH:
            break
    return alone, others


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("name", OPERATORS)
def test_refused_by_name(legal, monkeypatch, name, soc):
    monkeypatch.setenv("TOKAMAK_NPU_SOC", soc)
    if name == "npu_dynamic_mx_quant":  # not there on these chips: see test_quantise
        assert name not in legal
        return
    draw, missing = Draw(7), []
    for limit in legal[name][0][0].operator.facts["limits"]:
        if limit["soc"] not in ("", soc) or limit["id"] in UNSAID:
            continue
        alone, others = illegal_calls(draw, legal[name], limit, soc)
        if not alone and not (others and limit["id"] in TOGETHER) and limit["id"] not in BY_HAND:
            missing.append(limit["id"])
        for bound, given, ids in alone or others[:EACH]:
            with pytest.raises(RuntimeError, match="ERR01001") as refusal:
                call(bound, given)
            named = re.findall(rf"^{name}: check (\S+) failed on {soc}", str(refusal.value), re.M)
            assert set(named) == ids, (limit, str(refusal.value))
    assert not missing, "no call was found that violates these"


def test_lists_are_of_limits_that_there_are():
    from tokamak.npu import library

    ids = {v["id"] for o in library.operators().values() if o.facts for v in o.facts["limits"]}
    assert set(UNSAID) | set(TOGETHER) | set(BY_HAND) <= ids


def holder_of(limit_id):
    """(operator, limit)"""
    from tokamak.npu import library

    for operator in library.operators().values():
        for limit in operator.facts["limits"] if operator.facts else ():
            if limit["id"] == limit_id:
                return operator, limit


@pytest.mark.parametrize("limit_id", UNSAID)
def test_refused_for_what_a_call_does_not_say(legal, limit_id):
    operator, limit = holder_of(limit_id)
    for soc in (limit["soc"],) if limit["soc"] else SOCS:
        alone = 0
        for bound, given in legal[operator.name]:
            for tensors, attrs in calls.each(bound, given):
                known = bound.facts(tensors)
                told = known | UNSAID[limit_id]
                ids = [v["id"] for v in operator.check(tensors, attrs, soc, told)]
                assert set(ids) == oracle.violated(operator, tensors, attrs, soc, told)
                before = {v["id"] for v in operator.check(tensors, attrs, soc, known)}
                assert limit_id not in before
                alone += set(ids) - before == {limit_id}
        assert alone >= min(EACH, len(legal[operator.name])), "no call was found that violates it"


def test_a_weight_in_nz_is_refused_eagerly(legal, torch_npu):
    """Of the formats of memory the emulation knows what npu_format_cast made."""
    for _, given in legal["npu_weight_quant_batchmatmul"][:EACH]:
        weight = torch_npu.npu_format_cast(given["weight"], 29)
        with pytest.raises(RuntimeError, match=r"weight_quant_batchmatmul\.nz_eager"):
            torch_npu.npu_weight_quant_batchmatmul(**(given | {"weight": weight}))
        torch_npu.npu_weight_quant_batchmatmul(**given)


@pytest.mark.parametrize("limit_id", BY_HAND)
def test_refused_alone_by_hand(torch_npu, limit_id):
    from tokamak.npu import library, registry

    name, given = BY_HAND[limit_id]
    operator = library.operators()[name]
    bound = registry.Bound(operator, operator.facts["signature"].splitlines()[0])
    given = bound.fill((), given)
    assert violated(bound, given, "a2") == {limit_id}
    with pytest.raises(RuntimeError, match="ERR01001") as refusal:
        call(bound, given)
    assert re.findall(rf"^{name}: check (\S+) failed on a2", str(refusal.value), re.M) == [limit_id]


RUNS, ELEMENTS = 120, 50_000
# Operators of groups of processes, and the one that is not there on these chips.
OTHERS = [*_written(), "npu_dynamic_mx_quant"]


@pytest.mark.parametrize("name", [n for n in OPERATORS if n not in OTHERS])
def test_any_change_runs_or_is_refused(legal, name):
    """By the operator's own kind of error: nothing else comes of a wrong call."""
    draw, ran, refused = Draw(8), 0, 0
    for _ in range(RUNS):
        bound, given = draw.one_of(legal[name])
        names = [a.name for a in bound.arguments]
        changed = mutate.mutated(draw, bound, given, names, [2, 8])
        tensors = [(changed[k], v) for k, v in given.items() if isinstance(v, torch.Tensor)]
        if any(c is not None and c.numel() > max(ELEMENTS, v.numel()) for c, v in tensors):
            continue  # only slow
        try:
            call(bound, changed)
            ran += 1
        except (RuntimeError, TypeError) as error:
            text = str(error)
            own = "ERR01001" in text or text.startswith(name)
            assert own, (changed, error)
            refused += 1
    assert ran and refused

"""documented.txt: what each argument of the operators may be, and what a call has of it."""

import functools
from pathlib import Path

import limit_oracle
import torch

FILE = Path(__file__).parent / "documented.txt"
# "NZ" and the like are no types: a dtype is called as in limits.
_NAMES = {dtype: name for name, dtype in limit_oracle.DTYPES.items()}
_NUMBERS = {torch.qint8: "12", torch.quint8: "13", torch.quint4x2: "16"}

# What no random call draws, and why: "operator argument value", or an operator as a whole.
NOT_DRAWN = {
    "npu_prompt_flash_attention query int8": "quantised products are not known: docs/left-out.md",
    "npu_scatter_pa_kv_cache key.ndim 4": "compressed caches are not known: docs/left-out.md",
    "npu_linear input int32": "refused: its document says no type for products of integers",
    "npu_linear input int8": "refused: its document says no type for products of integers",
    "npu_dynamic_mx_quant": "not there on these chips",
    **{
        f"npu_moe_distribute_{name}": "of halves"
        for name in ("dispatch", "dispatch_v2", "combine", "combine_v2", "combine_add_rms_norm")
    },
}


@functools.cache
def values():
    """{operator: {"input" or "input.ndim": {"fp16", ...}}}"""
    found = {}
    for line in FILE.read_text().splitlines():
        if line and not line.startswith("#"):
            operator, asked, *allowed = line.split()
            found.setdefault(operator, {})[asked] = set(allowed)
    return found


def of_call(given, asked):
    """The word for what a call, {argument: value}, has of `asked`."""
    name, _, of = asked.partition(".")
    value = given.get(name)
    if isinstance(value, torch.Tensor):
        sizes = {"ndim": value.dim(), "shape[-1]": value.shape[-1] if value.dim() else 1}
        return str(sizes[of]) if of else _NAMES.get(value.dtype, str(value.dtype))
    if isinstance(value, torch.dtype):
        return _NUMBERS.get(value) or _NAMES[value]
    return str(value)


def missing(operator, drawn):
    """["input fp16", ...]: what is documented of the operator and not in `drawn`; not NOT_DRAWN."""
    have = drawn.get(operator, {})
    return [
        f"{asked} {value}"
        for asked, allowed in values().get(operator, {}).items()
        for value in sorted(allowed - have.get(asked, set()))
        if f"{operator} {asked} {value}" not in NOT_DRAWN
    ]

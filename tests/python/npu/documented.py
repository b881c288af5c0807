"""documented.txt: what each argument of the operators may be, and what a call has of it."""

import functools
from pathlib import Path

import limit_oracle
import torch

FILE = Path(__file__).parent / "documented.txt"
# "NZ" and the like are no types: a dtype is called as in limits.
_NAMES = {dtype: name for name, dtype in limit_oracle.DTYPES.items()}
_NUMBERS = {torch.qint8: "12", torch.quint8: "13", torch.quint4x2: "16"}


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
    """["input fp16", ...]: what is documented of the operator and not in `drawn`."""
    have = drawn.get(operator, {})
    return [
        f"{asked} {value}"
        for asked, allowed in values().get(operator, {}).items()
        for value in sorted(allowed - have.get(asked, set()))
    ]

"""Dynamo's guards and automatic dynamic shapes (PyTorch 2.13), for a function that uses all its
inputs and does not specialise their sizes itself.

- dynamic=False: every size, int and float is a constant that is guarded.
- dynamic=None: constants at first. What a later compilation sees changed is a symbol from then on.
- dynamic=True: symbols at once; equal sizes of one compilation share a symbol ("duck shaping") and
  must stay equal. What changed at a compilation has a symbol of its own.
- A size of 0 or 1 is a constant in any case, and a symbolic size is 2 or more. Ints are not.
- mark_static dims and parameters are constants; mark_dynamic dims are symbols.
- dtype, rank, type, and the length of a list are structure.
"""

import math

from .inputs import Structure, Tensor

DYNAMIC = "dynamic"  # in the state of a source: seen with two values


class Entry:
    """One compilation: the guard of each source, and the sizes that must be equal."""

    __slots__ = ("equal", "guards", "symbols")

    def __init__(self):
        self.guards = {}  # source: (kind, facts)
        self.equal = []  # groups of (source, dim) that share a symbol
        self.symbols = []  # sources, or (source, dim), whose values the graph takes as inputs


class Dynamo:
    """The compilations of one code object. `check` says why no entry fits, `compile` adds one."""

    def __init__(self, dynamic):
        self.dynamic = dynamic
        self.entries = []
        self._state = {}  # source: what automatic dynamic shapes know of it

    # -- guards

    def find(self, leaves):
        """The entry whose guards hold, else the reasons why each one does not."""
        reasons = []
        values = dict(leaves)
        for entry in self.entries:
            why = _failure(entry, values)
            if why is None:
                return entry, []
            reasons.append(why)
        return None, reasons

    def compile(self, leaves):
        entry = Entry()
        duck = {}
        for source, value in leaves:
            if isinstance(value, Tensor):
                entry.guards[source] = ("tensor", self._tensor(source, value, entry, duck))
            elif isinstance(value, Structure):
                entry.guards[source] = ("structure", value.key)
            elif isinstance(value, bool) or value is None or isinstance(value, str):
                entry.guards[source] = ("constant", (type(value), value))
            elif self._is_symbol(source, value):
                entry.guards[source] = ("type", type(value))
                entry.symbols.append(source)
            else:
                entry.guards[source] = ("constant", (type(value), value))
        entry.equal = [group for group in duck.values() if len(group) > 1]
        self.entries.append(entry)
        return entry

    def _is_symbol(self, source, value):
        """An int or float: is it a symbol of the graph? Remembers that it was seen."""
        state = self._merge(source, value, DYNAMIC)
        if self.dynamic is False:
            return False
        if isinstance(value, float) and (math.isnan(value) or math.isinf(value)):
            return False
        return self.dynamic is True or state[0] is DYNAMIC

    def _tensor(self, source, value, entry, duck):
        """(dtype, rank, sizes): a size is a number or None for a symbol."""
        if value.parameter:
            return value.dtype, len(value.shape), value.shape
        sizes_seen = self._merge(source, DYNAMIC, value.shape)[1]
        sizes = []
        for dim, size in enumerate(value.shape):
            changed = self.dynamic is not False and (
                sizes_seen is DYNAMIC or sizes_seen[dim] is DYNAMIC
            )
            marked = dim in value.dynamic
            static = dim in value.static and not marked
            symbol = marked or (not static and (changed or self.dynamic is True))
            if not symbol or size in (0, 1):
                sizes.append(size)
                continue
            sizes.append(None)
            entry.symbols.append((source, dim))
            if not (marked or changed):
                duck.setdefault(size, []).append((source, dim))
        return value.dtype, len(value.shape), tuple(sizes)

    def _merge(self, source, scalar, sizes):
        """The state of a source, with what this compilation sees merged in."""
        if self.dynamic is False:
            return scalar, sizes
        old = self._state.get(source)
        if old is not None:
            scalar = old[0] if _same(old[0], scalar) else DYNAMIC
            if old[1] is DYNAMIC or sizes is DYNAMIC or len(old[1]) != len(sizes):
                sizes = DYNAMIC
            else:
                sizes = tuple(a if a == sizes[i] else DYNAMIC for i, a in enumerate(old[1]))
        self._state[source] = (scalar, sizes)
        return self._state[source]


def _same(a, b):
    return a is not DYNAMIC and b is not DYNAMIC and type(a) is type(b) and a == b


def _failure(entry, values):
    """(source, reason) of the first guard that does not hold, or None."""
    for source, (kind, facts) in entry.guards.items():
        if source not in values:
            return source, f"{source} is missing"
        value = values[source]
        why = _CHECKS[kind](facts, value)
        if why is not None:
            return source, f"{source}: {why}"
    for source in values:
        if source not in entry.guards:
            return source, f"{source} is new"
    for group in entry.equal:
        sizes = {values[s].shape[d] for s, d in group}
        if len(sizes) > 1:
            named = ", ".join(f"{s}.size({d})" for s, d in group)
            return group[0][0], f"{named} were equal and are {sorted(sizes)} now"
    return None


def _check_tensor(facts, value):
    if not isinstance(value, Tensor):
        return f"was a tensor, is {_kind(value)}"
    dtype, rank, sizes = facts
    if value.dtype != dtype:
        return f"dtype {dtype} became {value.dtype}"
    if len(value.shape) != rank:
        return f"{rank} dimensions became {len(value.shape)}"
    for dim, size in enumerate(sizes):
        if size is not None and value.shape[dim] != size:
            return f"size({dim}) {size} became {value.shape[dim]}"
        if size is None and value.shape[dim] < 2:
            return f"size({dim}) became {value.shape[dim]}; symbolic sizes start at 2"
    return None


def _check_structure(facts, value):
    if not isinstance(value, Structure):
        return f"was a {facts[0]}, is {_kind(value)}"
    if value.key != facts:
        return f"{facts[0]} of {facts[1]} became {value.key[0]} of {value.key[1]}"
    return None


def _check_constant(facts, value):
    kind, constant = facts
    if type(value) is not kind:
        return f"{constant!r} became {_kind(value)}"
    same = value == constant or (kind is float and value != value and constant != constant)
    return None if same else f"{constant!r} became {value!r}"


def _check_type(facts, value):
    return None if type(value) is facts else f"{facts.__name__} became {_kind(value)}"


def _kind(value):
    return (
        repr(value)
        if value is None or isinstance(value, (bool, int, float, str))
        else type(value).__name__.lower()
    )


_CHECKS = {
    "tensor": _check_tensor,
    "structure": _check_structure,
    "constant": _check_constant,
    "type": _check_type,
}

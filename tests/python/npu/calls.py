"""Calls that the random tests make, to be used again: a test runs until it has made enough."""

import contextlib
import copy
import functools
import importlib
import inspect
import itertools
from pathlib import Path

import documented
import limit_oracle
import torch
from tokamak.npu import library, registry

HERE = Path(__file__).parent
# Of each test, after which it is stopped, at the latest after MOST; and how many of each operator
# are kept.
A_TEST, MOST, KEPT = 40, 160, 60
LARGE = 1 << 19  # elements of tensors that are shared by the calls that are kept


class _Enough(BaseException):
    """Not an Exception: tests may catch those."""


@contextlib.contextmanager
def watched(see):
    """see(bound, given) is told every call of an operator, before it runs."""
    bind = registry.Bound.bind

    def told(bound, given):
        see(bound, given)
        return bind(bound, given)

    registry.Bound.bind = told
    try:
        yield
    finally:
        registry.Bound.bind = bind


def cloned(value):
    if isinstance(value, torch.Tensor):
        if value.numel() > LARGE:  # weights, which no call changes
            return value
        t = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        return t.copy_(value) if 0 not in value.stride() else value
    if isinstance(value, list | tuple):
        return [cloned(v) for v in value]
    return copy.copy(value)


def _parameters(function):
    """All that a parametrized test is called with."""
    axes = []
    for mark in getattr(function, "pytestmark", []):
        if mark.name == "parametrize":
            names = mark.args[0]
            names = [n.strip() for n in names.split(",")] if isinstance(names, str) else names
            axes.append(
                [dict(zip(names, v if len(names) > 1 else [v], strict=True)) for v in mark.args[1]]
            )
    for chosen in itertools.product(*axes):
        yield functools.reduce(dict.__or__, chosen, {})


def _draws(module):
    """The random tests of a module: those with a loop that take nothing but the library."""
    for name, function in vars(module).items():
        if not name.startswith("test_") or not inspect.isfunction(function):
            continue
        wanted = set(inspect.signature(function).parameters)
        for given in _parameters(function):
            if wanted - set(given) == {"torch_npu"} and "for " in inspect.getsource(function):
                yield functools.partial(function, **given)


MODULES = (
    "test_activations test_cache_writes test_delta_rule test_ffn test_fused_attention "
    "test_grouped_matmul test_misc test_moe_gate test_moe_routing test_norms test_quant_matmul "
    "test_quantise test_rope test_sparse_attention test_fusion_attention test_moe_exchange"
).split()


@contextlib.contextmanager
def counted(drawn, after):
    """Adds to `drawn`, {operator: {what documented.txt asks of an argument: values}}, what calls
    that ran had; then after(operator's name)."""
    run = library.Operator.run

    def told(operator, tensors, attrs):
        # Before it runs: arguments are changed in place, never their types.
        names = [t["name"] for t in operator.tensors]
        values = limit_oracle.defaults(operator.schema) | attrs
        values |= dict(zip(names, tensors, strict=False))
        seen = {
            asked: documented.of_call(values, asked)
            for asked in documented.values().get(operator.name, {})
        }
        results = run(operator, tensors, attrs)
        for asked, value in seen.items():
            drawn.setdefault(operator.name, {}).setdefault(asked, set()).add(value)
        after(operator.name)
        return results

    library.Operator.run = told
    try:
        yield
    finally:
        library.Operator.run = run


@functools.cache
def collected(torch_npu):
    """What the random tests make: calls, {operator: [(bound, given)]}, the first of each test; and
    all that is drawn of what is documented (see `counted`). A test goes on while its operators
    lack something documented, up to MOST calls."""
    found, drawn = {}, {}
    seen = ran = 0
    used = set()

    def go_on(name, n):
        used.add(name)
        if n > MOST or (n > A_TEST and not any(documented.missing(u, drawn) for u in used)):
            raise _Enough

    def see(bound, given):
        nonlocal seen
        seen += 1
        if seen <= A_TEST:
            kept = found.setdefault(bound.operator.name, [])
            kept.append((bound, {k: cloned(v) for k, v in given.items()}))
        go_on(bound.operator.name, seen)

    def after(name):  # of operators that a test runs without a call of the library
        nonlocal ran
        ran += 1
        go_on(name, ran)

    with watched(see), counted(drawn, after):
        for name in MODULES:
            for test in _draws(importlib.import_module(name)):
                seen = ran = 0
                used.clear()
                with contextlib.suppress(_Enough):
                    test(torch_npu=torch_npu)
    return found, drawn


@functools.cache
def legal(torch_npu):
    """{operator: [(bound, given)]}: calls of the random tests that are refused by nobody."""
    found, _ = collected(torch_npu)
    # Evenly from all tests of an operator.
    accepted = {name: [c for c in calls if _accepted(*c)] for name, calls in found.items()}
    return {name: c[:: -(-len(c) // KEPT) or 1] for name, c in accepted.items()}


def each(bound, given):
    """(tensors, attributes) of every call of the operator that a call with lists is."""
    tensors, attrs = bound.bind(given)
    calls = []
    registry._each(bound, tensors, attrs, lambda t, a: (calls.append((t, a)), [[]] * 9)[1])
    return calls


def _accepted(bound, given):
    try:
        for tensors, attrs in each(bound, given):
            if bound.operator.check(tensors, attrs, "a2", bound.facts(tensors)):
                return False
            bound.operator.infer(tensors, attrs)
    except RuntimeError:
        return False
    return True

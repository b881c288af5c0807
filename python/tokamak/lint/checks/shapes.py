"""Shapes and indices that depend on the values of tensors."""

import ast

from ..names import SIZED_FUNCTIONS, SIZED_METHODS
from ..tree import index_of, index_parts
from ..values import (
    HOST,
    LIST,
    SYNCED,
    TENSOR,
    TENSOR_VALUE,
    UNKNOWN,
    list_of,
)

_MAY_BE_TENSOR = (TENSOR, UNKNOWN)


def _report(interp, call):
    interp.report("data-dependent-shape", call.node)
    return TENSOR_VALUE


def _flag(value, default=False):
    return (
        value.const
        if value is not None and value.kind == HOST and isinstance(value.const, bool)
        else default
    )


# -- methods


def _nonzero(interp, call):
    if call.base.kind not in _MAY_BE_TENSOR:
        return None
    _report(interp, call)
    return list_of(elem=TENSOR_VALUE) if _flag(call.kwargs.get("as_tuple")) else TENSOR_VALUE


def _unique(interp, call):
    if call.base.kind != TENSOR:
        return None
    return _report(interp, call)


def _masked_select(interp, call):
    return _report(interp, call) if call.base.kind in _MAY_BE_TENSOR else None


def _repeat_interleave(interp, call):
    return (
        _repeats(interp, call, call.argument(0, "repeats"))
        if call.base.kind in _MAY_BE_TENSOR
        else None
    )


def _repeats(interp, call, repeats):
    if repeats is not None and repeats.kind == TENSOR and "output_size" not in call.kwargs:
        return _report(interp, call)
    return None


def _sized_method(interp, call):
    if call.base.kind not in _MAY_BE_TENSOR:
        return None
    values = [
        *call.args,
        *(call.kwargs[k] for k in ("size", "shape", "split_size", "length") if k in call.kwargs),
    ]
    if call.name == "narrow":
        if any(_from_tensor(v) or v.kind == TENSOR for v in values[1:]):
            interp.report("dynamic-slice-by-tensor", call.node)
        return None
    if any(_from_tensor(v) for v in values):
        interp.report("data-dependent-shape", call.node)
    return None


def _from_tensor(value):
    if value.kind == SYNCED:
        return True
    if value.kind == LIST and value.items is not None:
        return any(_from_tensor(v) for v in value.items)
    return value.kind == LIST and value.elem is not None and value.elem.kind == SYNCED


def _index_put(interp, call):
    indices = call.args[0] if call.args else None
    if (
        call.base.kind in _MAY_BE_TENSOR
        and indices is not None
        and indices.kind == LIST
        and indices.items
        and any(i.bool_mask for i in indices.items)
    ):
        interp.report("bool-mask-assignment", call.node)
    return None


def _topk(interp, call):
    k = call.argument(0, "k")
    if call.base.kind == TENSOR and k is not None and k.kind in (TENSOR, SYNCED):
        interp.report("data-dependent-shape", call.node)
    return None


METHODS = {
    "nonzero": _nonzero,
    "argwhere": _nonzero,
    "unique": _unique,
    "unique_consecutive": _unique,
    "masked_select": _masked_select,
    "repeat_interleave": _repeat_interleave,
    "index_put_": _index_put,
    "index_put": _index_put,
    "topk": _topk,
}
METHODS.update({name: _sized_method for name in SIZED_METHODS})


def _bincount_method(interp, call):
    if call.base.kind == TENSOR:
        return _bincount(interp, call, call.base)
    return None


METHODS["bincount"] = _bincount_method


# -- functions


def _torch(function):
    def checked(interp, call):
        return function(interp, call) if call.dotted.startswith("torch.") else None

    return checked


@_torch
def _nonzero_function(interp, call):
    _report(interp, call)
    return list_of(elem=TENSOR_VALUE) if _flag(call.kwargs.get("as_tuple")) else TENSOR_VALUE


@_torch
def _where(interp, call):
    if len(call.args) + len(call.kwargs) == 1 and not call.splat:
        _report(interp, call)
        return list_of(elem=TENSOR_VALUE)
    return None


@_torch
def _always(interp, call):
    return _report(interp, call)


@_torch
def _repeat_interleave_function(interp, call):
    if (
        len(call.args) == 1
        and "repeats" not in call.kwargs
        and call.args[0].kind == TENSOR
        and "output_size" not in call.kwargs
    ):
        return _report(interp, call)  # the repeats themselves
    return _repeats(interp, call, call.argument(1, "repeats"))


@_torch
def _one_hot(interp, call):
    classes = call.argument(1, "num_classes")
    if classes is None or (classes.kind == HOST and classes.const == -1):
        return _report(interp, call)  # the largest value says how many
    return None


def _bincount(interp, call, _tensor=None):
    # Its length is the largest value at least, whatever minlength says.
    interp.report("data-dependent-shape", call.node)
    return TENSOR_VALUE


@_torch
def _sized_function(interp, call):
    values = [
        *call.args,
        *(call.kwargs[k] for k in ("size", "end", "start", "steps") if k in call.kwargs),
    ]
    if call.name in ("full", "linspace"):
        values = values[:1] if call.name == "full" else values[2:3]
    if any(_from_tensor(v) or v.kind == TENSOR for v in values):
        interp.report("data-dependent-shape", call.node)
    return None


@_torch
def _split(interp, call):
    if any(_from_tensor(v) for v in call.args[1:]):
        interp.report("data-dependent-shape", call.node)
    return None


@_torch
def _narrow(interp, call):
    if any(_from_tensor(v) or v.kind == TENSOR for v in call.args[2:]):
        interp.report("dynamic-slice-by-tensor", call.node)
    return None


@_torch
def _pad(interp, call):
    if any(_from_tensor(v) for v in call.args[1:2]):
        interp.report("data-dependent-shape", call.node)
    return None


FUNCTIONS = {
    "pad": _pad,
    "nonzero": _nonzero_function,
    "argwhere": _nonzero_function,
    "where": _where,
    "unique": _always,
    "unique_consecutive": _always,
    "masked_select": _always,
    "repeat_interleave": _repeat_interleave_function,
    "one_hot": _one_hot,
    "bincount": _torch(_bincount),
    "split": _split,
    "split_with_sizes": _split,
    "reshape": _split,
    "narrow": _narrow,
}
FUNCTIONS.update(
    {name: _sized_function for name in SIZED_FUNCTIONS if name not in ("rand", "randn", "randint")}
)


# -- indices


def is_mask(node, value):
    """A tensor of dtype bool; for a tensor of unknown dtype its name is believed."""
    if value.kind == TENSOR and value.bool_mask:
        return True
    if value.kind not in _MAY_BE_TENSOR:
        return False
    while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return value.kind == TENSOR or "mask" in ast.dump(node)
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return value.kind == TENSOR and "mask" in name.lower()


def _parts(node, index):
    """The parts of an index with their nodes."""
    inner = index_of(node)
    nodes = index_parts(inner)
    if nodes is not None and index.kind == LIST and index.items is not None:
        return list(zip(nodes, index.items))
    return [(inner, index)]


def subscript_read(interp, node, base, index):
    parts = _parts(node, index)
    if base.kind in ("modules", "dict") or (base.kind == LIST and base.root is None):
        for _, value in parts:
            if value.kind in (TENSOR, SYNCED) and base.kind != "dict" and _of_modules(base, value):
                interp.report("module-indexed-by-tensor", node)
        _slices(interp, node, base, parts)
        return None
    if base.kind not in (TENSOR, UNKNOWN):
        return None
    _slices(interp, node, base, parts)
    for part, value in parts:
        if base.kind == TENSOR and is_mask(part, value):
            interp.report("data-dependent-shape", node)
            return TENSOR_VALUE
    return None


def _of_modules(base, index):
    """A ModuleList takes no tensor; a Python list does not take one either, and an int read from
    a tensor chooses at capture which element is used ever after."""
    if base.kind == "modules":
        return True
    return base.elem is not None and base.elem.kind != SYNCED


def _slices(interp, node, base, parts):
    for _part, value in parts:
        if value.kind != "slice":
            continue
        if any(v.kind in (TENSOR, SYNCED) for v in value.items):
            interp.report("dynamic-slice-by-tensor", node)
        elif base.kind == TENSOR and not base.grows and any(v.grows for v in value.items):
            interp.report("shape-dependent-slice", node)
        elif any(v.root is not None and v.root[0] == "input" for v in value.items):
            interp.counter_used(node, value.items)


def subscript_written(interp, node, target, base, index):
    parts = _parts(target, index)
    if base.kind not in _MAY_BE_TENSOR:
        return
    _slices(interp, target, base, parts)
    for part, value in parts:
        if is_mask(part, value):
            interp.report("bool-mask-assignment", node)
            return

"""What torch_npu, torchair and the two graph backends demand."""

import ast

from .. import converters
from ..names import (
    ATTENTION_V1,
    ATTENTION_V2,
    CACHE_WRITERS,
    LIST_LENGTHS,
    MUTATED_ARGUMENTS,
    RANDOM_FUNCTIONS,
    RANDOM_METHODS,
    TENSOR_LENGTHS,
    V1_TO_V2,
)
from ..values import HOST, HOST_VALUE, LIST, SYNCED, TENSOR, TENSOR_VALUE, UNKNOWN, Value

GE = "ge_graph"
NPUGRAPH = "npugraph_ex"


# -- random numbers and synchronisation


def _random_method(interp, call):
    if call.base.kind in (TENSOR, UNKNOWN) and NPUGRAPH in interp.backends:
        if call.base.kind == TENSOR or call.name.endswith("_"):
            interp.report("random-op", call.node, call.name)
            return call.base if call.base.kind == TENSOR else TENSOR_VALUE
    return None


def _random_function(interp, call):
    if not call.dotted.startswith(("torch.", "torch_npu.")) or call.dotted.startswith(
        ("torch.distributions",)
    ):
        return None
    if NPUGRAPH in interp.backends:
        interp.report("random-op", call.node, call.name)
    return TENSOR_VALUE


def _dropout(interp, call):
    """F.dropout is in training mode unless it is told otherwise."""
    if not call.dotted.startswith("torch."):
        return None
    training = call.argument(2, "training")
    p = call.argument(1, "p")
    off = p is not None and p.kind == HOST and p.const == 0
    if (training is None or training.const is True) and not off and NPUGRAPH in interp.backends:
        interp.report("random-op", call.node, "dropout in training mode")
    return TENSOR_VALUE


def _synchronize(interp, call):
    if call.base.kind in (UNKNOWN, HOST, "torch module"):
        interp.report("device-sync", call.node)
        return HOST_VALUE
    return None


def _synchronize_function(interp, call):
    if call.dotted.startswith(("torch.", "torch_npu.")):
        interp.report("device-sync", call.node)
        return HOST_VALUE
    return None


def _backward(interp, call):
    if call.base.kind == TENSOR and NPUGRAPH in interp.backends:
        interp.report("backward", call.node)
        return HOST_VALUE
    return None


def _autograd(interp, call):
    if call.dotted.startswith("torch.autograd.") and NPUGRAPH in interp.backends:
        interp.report("backward", call.node)
    return None


METHODS = {name: _random_method for name in RANDOM_METHODS}
METHODS.update(synchronize=_synchronize, backward=_backward)
FUNCTIONS = {name: _random_function for name in RANDOM_FUNCTIONS}
FUNCTIONS.update(
    dropout=_dropout,
    grad=_autograd,
    synchronize=_synchronize_function,
    barrier=_synchronize_function,
    monitored_barrier=_synchronize_function,
)


# -- converters of GE


def converter(interp, call):
    """aten operators that GE cannot take (no converter, and no decomposition to others)."""
    if (
        GE in interp.backends
        and call.dotted.startswith("torch.")
        and converters.is_missing(call.dotted, call.name)
    ):
        interp.report("unsupported-converter", call.node, call.name)


def method_converter(interp, call):
    if GE in interp.backends and call.base.kind == TENSOR:
        interp.report("unsupported-converter", call.node, call.name)
    return None


for _name in converters.METHODS:
    METHODS.setdefault(_name, method_converter)


# -- fused operators


def operator(interp, call):
    """An operator of torch_npu or torchair by its name."""
    name = call.name
    if GE in interp.backends and name in converters.NPU_WITHOUT_CONVERTER:
        interp.report("unsupported-converter", call.node, name)
    _lengths(interp, call)
    _written(interp, call)
    writer = CACHE_WRITERS.get(name)
    if writer is not None:
        _remember_caches(interp, call, writer)
        result = Value(TENSOR, dotted=name)
        return result
    return TENSOR_VALUE


def _written(interp, call):
    from .state import written_in_place

    for position in MUTATED_ARGUMENTS.get(call.name, ()):
        if position < len(call.args) and position < len(call.node.args):
            written_in_place(interp, call.node, call.args[position], call.node.args[position])


def _lengths(interp, call):
    name = call.name
    from_torchair = call.dotted.startswith("torchair.ops")
    arguments = LIST_LENGTHS.get(name, ())
    _names(interp, call)
    for argument in arguments:
        value = call.kwargs.get(argument)
        if value is not None and value.kind == TENSOR and not from_torchair and call.dotted:
            interp.report(
                "length-type",
                call.node,
                f"{argument} is a tensor, the schema of {name} wants a list of int",
            )
        if (
            value is not None
            and not from_torchair
            and call.dotted
            and (value.kind in (LIST, SYNCED))
        ):
            interp.length_lists.append((interp.frame.module.source, call.node, argument))
    for argument in TENSOR_LENGTHS.get(name, ()):
        value = call.kwargs.get(argument)
        if value is not None and call.dotted and (value.kind == LIST or (value.kind == SYNCED)):
            interp.report(
                "length-type",
                call.node,
                f"{argument} is a list, the schema of {name} wants a tensor",
            )
    if from_torchair and arguments and interp.backends == {NPUGRAPH}:
        interp.report("length-type", call.node, f"torchair.ops.{name} exists in GE graphs only")


def _names(interp, call):
    if call.name in ATTENTION_V1:
        wrong = {new: old for old, new in V1_TO_V2.items()}
    elif call.name in ATTENTION_V2:
        wrong = V1_TO_V2
    else:
        return
    if call.dotted.startswith("torchair.ops"):
        return  # its examples use either set; the wrapper decides
    for keyword in call.kwargs:
        if keyword in wrong:
            interp.report(
                "length-name",
                call.node,
                f"{call.name} has no {keyword}; there it is called {wrong[keyword]}",
            )
    if call.splat:
        return
    needed = (
        ("num_heads", "scale")
        if call.name in ATTENTION_V1
        else ("num_query_heads", "softmax_scale")
    )
    missing = [
        n
        for n in needed
        if n not in call.kwargs
        and {**V1_TO_V2, **{b: a for a, b in V1_TO_V2.items()}}.get(n) not in call.kwargs
    ]
    if missing:
        interp.report("omitted-attention-argument", call.node, " and ".join(missing))


# -- caches that a fused operator writes (GE)


def _remember_caches(interp, call, writer):
    if GE not in interp.backends:
        return
    for position, name in writer["arguments"].items():
        value = call.argument(position, name)
        if value is None:
            continue
        if value.root is not None:
            interp.frame.written.add(value.root)
        elif position < len(call.node.args) and isinstance(call.node.args[position], ast.Name):
            interp.frame.written.add(call.node.args[position].id)


def cache_read(interp, node, value):
    """A name or attribute is read after a fused operator wrote the storage behind it."""
    written = interp.frame.written
    if value.root in written or (isinstance(node, ast.Name) and node.id in written):
        interp.report("cache-read-after-inplace", node)
        return TENSOR_VALUE  # what is made of it is not reported again
    return value


def unused(interp, node, value):
    """A call whose result nobody takes."""
    if GE in interp.backends and value.kind == TENSOR and value.dotted in CACHE_WRITERS:
        interp.report("unused-result-of-cache-update", node, value.dotted)


def unpacked(interp, node, target):
    """`_, _, k, v = npu_kv_rmsnorm_rope_cache(...)`: are the caches among what is taken?"""
    call = getattr(node, "value", None)
    if GE not in interp.backends or not isinstance(call, ast.Call):
        return
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    writer = CACHE_WRITERS.get(name)
    if writer is None:
        return
    ignored = [
        i
        for i in writer["results"]
        if i < len(target.elts)
        and isinstance(target.elts[i], ast.Name)
        and target.elts[i].id.startswith("_")
    ]
    if len(ignored) == len(writer["results"]):
        interp.report("unused-result-of-cache-update", node, name)

"""The backend of torch.compile: Dynamo's graphs, by AOT autograd, to the engine."""

import time

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import TracingContext

from ..errors import Error
from . import report
from .inplace import write_in_place
from .library import EngineError, operators
from .lower import FLASH, Unsupported, packet_name
from .options import read_options
from .partition import Reason, cut, find_unsupported
from .run import Compiled


def tokamak(gm, example_inputs, *, options=None, mode=None):
    """torch.compile(model, backend="tokamak", options={...})"""
    if mode not in (None, "default"):
        raise Error(
            "TK1502", f"the tokamak backend has no mode {mode!r}", help="use options={...} instead"
        )
    chosen = read_options(options)
    operators()  # a library that is not there is an error before anything is compiled
    compiler = aot_autograd(
        fw_compiler=lambda graph, inputs: _training(graph, chosen),
        inference_compiler=lambda graph, inputs: _inference(graph, chosen),
        decompositions=_decompositions(),
        keep_inference_input_mutations=True,
    )
    return compiler(gm, example_inputs)


def _decompositions():
    """PyTorch's own, of operators that the engine does not know."""
    known = {*operators(), FLASH}
    return {
        op: function
        for op, function in core_aten_decompositions().items()
        if packet_name(op) not in known
    }


def _training(gm, options):
    record = report.GraphReport(sum(n.op == "call_function" for n in gm.graph.nodes))
    first = next((n for n in gm.graph.nodes if n.op == "call_function"), None)
    if first is not None:
        record.fallbacks.append(Reason(first, "gradients are asked for; the engine has none"))
    report.graphs.append(record)
    _accept(record, options)
    return make_boxed_func(gm.forward)


def _inference(gm, options):
    start = time.perf_counter()
    record = report.GraphReport(sum(n.op == "call_function" for n in gm.graph.nodes))
    static = _static_placeholders(gm)
    record.in_place = write_in_place(gm)
    unsupported = find_unsupported(gm)
    record.fallbacks += unsupported.values()
    run = _compile(gm, static, unsupported, options, record)
    record.seconds = time.perf_counter() - start
    report.graphs.append(record)
    _accept(record, options)

    def boxed(args):
        values = list(args)
        args.clear()
        return run(*values)

    boxed._boxed_call = True
    return boxed


def _accept(record, options):
    if record.fallbacks and not options.fallback:
        raise Error(
            "TK1504",
            f"{len(record.fallbacks)} operators cannot be run by the engine",
            notes=[str(r) for r in record.fallbacks[:10]],
            help="leave out the option fallback=False, and PyTorch runs them",
        )
    record.warn()


def _static_placeholders(gm):
    """Parameters and buffers: the inputs whose memory Dynamo says stays where it is."""
    context = TracingContext.try_get()
    meta = context.fw_metadata if context is not None else None
    indices = set(meta.static_input_indices or ()) if meta is not None else set()
    nodes = [n for n in gm.graph.nodes if n.op == "placeholder"]
    return {n for i, n in enumerate(nodes) if i in indices}


def _compile(gm, static, unsupported, options, record):
    if not unsupported:
        try:
            part = Compiled(gm, static, options)
        except Unsupported as e:
            first = next(n for n in gm.graph.nodes if n.op == "call_function")
            record.fallbacks.append(Reason(first, str(e)))
            return gm.forward
        record.parts.append(part)
        return part
    split, ours, small = cut(gm, unsupported, options.min_nodes)
    record.fallbacks += small
    outer = {n.name: n for n in gm.graph.nodes if n.op == "placeholder"}
    for call in [n for n in split.graph.nodes if n.op == "call_module"]:
        if call.target not in ours:
            continue
        inner = getattr(split, call.target)
        inside = [n for n in inner.graph.nodes if n.op == "placeholder"]
        stays = {
            i
            for i, x in zip(inside, call.args, strict=True)
            if x.op == "placeholder" and outer[x.name] in static
        }
        _result_as_tuple(inner)
        try:
            part = Compiled(inner, stays, options)
        except Unsupported as e:
            first = next(n for n in inner.graph.nodes if n.op == "call_function")
            record.fallbacks.append(Reason(first, str(e)))
            continue
        record.parts.append(part)
        split.set_submodule(call.target, _Part(part, inner.single))
    split.recompile()
    return split.forward


def _result_as_tuple(gm):
    """A part's only result comes bare; the engine gives tuples."""
    output = next(n for n in gm.graph.nodes if n.op == "output")
    gm.single = not isinstance(output.args[0], list | tuple)
    if gm.single:
        output.args = ((output.args[0],),)


class _Part(torch.nn.Module):
    def __init__(self, part, single):
        super().__init__()
        self.part = part
        self.single = single

    def forward(self, *args):
        results = self.part(*args)
        return results[0] if self.single else results


__all__ = ["EngineError", "tokamak"]

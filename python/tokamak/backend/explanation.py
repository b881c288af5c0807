"""tokamak.explain: what becomes of a model under torch.compile(backend="tokamak")."""

import contextlib
import logging
from dataclasses import dataclass, field

import torch
from torch._logging._internal import log_state

from ..diagnose.lines import Line
from ..graphlog import Reader
from . import report
from .compiler import tokamak

LOGGERS = (
    ("torch._dynamo.symbolic_convert", "graph_breaks"),
    ("torch._dynamo.convert_frame", "graph_breaks"),
    ("torch._dynamo.exc", "graph_breaks"),
    ("torch._dynamo.guards", "recompiles"),
)


@dataclass
class Explanation:
    """`breaks` are graphlog.Break, `recompiles` graphlog.Recompile, `fallbacks` partition.Reason;
    all have a text with file:line. `graphs` are report.GraphReport, one for each compilation."""

    graphs: list = field(default_factory=list)
    breaks: list = field(default_factory=list)
    recompiles: list = field(default_factory=list)
    fallbacks: list = field(default_factory=list)
    references: list = field(default_factory=list)

    def __str__(self):
        nodes = sum(g.n_nodes for g in self.graphs)
        lines = [
            f"{_count(len(self.graphs), 'graph')} of {_count(nodes, 'operator')}, "
            f"{sum(g.whole for g in self.graphs)} run whole by the engine, "
            f"{_count(sum(g.in_place for g in self.graphs), 'cache')} written in place"
        ]
        for title, items in (
            ("graph breaks", self.breaks),
            ("recompilations", self.recompiles),
            ("run by PyTorch", self.fallbacks),
            ("run by an operator's reference, without a kernel", self.references),
        ):
            lines.append(f"{title}: {len(items) or 'none'}")
            lines += [f"  {item}" for item in items]
        return "\n".join(lines)


def explain(model, inputs, *, options=None, dynamic=None):
    """Compiles and runs `model` on `inputs`, and says where the graph breaks, what compiles again,
    and which operators PyTorch runs, with the lines of the model.

    `inputs` is a tensor, a tuple of arguments or a dict of keyword arguments; a list of those is
    several calls in a row, which is how recompilations show. Dynamo is reset before and after.
    """
    calls = inputs if isinstance(inputs, list) else [inputs]
    before = list(report.graphs)
    report.clear()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=tokamak, options=options, dynamic=dynamic)
    try:
        with _listening() as lines, torch.no_grad():
            for call in calls:
                if isinstance(call, dict):
                    compiled(**call)
                else:
                    compiled(*(call if isinstance(call, tuple) else (call,)))
        found = Explanation(graphs=list(report.graphs))
        reader = Reader()
        for number, text in enumerate("\n".join(lines).splitlines(), 1):
            reader.feed(Line("", number, text, ""))
        found.breaks, found.recompiles = reader.breaks, reader.events
        for graph in found.graphs:
            found.fallbacks += graph.fallbacks
            for part in graph.parts:
                if part.engines:
                    for text in part.describe().get("passed_over", []):
                        if text not in found.references:
                            found.references.append(text)
        return found
    finally:
        torch._dynamo.reset()
        report.graphs[:] = before


class _Lines(logging.Handler):
    def __init__(self):
        super().__init__(logging.DEBUG)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def _listening():
    """The texts that Dynamo logs of graph breaks and recompilations, which are not shown."""
    handler = _Lines()
    loggers = [torch._logging.getArtifactLogger(module, artifact) for module, artifact in LOGGERS]
    saved = [(x, x.level, x.propagate, list(x.handlers)) for x in loggers]
    names = set(log_state.artifact_names)
    log_state.enable_artifact("recompiles")
    for x in loggers:
        x.setLevel(logging.DEBUG)
        x.propagate = False
        x.handlers = [handler]
    try:
        yield handler.lines
    finally:
        log_state.artifact_names = names
        for x, level, propagate, handlers in saved:
            x.setLevel(level)
            x.propagate = propagate
            x.handlers = handlers


def _count(n, what):
    return f"{n} {what}" + ("" if n == 1 else "s")

"""Steps through the models of Dynamo and npugraph_ex."""

from ..errors import Error
from .capture import CaptureOptions, Captures
from .dynamo import Dynamo
from .inputs import flatten

RECOMPILE_LIMIT = 8  # torch._dynamo.config.recompile_limit


class Event:
    """A compilation or capture: in which step, why, and the input at fault (None: the first)."""

    __slots__ = ("input", "reasons", "step")

    def __init__(self, step, reasons, input=None):
        self.step = step
        self.reasons = reasons
        self.input = input


class Prediction:
    """`compiles` and `captures` in order of steps. `eager_from`: the step from which the function
    runs eagerly because of the recompile limit; `capture_eager_from`: because of the capture
    limit. None: never."""

    __slots__ = ("capture_eager_from", "captures", "compiles", "eager_from", "n_steps")

    def __init__(self, n_steps):
        self.n_steps = n_steps
        self.compiles = []
        self.captures = []
        self.eager_from = None
        self.capture_eager_from = None

    def serving(self, warmup=1):
        """The compilations after the warm-up steps. Serving is safe when there is none."""
        return [e for e in self.compiles if e.step >= warmup]

    def may_skip_guards(self):
        """Whether guards cannot fail, so that set_stance(skip_guard_eval_unsafe=True) is safe."""
        return len(self.compiles) == 1

    def require_one_graph(self, warmup=1):
        """Raises TK1107 with the input at fault when serving would compile."""
        late = self.serving(warmup)
        if late:
            raise Error(
                "TK1107",
                f"{len(late)} compilations after {warmup} warm-up steps; the "
                f"first in step {late[0].step}, because of {late[0].input}",
                notes=late[0].reasons,
                help="remove the cause, use buckets, or compile with dynamic=True",
            )

    def __str__(self):
        lines = [f"{len(self.compiles)} compiles in {self.n_steps} steps"]
        lines += [
            f"  step {e.step}: {'; '.join(e.reasons) or 'the first run'}" for e in self.compiles
        ]
        if self.eager_from is not None:
            lines.append(f"  eager from step {self.eager_from}: the recompile limit is reached")
        if self.captures:
            lines.append(f"{len(self.captures)} captures")
            lines += [f"  step {e.step}: {'; '.join(e.reasons)}" for e in self.captures]
        if self.capture_eager_from is not None:
            lines.append(
                f"  eager from step {self.capture_eager_from}: the capture limit is exceeded"
            )
        return "\n".join(lines)


def predict(steps, dynamic=None, capture=None, recompile_limit=RECOMPILE_LIMIT):
    """Predicts `steps`, each a dict of the inputs of one call by name.

    `dynamic` is that of torch.compile. `capture` (CaptureOptions, or True for the defaults) adds
    the captures of npugraph_ex. Raises Error TK1106 for inputs that it does not know.
    """
    if dynamic not in (None, True, False):
        raise Error("TK1106", f"dynamic is {dynamic!r}", help="it is True, False or None")
    options = CaptureOptions() if capture is True else capture
    dynamo = Dynamo(dynamic)
    captures = Captures(options) if options else None
    result = Prediction(len(steps))
    for index, step in enumerate(steps):
        leaves = flatten(step)
        entry, failures = dynamo.find(leaves)
        if entry is None:
            if len(dynamo.entries) >= recompile_limit:
                result.eager_from = index if result.eager_from is None else result.eager_from
                continue
            entry = dynamo.compile(leaves)
            # The newest graph is the one that nearly fitted.
            result.compiles.append(
                Event(
                    index, [why for _, why in failures[-1:]], failures[-1][0] if failures else None
                )
            )
        if captures is not None:
            why = captures.step(entry, leaves, index)
            if why is not None:
                result.captures.append(Event(index, [why]))
            if id(entry) in captures.eager and result.capture_eager_from is None:
                result.capture_eager_from = index
    return result

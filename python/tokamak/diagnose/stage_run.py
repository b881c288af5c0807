"""python stage_run.py STAGE SCRIPT [args]: one stage of GM-40, in a process of its own.

The script runs on the emulation; torch.compile is bent to the stage. What it compiles is counted,
and the last stage looks at each captured graph for what a capture on the device forbids (GM-11).
"""

import atexit
import json
import os
import runpy
import sys
from pathlib import Path

STAGES = ("eager", "dynamo", "aot_eager", "backend", "capture")


class CaptureRefused(RuntimeError):
    pass


def _where(node):
    """file:line of the user's code that made the node."""
    trace = node.meta.get("stack_trace") or ""
    places = [part for part in trace.splitlines() if part.strip().startswith("File ")]
    return places[-1].strip() if places else ""


def _forbidden(target, torch):
    """Why the operator cannot be captured, or ''."""
    tags = getattr(target, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags:
        return "random operator"
    if torch.Tag.data_dependent_output in tags:
        return "reads a value on the host: synchronize"
    if torch.Tag.dynamic_output_shape in tags:
        return "shape depends on data"
    return ""


def _checked(backend, torch):
    """The backend, with a look at the operators of each graph before it runs."""

    def check(gm, inputs):
        for node in gm.graph.nodes:
            if node.op == "call_function" and (why := _forbidden(node.target, torch)):
                raise CaptureRefused(
                    f"{why} is not supported in graph capture\n"
                    f"While executing %{node.name} : call_function[target={node.target}]\n"
                    f"Original traceback:\n  {_where(node)}"
                )
        return gm.forward

    from torch._dynamo.backends.common import aot_autograd

    lowered = aot_autograd(fw_compiler=check)

    def compile(gm, inputs, **options):
        lowered(gm, inputs)
        return backend(gm, inputs, **options)

    return compile


def _bend(stage, torch):
    """torch.compile as the stage has it; the module is the one of this process."""
    real = torch.compile

    def bent(model=None, *, backend="inductor", options=None, **keywords):
        if stage in ("dynamo", "aot_eager"):
            chosen = "eager" if stage == "dynamo" else "aot_eager"
            return real(model, backend=chosen, **keywords)
        if backend in ("inductor", "cudagraphs", "aot_eager", "eager"):
            raise ValueError(
                f"backend {backend} is not one of an NPU: npugraph_ex or torchair's (GM-01)"
            )
        if stage == "capture":
            named = torch._dynamo.lookup_backend(backend) if isinstance(backend, str) else backend
            return real(model, backend=_checked(named, torch), **keywords)
        return real(model, backend=backend, options=options, **keywords)

    torch.compile = bent


def _count(report, torch):
    from torch._dynamo.utils import counters

    def write():
        breaks = {str(reason): n for reason, n in counters["graph_break"].items()}
        frames = counters["stats"].get("unique_graphs", 0)
        Path(report).write_text(json.dumps({"breaks": breaks, "graphs": frames}))

    atexit.register(write)


def main(argv):
    stage, report, script, *rest = argv
    sys.path[0] = str(Path(script).resolve().parent)
    import torch

    import tokamak.npu

    tokamak.npu.install()
    tokamak.npu.pass_on()
    if stage == "eager":
        torch.compiler.set_stance("force_eager")
    else:
        torch._logging.set_logs(recompiles=True)
        _bend(stage, torch)
    _count(report, torch)
    sys.argv = [script, *rest]
    runpy.run_path(script, run_name="__main__")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main(sys.argv[1:]))

"""torch_npu on a machine without an NPU and without torch_npu.

`import tokamak.npu` makes `import torch_npu`, `import torchair`, torch.npu, torch.ops.npu and the
device "npu" work; `python -m tokamak.npu SCRIPT` does it for a script that knows nothing of it.
Every number comes from the operators' C++ reference. docs/commands/npu.md has the whole story.
"""

import importlib
import os
import sys
from pathlib import Path

import torch

from . import autocast, compiled, device, functions, hccl, library, registry

__all__ = ["autocast", "compiled", "device", "functions", "hccl", "install", "library", "registry"]

SITE = Path(__file__).resolve().parent / "site"

_installed = []  # registrations with torch, which go when their object goes


def install():
    """Turns the emulation on; a second call does nothing."""
    if _installed:
        return
    operators = torch.library.Library("npu", "DEF")
    _installed.append(operators)
    registry.register(operators)
    graph_forms = torch.library.Library("torchair_graph", "DEF")
    _installed.append(graph_forms)
    registry.register_graph_forms(graph_forms)
    if str(SITE) not in sys.path:
        sys.path.insert(0, str(SITE))
    _installed.extend(device.install(importlib.import_module("torch_npu.npu")))
    _installed.extend(autocast.register())
    if torch.distributed.is_available():
        _installed.append(hccl.install())
    compiled.register_backends()


def pass_on():
    """Lets Python processes that this one starts find the packages too (torchrun, spawn)."""
    ours = [str(SITE), str(SITE.parents[2])]
    others = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p not in ours]
    os.environ["PYTHONPATH"] = os.pathsep.join(ours + [p for p in others if p])


# python -m tokamak.npu loads this package before __main__, which installs in its own time.
if not (sys.argv[:1] == ["-m"] and "tokamak.npu" in sys.orig_argv):
    install()

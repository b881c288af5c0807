"""torch_npu on a machine without an NPU and without torch_npu.

`import tokamak.npu` makes `import torch_npu`, `import torchair`, torch.npu, torch.ops.npu and the
device "npu" work; `python -m tokamak.npu SCRIPT` does it for a script that knows nothing of it.
Every number comes from the operators' C++ reference. docs/commands/npu.md has the whole story.
"""

import sys
from pathlib import Path

import torch

from . import functions, library, registry

__all__ = ["functions", "install", "library", "registry"]

SITE = Path(__file__).resolve().parent / "site"

_installed = []  # the torch.library that holds the definitions; they go with it


def install():
    """Turns the emulation on; a second call does nothing."""
    if _installed:
        return
    lib = torch.library.Library("npu", "DEF")
    registry.register(lib)
    _installed.append(lib)
    if str(SITE) not in sys.path:
        sys.path.insert(0, str(SITE))


install()

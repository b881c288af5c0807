"""torch_npu without an NPU: the modules and names of the library, computed by Tokamak.

It stands on sys.path while the emulation is on (tokamak.npu). What is not here says so.
"""

import tokamak.npu as _emulation

_emulation.install()


def __getattr__(name):
    return _emulation.functions.find(name)


def __dir__():
    return sorted([*globals(), *_emulation.functions.names()])

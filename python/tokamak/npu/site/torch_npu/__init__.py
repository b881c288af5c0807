"""torch_npu without an NPU: the modules and names of the library, computed by Tokamak.

It stands on sys.path while the emulation is on (tokamak.npu). What is not here says so.
"""

import tokamak.npu as _emulation
from tokamak.npu.formats import Format, empty_with_format, get_npu_format, npu_format_cast_
from tokamak.npu.memory import empty_with_swapped_memory

_emulation.install()

from . import _C, contrib, npu, profiler  # noqa: E402

__version__ = "2.14.0"
__all__ = [
    "_C",
    "Format",
    "contrib",
    "empty_with_format",
    "empty_with_swapped_memory",
    "get_npu_format",
    "npu",
    "npu_format_cast_",
    "profiler",
]

# Numbers of dtypes that torch does not have, for arguments as dst_type.
hifloat8 = 290
float8_e5m2 = 291
float8_e4m3fn = 292
float8_e8m0fnu = 293
float4_e2m1fn_x2 = 296
float4_e1m2fn_x2 = 297


def __getattr__(name):
    return _emulation.functions.find(name)


def __dir__():
    return sorted([*globals(), *_emulation.functions.names()])

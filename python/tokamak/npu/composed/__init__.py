"""Operators that one process can't compute alone, or that are made of other operators.

A function here replaces the plain run of the operator of that name:

    @composed("npu_mm_all_reduce_base")
    def mm_all_reduce_base(reference, *, x1, x2, hcom, **rest): ...

It gets every argument of the library's signature by name, defaults filled in, on the CPU.
`reference(x1=..., ...)` runs the operator's own C++ reference, limits checked; numerics come from
there. `reference.check(x1=..., ...)` checks the limits alone. Groups of HCCL are found by name with
`tokamak.npu.hccl.group(name)`.
Every module of this folder is loaded.
"""

import importlib
import pkgutil

COMPOSED = {}


def composed(name):
    def add(function):
        COMPOSED[name] = function
        return function

    return add


def load():
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")

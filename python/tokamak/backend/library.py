"""libtokamak_engine.so (src/capi/tokamak_engine.h) for Python."""

import ctypes
import functools
import json
import os

from ..binary import find_library as in_package
from ..dtypes import DTYPES
from ..errors import Error


class EngineTensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )


class EngineError(RuntimeError):
    """The engine refused a graph or a run; the text says why."""


def find_library():
    """TOKAMAK_ENGINE, the installed package, or this checkout's build. Raises Error TK1503."""
    path = os.environ.get("TOKAMAK_ENGINE") or in_package("libtokamak_engine.so")
    if os.path.isfile(path):
        return str(path)
    raise Error(
        "TK1503",
        f"the engine's library is not at {path}",
        help="build it: cmake --build --preset release --target tokamak_engine, "
        "or set TOKAMAK_ENGINE to where it is",
    )


@functools.cache
def load():
    library = ctypes.CDLL(find_library())
    tensors = ctypes.POINTER(EngineTensor)
    library.tk_engine_text.restype = ctypes.c_char_p
    library.tk_engine_new.restype = ctypes.c_void_p
    library.tk_engine_new.argtypes = (
        ctypes.c_char_p,
        *(tensors, ctypes.c_int, tensors, ctypes.c_int),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p),
    )
    library.tk_engine_pool_new.restype = ctypes.c_void_p
    library.tk_engine_pool_delete.argtypes = (ctypes.c_void_p,)
    library.tk_engine_pool_delete.restype = None
    library.tk_engine_delete.argtypes = (ctypes.c_void_p,)
    library.tk_engine_delete.restype = None
    library.tk_engine_run.argtypes = (
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_int64),
        ctypes.c_int,
        *(tensors, ctypes.c_int, tensors, ctypes.c_int, tensors, ctypes.c_int),
    )
    library.tk_engine_check.argtypes = (ctypes.c_char_p,)
    for name in ("describe", "graph", "profile"):
        getattr(library, f"tk_engine_{name}").argtypes = (ctypes.c_void_p,)
    return library


def text():
    return load().tk_engine_text().decode()


def check(failed):
    if failed:
        raise EngineError(text())


@functools.cache
def operators():
    """{name: {"tensors", "attrs", "kernel", "view"}} of everything that a graph can hold."""
    check(load().tk_engine_operators())
    return {op["name"]: op for op in json.loads(text())}


def int64s(values):
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def describe_tensor(to, tensor, name=None):
    """Fills an EngineTensor; what it points to is kept alive by the sizes that are returned."""
    shape, strides = int64s(tensor.shape), int64s(tensor.stride())
    to.name = name
    to.dtype = DTYPES[tensor.dtype].encode()
    to.data = tensor.data_ptr()
    to.rank = tensor.dim()
    to.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    to.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    return shape, strides


def tensor_array(tensors, names=None):
    """(array, what must be kept alive with it)"""
    array = (EngineTensor * max(1, len(tensors)))()
    names = [n.encode() for n in names] if names else [None] * len(tensors)
    keep = [describe_tensor(array[i], t, names[i]) for i, t in enumerate(tensors)]
    return array, (keep, names)

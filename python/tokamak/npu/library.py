"""The operators of torch_npu in C++ (src/capi/tokamak_npu.h), called on torch tensors.

An Operator is what the C++ side knows of one; `infer`, `check` and `run` take its tensors in the
order of its own schema (None where absent) and its attributes by name. Numerics are there alone.
"""

import ctypes
import dataclasses
import functools
import json
import os
import re
from pathlib import Path

import torch

from ..binary import find_library as in_package
from ..dtypes import DTYPES
from ..errors import Error
from . import symbolic

TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("dtype", ctypes.c_char_p),
        ("shape", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Attr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class _Call(ctypes.Structure):
    _fields_ = [
        ("op", ctypes.c_char_p),
        ("inputs", ctypes.POINTER(_Tensor)),
        ("n_inputs", ctypes.c_int),
        ("attrs", ctypes.POINTER(_Attr)),
        ("n_attrs", ctypes.c_int),
    ]


def find_library():
    """The path of libtokamak_npu.so: TOKAMAK_NPU_LIB, the installed package, this checkout's build.

    Raises Error TK1015 when it is at neither.
    """
    named = os.environ.get("TOKAMAK_NPU_LIB")
    path = Path(named) if named else in_package("libtokamak_npu.so")
    if path.is_file():
        return path
    raise Error(
        "TK1015",
        f"the library of torch_npu's operators is not at {path}",
        help="build it (cmake --preset release && cmake --build --preset release), or set "
        "TOKAMAK_NPU_LIB to where libtokamak_npu.so is",
    )


@functools.cache
def _library():
    lib = ctypes.CDLL(str(find_library()))
    lib.tk_npu_text.restype = ctypes.c_char_p
    lib.tk_npu_rehome.restype = ctypes.c_void_p
    lib.tk_npu_rehome.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
    lib.tk_npu_memory_used.restype = lib.tk_npu_memory_peak.restype = ctypes.c_int64
    return lib


def rehome(managed, device_type, index, counted):
    """See src/capi/memory.cpp."""
    return _library().tk_npu_rehome(managed, device_type, index, counted)


def memory_used():
    return _library().tk_npu_memory_used()


def memory_peak():
    return _library().tk_npu_memory_peak()


def reset_memory_peak():
    _library().tk_npu_memory_reset_peak()


def _checked(status):
    text = _library().tk_npu_text().decode()
    if status == 1:
        code, message = re.match(r"error\[(\w+)\]: (.*)", text, re.DOTALL).groups()
        raise RuntimeError(f"{message}\n[ERROR] ERR01001 OPS invalid parameter ({code})")
    if status != 0:
        raise AssertionError(text)
    return text


def literal(value):
    """An attribute in the text form of graphs."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value)
        return text if any(c in text for c in ".en") else text + ".0"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(literal, value)) + "]"
    return symbolic.text(value)


def dtype_name(dtype):
    if dtype not in DTYPES:
        raise RuntimeError(f"{dtype} is not supported by the operators of this emulation")
    return DTYPES[dtype]


def _attrs(attrs):
    pairs = [_Attr(k.encode(), literal(v).encode()) for k, v in attrs.items() if v is not None]
    return (_Attr * len(pairs))(*pairs), len(pairs)


def _tensor(t, contents):
    if t is None:
        return _Tensor()
    shape = "[" + ", ".join(map(symbolic.text, t.shape)) + "]"
    if not contents:
        return _Tensor(dtype_name(t.dtype).encode(), shape.encode())
    strides = (ctypes.c_int64 * t.dim())(*t.stride())
    return _Tensor(dtype_name(t.dtype).encode(), shape.encode(), t.data_ptr(), strides)


def _call(op, tensors, attrs, contents):
    inputs = (_Tensor * len(tensors))(*(_tensor(t, contents) for t in tensors))
    pairs, n = _attrs(attrs)
    return _Call(op.name.encode(), inputs, len(tensors), pairs, n)


@dataclasses.dataclass(frozen=True)
class Operator:
    name: str  # "npu_rms_norm"
    schema: str
    doc: str
    tensors: list  # of the schema: [{"name", "optional", "list"}]
    attrs: list  # [{"name", "kind", "list"}]
    updates: list  # output i is input updates[i] changed in place
    # Of NpuFacts: group, signature, source, documented, a2, a3, graph_mode, symbols, limits.
    facts: dict | None

    def infer(self, tensors, attrs):
        """(dtype, shape) of each result; sizes may be torch.SymInt."""
        call = _call(self, tensors, attrs, contents=False)
        types = json.loads(_checked(_library().tk_npu_infer(ctypes.byref(call))))
        sizes = symbolic.sizes_of(tensors, attrs)
        return [
            (TORCH_DTYPES[dtype], [symbolic.evaluate(d, sizes) for d in shape])
            for dtype, shape in types
        ]

    def check(self, tensors, attrs, soc, facts, contents=True):
        """The violated limits: [{"id", "expr", "why", "values", "change"?}]."""
        call = _call(self, tensors, attrs, contents)
        pairs, n = _attrs(facts)
        status = _library().tk_npu_check(ctypes.byref(call), soc.encode(), pairs, n)
        return json.loads(_checked(status))

    def run(self, tensors, attrs):
        """The results, new ones allocated by torch; inputs changed in place are among them."""
        types = self.infer(tensors, attrs)
        results, outputs = [], []
        for i, (dtype, shape) in enumerate(types):
            update = self.updates[i] if i < len(self.updates) else -1
            changed = tensors[update] if update >= 0 else None
            new = torch.empty(shape, dtype=dtype) if changed is None else None
            results.append(changed if new is None else new)
            outputs.append(_tensor(new, contents=True))
        call = _call(self, tensors, attrs, contents=True)
        array = (_Tensor * len(outputs))(*outputs)
        _checked(_library().tk_npu_run(ctypes.byref(call), array, len(outputs)))
        return results


@functools.cache
def operators():
    """Every operator by name."""
    found = json.loads(_checked(_library().tk_npu_operators()))
    fields = [f.name for f in dataclasses.fields(Operator)]
    return {o["name"]: Operator(**{f: o.get(f) for f in fields}) for o in found}

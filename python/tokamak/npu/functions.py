"""torch_npu.npu_*: the functions that the library puts on its module, over torch.ops.npu.

A call that the signature does not allow is a TypeError there and here; the message names what the
dispatcher found wrong and the whole signature. A function of the library without an operator here
can be imported, as scripts do with many that they don't use; calling it says what it is like.
"""

import difflib
import functools
from pathlib import Path

import torch

from . import library

_WRONG_CALL = ("Declaration: npu::", "Schema: npu::")  # ends the dispatcher's complaints


@functools.cache
def library_names():
    """Functions of torch_npu (op-plugin, custom operators for inference and training)."""
    return frozenset(Path(__file__).with_name("names.txt").read_text().split())


def names():
    """Those that are here."""
    return [o.name for o in library.operators().values() if o.facts is not None]


def nearest(name):
    """Up to four functions of like spelling, or made of the same words."""
    candidates = names()
    words = {w for w in name.split("_") if w not in ("npu", "v2", "v3", "")}
    close = difflib.get_close_matches(name, candidates, n=4, cutoff=0.6)
    shared = sorted(candidates, key=lambda c: -len(words & set(c.split("_"))))
    related = [c for c in shared if 2 * len(words & set(c.split("_"))) >= max(len(words), 2)]
    return list(dict.fromkeys(close + related))[:4]


def _hint(name):
    found = nearest(name)
    return f"; the nearest are {', '.join(found)}" if found else ""


@functools.cache
def find(name):
    """torch_npu.<name>; AttributeError with the nearest relatives when there is none."""
    if name.startswith("_"):
        raise AttributeError(f"module 'torch_npu' of this emulation has no '{name}'")
    if name in names():
        return _function(name, getattr(torch.ops.npu, name))
    if name in library_names():
        return _lacking(name)
    raise AttributeError(f"module 'torch_npu' of this emulation has no '{name}'{_hint(name)}")


def _function(name, packet):
    def function(*args, **kwargs):
        try:
            return packet(*args, **kwargs)
        except RuntimeError as error:
            if any(mark in str(error) for mark in _WRONG_CALL):
                raise TypeError(str(error).replace("npu::", "")) from None
            raise

    function.__doc__ = str(getattr(packet, packet.overloads()[0])._schema)
    return _named(function, name)


def _lacking(name):
    def function(*args, **kwargs):
        raise NotImplementedError(
            f"torch_npu.{name} is not in this emulation{_hint(name)}"
            " (`tokamak ops list` has all that are)"
        )

    return _named(function, name)


def _named(function, name):
    function.__name__ = function.__qualname__ = name
    function.__module__ = "torch_npu"
    return function

"""torch_npu.npu_*: the functions that the library puts on its module, over torch.ops.npu.

A call that the signature does not allow is a TypeError there and here; the message names what the
dispatcher found wrong and the whole signature.
"""

import difflib
import functools

import torch

_WRONG_CALL = ("Declaration: npu::", "Schema: npu::")  # ends the dispatcher's complaints


def names():
    return dir(torch.ops.npu)


def nearest(name, candidates):
    close = difflib.get_close_matches(name, candidates, n=4, cutoff=0.6)
    words = {w for w in name.split("_") if w not in ("npu", "v2", "v3", "")}
    shared = sorted(candidates, key=lambda c: -len(words & set(c.split("_"))))
    relatives = [c for c in shared if len(words & set(c.split("_"))) >= 2]
    return list(dict.fromkeys(close + relatives))[:4]


@functools.cache
def find(name):
    """torch_npu.<name>; AttributeError with the nearest relatives when there is none."""
    if name.startswith("__"):
        raise AttributeError(name)
    packet = getattr(torch.ops.npu, name, None) if not name.startswith("_") else None
    if packet is None:
        relatives = nearest(name, [n for n in names() if not n.startswith("_")])
        hint = f"; the nearest are {', '.join(relatives)}" if relatives else ""
        raise AttributeError(f"module 'torch_npu' of this emulation has no '{name}'{hint}")

    def function(*args, **kwargs):
        try:
            return packet(*args, **kwargs)
        except RuntimeError as error:
            if any(mark in str(error) for mark in _WRONG_CALL):
                raise TypeError(str(error).replace("npu::", "")) from None
            raise

    function.__name__ = function.__qualname__ = name
    function.__module__ = "torch_npu"
    function.__doc__ = str(getattr(packet, packet.overloads()[0])._schema)
    return function

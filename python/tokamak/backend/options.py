"""Options of torch.compile(model, backend="tokamak", options={...})."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ..errors import Error


@dataclass(frozen=True)
class Options:
    threads: int = 0
    """Threads of the engine; 0: what torch.get_num_threads() says when a graph is compiled."""

    fuse: bool = True
    """Whether the moves fuse operators. Without, numbers are those of the single operators."""

    fallback: bool = True
    """Whether PyTorch runs what Tokamak cannot; False: that is an error (TK1504)."""

    min_nodes: int = 4
    """Parts of a graph with fewer operators than this, cut out by others, stay with PyTorch."""

    plan_cache: str = ""
    """A folder in which rewritten graphs are kept for the next process; "": none are."""


KNOWN = {f.name: f.type for f in fields(Options)}
MOST = 1024  # threads, as everywhere; of operators a graph has fewer than that by far
WANTED = {int: f"a whole number from 0 to {MOST}", bool: "True or False", str: "a text"}


def _fits(value, kind):
    if type(value) is not kind:
        return False
    if kind is int:
        return 0 <= value <= MOST
    return kind is not str or "\0" not in value  # C would read the name of another folder


def read_options(given):
    """An Options of a dict; Error TK1501 for an unknown name, TK1502 for a wrong value."""
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise Error("TK1502", f"options must be a dict, got {given!r}")
    for name, value in given.items():
        if name not in KNOWN:
            near = difflib.get_close_matches(str(name), KNOWN, 1)
            raise Error(
                "TK1501",
                f"unknown option {name!r} of the tokamak backend",
                notes=[f"options are: {', '.join(KNOWN)}"],
                help=f"did you mean {near[0]!r}?" if near else None,
            )
        wanted = KNOWN[name]
        if not _fits(value, wanted):
            raise Error("TK1502", f"option {name!r} must be {WANTED[wanted]}, got {value!r}")
    return Options(**given)

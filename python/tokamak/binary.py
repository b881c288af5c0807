"""Where the `tokamak` command and the libraries of the C++ side are."""

import os
import shutil
from pathlib import Path

from .errors import Error

CHECKOUT = Path(__file__).resolve().parents[2]


def find_library(name):
    """Where lib*.so of the C++ side is: in the installed package, or in this checkout's build. The
    last place that was looked at when it is at neither."""
    inside = Path(__file__).resolve().parent / "native" / name
    return inside if inside.is_file() else CHECKOUT / "build" / "lib" / name


def find_binary():
    """The path of the `tokamak` command: TOKAMAK_BIN, this checkout's build, then PATH.

    Raises Error TK1012 when it is at none of them.
    """
    named = os.environ.get("TOKAMAK_BIN")
    if named:
        if os.access(named, os.X_OK) and os.path.isfile(named):
            return Path(named)
        raise Error(
            "TK1012",
            f"TOKAMAK_BIN is {named}, which is not a program",
            help="set it to the built command, or unset it",
        )
    built = CHECKOUT / "build" / "bin" / "tokamak"
    if built.is_file():
        return built
    on_path = shutil.which("tokamak")
    if on_path:
        return Path(on_path)
    raise Error(
        "TK1012",
        f"the tokamak command is neither at {built} nor on PATH",
        help="build it: cmake --preset release && cmake --build --preset release",
    )

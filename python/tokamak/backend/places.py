"""Where a node of an FX graph comes from."""

import os
import re
from typing import NamedTuple

FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
TEXT = re.compile(r"[^\w.\-]")


class Place(NamedTuple):
    module: str = ""
    kind: str = ""  # the module's class
    file: str = ""
    line: int = 0

    def __str__(self):
        return f"{self.file}:{self.line}" if self.file else "(no place known)"


def place_of(node):
    frames = FRAME.findall(node.meta.get("stack_trace") or "")
    file, line = (frames[-1][0], int(frames[-1][1])) if frames else ("", 0)
    module = kind = ""
    stack = node.meta.get("nn_module_stack")
    if stack:
        path, cls = list(stack.values())[-1]
        module = re.sub(r"^L\['(\w+)'\]\.?", "", path).replace("._modules.", ".")
        module = re.sub(r"\['(\w+)'\]", r"\1", module).strip(".")
        kind = cls if isinstance(cls, str) else cls.__name__
        kind = kind.rsplit(".", 1)[-1]
    return Place(module, kind, file, line)


def text_of(place):
    """As the text form of graphs has it."""
    parts = []
    if place.module:
        parts.append(f'@"{TEXT.sub("_", place.module)}"')
        if place.kind.isidentifier():
            parts.append(place.kind)
    if place.file:
        name = TEXT.sub("_", os.path.basename(place.file))
        parts.append(f"({name}:{place.line})")
    return " ".join(parts)

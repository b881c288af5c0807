"""Lines of log files without what loggers put in front, one at a time."""

import gzip
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from ..errors import Error

MAX_LINE = 1 << 16  # characters of a line that are looked at

_PROCESS = re.compile(r"^\((?P<name>[A-Za-z_][\w-]*)(?:\s+pid=\d+)?\)\s*")
_RANK = re.compile(r"^\[?(?P<rank>rank\s?\d+)\]?:\s?")
# I0421 11:03:22.511000 30877 torch/_dynamo/guards.py:2997] [0/2] [__recompiles] text
_GLOG = re.compile(
    r"^(?:\[[\w ]+\]:)?[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+?:\d+\] ?(?:\[[-\w!]+(?:/\d+)+(?:_\d+)?\] ?)?"
)
# ERROR 06-05 09:30:44 [core.py:1101] text     INFO 04-21 11:02:10 text
_LEVEL = re.compile(
    r"^(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)[ :]+(?:\d{2,4}-)?\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)? ?"
    r"(?:\[[^\]]*\] ?)?"
)
# 2026-04-21 09:14:51,033 - INFO - text
_DATED = re.compile(
    r"^\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?\]?[ \-]*"
    r"(?:\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\]?[ :\-]*)?"
)
_TRAILER = re.compile(r"\[FUNC:.*$")


@dataclass(frozen=True)
class Line:
    """`text` is without prefixes; `where` is file:line, counted from 1."""

    file: str
    number: int
    text: str
    source: str  # process or rank that wrote it, "" when the log does not say

    @property
    def where(self):
        return f"{self.file}:{self.number}"


def _plain(raw):
    """(who wrote it, the text)."""
    source = ""
    text = raw
    while True:
        for pattern in (_PROCESS, _RANK):
            if match := pattern.match(text):
                source = source or match.group(1)
                text = text[match.end() :]
                break
        else:
            break
    for pattern in (_GLOG, _LEVEL, _DATED):
        if match := pattern.match(text):
            text = text[match.end() :]
            break
    return source, _TRAILER.sub("", text).rstrip()


def log_files(paths):
    """The files that are meant: a folder stands for the logs under it, in order of name."""
    found = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(
                p
                for p in path.rglob("*")
                if p.is_file() and re.search(r"\.(log|txt|out|err)(\.\d+)?(\.gz)?$", p.name)
            )
            if not inside:
                raise Error(
                    "TK1301",
                    f"{path}: no log in this folder",
                    notes=("looked for *.log, *.txt, *.out and *.err, also with .gz",),
                    help="name the files themselves",
                )
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise Error("TK1301", f"{path}: no such file", help="give a log, or a folder of logs")
    return found


def read(path):
    """The lines of one log, plain or gzip; bytes that are not UTF-8 are replaced."""
    try:
        with open(path, "rb") as head:
            zipped = head.read(2) == b"\x1f\x8b"
        with (gzip.open if zipped else open)(path, "rb") as stream:
            number = 0
            while raw := stream.readline(MAX_LINE):
                number += 1
                while not raw.endswith(b"\n") and (more := stream.readline(MAX_LINE)):
                    if more.endswith(b"\n"):
                        break
                source, text = _plain(raw.decode("utf-8", "replace").rstrip("\r\n"))
                yield Line(str(path), number, text, source)
    except (OSError, EOFError, zlib.error) as failed:
        raise Error(
            "TK1302",
            f"{path}: cannot be read to its end: {failed}",
            help="copy the log again; a .gz that was cut short has to be unpacked by hand first",
        ) from None

"""Python files: found, read, parsed, with their `# tokamak: ignore[...]` comments."""

import ast
import re
import tokenize
from io import BytesIO
from pathlib import Path

from ..errors import Error

MAX_BYTES = 4 << 20  # of one file; modelling files have 0.2 MiB, and a tree takes 100 times that
_IGNORE = re.compile(r"#\s*tokamak:\s*ignore(?:\[([\w\-, ]*)\])?")
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "build", "dist"}


class Source:
    """A parsed file: `path` as the user named it, `tree`, `lines`, and which rules each ignores."""

    def __init__(self, path, text, tree):
        self.path = str(path)
        self.text = text
        self.tree = tree
        self.name = Path(path).stem
        self.ignores = _ignores(text) if "tokamak:" in text else {}
        self._lines = None

    @property
    def lines(self):
        if self._lines is None:
            self._lines = self.text.splitlines()
        return self._lines

    def segment(self, node):
        """The lines of a statement, as one text."""
        return "\n".join(self.lines[node.lineno - 1 : node.end_lineno])

    def ignored(self, rule, line):
        rules = self.ignores.get(line)
        return rules is not None and (not rules or rule in rules)


def _ignores(text):
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _IGNORE.search(line)
        if match:
            names = (match.group(1) or "").split(",")
            found[number] = {n.strip() for n in names if n.strip()}
    return found


def find_files(paths):
    """The Python files of `paths` (files and folders), each once, in order. Raises TK1101."""
    files = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = [
                p
                for p in sorted(path.rglob("*.py"))
                if not any(
                    part.startswith(".") or part in _SKIPPED_FOLDERS
                    for part in p.relative_to(path).parts[:-1]
                )
                and p.is_file()
            ]
            if not inside:
                raise Error(
                    "TK1101",
                    f"there is no Python file in {path}",
                    help="name the file, or the folder with the modelling code",
                )
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise Error(
                "TK1101",
                f"{path} is not there"
                if not path.exists()
                else f"{path} is neither a file nor a folder",
                help="name Python files, or folders with Python files",
            )
    return list(dict.fromkeys(files))


def read(path):
    """Reads and parses one file. Raises TK1101 (unreadable, too large) and TK1102 (no Python)."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise Error(
                "TK1101",
                f"{path} has {size / (1 << 20):.1f} MiB; at most {MAX_BYTES >> 20} are read",
                help="name the modelling files, not a folder with generated ones",
            )
        data = path.read_bytes()
    except OSError as error:
        raise Error("TK1101", f"cannot read {path}: {error.strerror or error}") from error
    return parse(path, data)


def parse(path, data):
    text = _decode(path, data)
    try:
        return Source(path, text, ast.parse(data, filename=str(path)))
    except SyntaxError as error:
        raise Error(
            "TK1102",
            f"not Python {_version()}: {error.msg}",
            file=str(path),
            line=error.lineno,
            help="mend the file; newer syntax needs a newer interpreter (set TOKAMAK_PYTHON)",
        ) from error
    except ValueError as error:  # null bytes
        raise Error("TK1102", f"not Python: {error}", file=str(path)) from error
    except (RecursionError, MemoryError) as error:
        raise Error(
            "TK1102",
            "nested too deeply to be parsed",
            file=str(path),
            help="name the modelling files, not generated ones",
        ) from error


def _decode(path, data):
    encoding = "utf-8"
    try:
        # detect_encoding refuses the first lines itself, and does not say what is wrong in them.
        encoding, _ = tokenize.detect_encoding(BytesIO(data).readline)
    except (SyntaxError, LookupError) as error:
        if "unknown encoding" in str(error):
            raise Error(
                "TK1102",
                f"the encoding that the file names is not known: {error}",
                file=str(path),
                line=1,
                help="save the file as UTF-8",
            ) from error
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise Error(
            "TK1102",
            f"byte 0x{data[error.start]:02x} is not {error.encoding}",
            file=str(path),
            line=data[: error.start].count(b"\n") + 1,
            help="save the file as UTF-8, or name its encoding in the first line",
        ) from error


def _version():
    import sys

    return f"{sys.version_info[0]}.{sys.version_info[1]}"

"""From files to findings."""

import sys

from . import configuration
from .entries import compile_sites, find_entries
from .interpret import Interpreter
from .program import Program
from .report import Reporter
from .source import find_files, read

BACKENDS = ("npugraph_ex", "ge_graph")


class Result:
    __slots__ = ("entries", "findings", "ignored", "n_files")

    def __init__(self, findings, entries, n_files, ignored):
        self.findings = findings
        self.entries = entries
        self.n_files = n_files
        self.ignored = ignored


def lint(paths, entry=None, backend=None):
    """The findings in the Python files of `paths`, which are read as one program.

    `entry` is CLASS.METHOD or FUNCTION; without it the code says what is compiled, or its names
    do. `backend` is npugraph_ex or ge_graph; without it the one that the code names, else both.
    Raises tokamak.Error TK1101 to TK1103.
    """
    files = find_files(paths)
    return lint_sources([read(f) for f in files], entry, backend)


def lint_sources(sources, entry=None, backend=None):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 8000))  # MAX_NESTING levels have some frames each
    try:
        return _lint_program(Program(sources), entry, backend)
    finally:
        sys.setrecursionlimit(limit)


def _lint_program(program, entry, backend):
    sites = compile_sites(program)
    reporter = Reporter()
    entries = find_entries(program, sites, entry)
    length_lists = []
    for function in entries:
        backends = _backends(function, sites, backend)
        prefill = "prefill" in function.name or "prompt" in function.name
        run = Interpreter(program, reporter, backends, prefill)
        run.run_entry(function)
        length_lists.append((function, run.length_lists))
    configuration.check(program, sites, reporter, length_lists, backend)
    return Result(
        reporter.findings(), [f.qualified for f in entries], len(program.modules), reporter.ignored
    )


def _backends(function, sites, backend):
    if backend is not None:
        return {backend}
    named = {s.backend for s in sites if s.function is function} & set(BACKENDS)
    if not named:
        named = {s.backend for s in sites} & set(BACKENDS)
    return named or set(BACKENDS)

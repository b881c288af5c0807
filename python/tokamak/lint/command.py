"""tokamak lint, python -m tokamak.lint: the command line."""

import argparse

from .. import __version__
from ..command_line import finish
from . import report
from .linter import BACKENDS, lint

EXAMPLE = """examples:
  tokamak lint modeling_llama.py
  tokamak lint models --entry LlamaForCausalLM.decode --backend ge_graph --json"""


def _parser():
    parser = argparse.ArgumentParser(
        prog="tokamak lint",
        description="Finds what breaks, recompiles or falsifies a model in graph mode "
        "(npugraph_ex, ge_graph), in its Python source. Nothing is run.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("paths", metavar="FILE|DIR", nargs="+", help="read together as one program")
    add("--entry", metavar="CLASS.METHOD", help="what is compiled (what the code says)")
    add("--backend", choices=BACKENDS, help="(what the code says, else both)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="findings as JSON")
    form.add_argument("--sarif", action="store_true", help="findings as SARIF 2.1")
    return parser


def main(arguments=None):
    """Returns the exit code: 0 nothing found, 1 hazards, 2 bad usage or input, 3 our bug."""
    options = _parser().parse_args(arguments)
    return finish(_run, options)


def _run(options):
    result = lint(options.paths, options.entry, options.backend)
    findings = result.findings
    if options.json:
        print(report.to_json(findings))
    elif options.sarif:
        print(report.to_sarif(findings, __version__))
    else:
        print(report.to_text(findings, result.n_files, result.entries))
    return 1 if any(f.rule.level != "slow" for f in findings) else 0

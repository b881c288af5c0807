"""tokamak emit profiling --project: the project's own way of collecting, or a snippet (PF-01)."""

import argparse
import os
from pathlib import Path

from ..binary import find_binary
from ..command_line import finish
from ..errors import Error
from .framework import plan
from .way import find_way


def _parser():
    parser = argparse.ArgumentParser(
        prog="tokamak emit profiling",
        description="Says how a project's profile is collected: with the switch that it has (a "
        "patch), or with code that is put in. Other options are those of `tokamak emit profiling`.",
    )
    add = parser.add_argument
    add("--project", metavar="DIR", required=True)
    add("--way", choices=("auto", "framework", "inject"), default="auto")
    add("--yaml", metavar="FILE", help="configuration of the run, for the switch")
    add("--stage", choices=("prefill", "decode", "both", "timeline"), default="both")
    add("--decode-steps", type=int)
    add("--prefill-steps", type=int)
    add("--skip", type=int)
    add("-o", "--output", metavar="FILE", help="file to write (default: stdout)")
    return parser


def main(arguments=None):
    """Returns the exit code: 0 done, 2 bad usage or input, 3 our bug."""
    options, others = _parser().parse_known_args(arguments)
    return finish(_run, options, others)


def _run(options, others):
    root = Path(options.project)
    if not root.is_dir() or not any(root.iterdir()):
        raise Error(
            "TK1701",
            "the project is an empty folder" if root.is_dir() else "there is no such project",
            file=str(root),
            help="give the folder of the project's sources",
        )
    for path in (options.yaml,):
        if path and not Path(path).is_file():
            raise Error("TK1701", "there is no such file", file=path, help="give the run's YAML")
    way, why, place = find_way(root)
    if options.way == "auto":
        where = f" ({place})" if place else ""
        print(f"way: {way}: {why}{where}", flush=True)
    else:
        way = options.way
    if way == "inject":
        snippet = [f"--stage={options.stage}"]
        for name in ("decode_steps", "prefill_steps", "skip", "output"):
            value = getattr(options, name)
            if value is not None:
                snippet.append(f"--{name.replace('_', '-')}={value}")
        binary = str(find_binary())
        os.execv(binary, [binary, "emit", "profiling", *snippet, *others])
    if others or options.stage == "timeline":
        raise Error(
            "TK1703",
            f"the framework cannot be told {' '.join(others) or '--stage timeline'}: its level, "
            "metrics and folders are fixed",
            help="leave it out, or --way inject",
        )
    text = plan(
        root, options.yaml, options.stage, options.decode_steps, options.prefill_steps, options.skip
    )
    if options.output:
        Path(options.output).write_text(text)
    else:
        print(text, end="")
    return 0

"""tokamak diagnose: the command line."""

import argparse
import sys

from ..command_line import finish
from ..errors import Error
from .graph_log import BACKENDS, diagnose_logs
from .stages import run_stages, stages_json, stages_text

EXAMPLE = """examples:
  tokamak diagnose --job graph serve.log
  tokamak diagnose --job graph logs/ --warmup-steps 3 --json
  tokamak diagnose --job graph infer.py -- --batch 4"""


def _parser():
    parser = argparse.ArgumentParser(
        prog="tokamak diagnose",
        description="Says why a run failed or recompiles: from its logs, or by running a script "
        "stage by stage on the emulation (eager, Dynamo, AOT, backend, capture).",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--job", choices=("graph",), required=True, help="graph: graph mode (npugraph_ex, ge_graph)"
    )
    add("paths", metavar="LOG|DIR|SCRIPT", nargs="+", help="logs of one run, or one script (.py)")
    add("--backend", choices=BACKENDS, help="(what the log says)")
    add("--warmup-steps", type=int, metavar="N", help='steps before serving (the line "warm up")')
    add("--timeout", type=float, default=600, metavar="S", help="seconds for each stage (600)")
    add(
        "--log-dir",
        metavar="DIR",
        help="where the output of the stages is kept (a new folder in /tmp)",
    )
    add("--json", action="store_true", help="for machines")
    return parser


def main(arguments=None):
    """Returns the exit code: 0 no fault, 1 a fault or pending, 2 bad usage or input, 3 our bug."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    rest = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, rest = arguments[:at], arguments[at + 1 :]
    options = _parser().parse_args(arguments)
    return finish(_run, options, rest)


def _run(options, rest):
    if options.warmup_steps is not None and options.warmup_steps < 0:
        raise Error("TK1303", f"--warmup-steps is {options.warmup_steps}, expected 0 or more")
    scripts = [p for p in options.paths if p.endswith(".py")]
    if scripts:
        if len(options.paths) != 1:
            raise Error(
                "TK1304",
                f"{scripts[0]} is a script: it is run alone",
                help="give one script, or logs only; arguments of the script follow --",
            )
        stages = run_stages(
            scripts[0],
            rest,
            options.timeout,
            options.warmup_steps,
            options.log_dir,
            progress=lambda text: print(text, file=sys.stderr),
        )
        print(stages_json(stages) if options.json else stages_text(stages), end="")
        return 0 if all(s.status == "ok" for s in stages) else 1
    diagnosis = diagnose_logs(options.paths, options.backend, options.warmup_steps)
    print(diagnosis.json() if options.json else diagnosis.text(), end="\n" if options.json else "")
    return diagnosis.exit_code

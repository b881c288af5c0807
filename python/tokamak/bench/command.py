"""tokamak bench --read-log: the command line."""

import argparse
import json
import os
import sys
from pathlib import Path

from ..command_line import finish
from ..errors import Error
from .metadata import metadata, settings_of
from .run_log import read_run

EXAMPLE = """examples:
  tokamak bench --read-log res/20260302/qwen3_8b_default
  tokamak bench --read-log log_0.log --yaml config/qwen3_8b.yaml -o baseline_metadata.json"""


def _parser():
    parser = argparse.ArgumentParser(
        prog="tokamak bench",
        description="Reads prefill and decode times, and the text, of a run on a real NPU from the "
        "logs of cann-recipes-infer or of an emitted runner.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--read-log", metavar="LOG|DIR", required=True, help="a log, or a folder with log_*.log")
    add("--yaml", metavar="FILE", help="of that run: number of ranks, mode, model")
    add("--ranks", type=int, metavar="N", help="number of ranks (world_size of the YAML)")
    add("--target", metavar="NAME", help="a2, a3: written into the file")
    add("--model-source", metavar="URL", help="written into the file")
    add("-o", "--output", metavar="FILE", help="writes baseline_metadata.json")
    add("--json", action="store_true", help="the whole reading, for machines")
    return parser


def main(arguments=None):
    """Returns the exit code: 0 valid, 1 missing or not valid, 2 bad input, 3 our bug."""
    return finish(_run, _parser().parse_args(arguments))


def _run(options):
    ranks = options.ranks
    if options.yaml:
        try:
            world = settings_of(options.yaml).get("world_size", "")
        except OSError as error:
            raise Error(
                "TK1210", f"cannot read {options.yaml}: {error.strerror}", help="give its YAML file"
            ) from error
        ranks = ranks or (int(world) if world.isdigit() else None)
    if ranks is not None and ranks < 1:
        raise Error("TK1211", f"--ranks is {ranks}, expected 1 or more")
    reading = read_run(options.read_log, ranks)
    problems = _problems(reading, options.yaml)
    if options.output:
        found = metadata(reading, options.yaml, options.model_source, options.target)
        _write(Path(options.output), json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if options.json:
        print(json.dumps({**reading, "problems": problems}, indent=1, ensure_ascii=False))
    else:
        print("\n".join(_lines(reading)))
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _problems(reading, yaml_path):
    problems = []
    for key, what in (("prefill_ms", "prefill"), ("decode_avg_ms", "decode")):
        if reading[key] is None:
            problems.append(f"no time of {what} in {reading['log']}")
    if not reading["all_ranks_success"]:
        ranks = ", ".join(map(str, reading["failed_ranks"]))
        problems.append(f"not every rank ended well: {ranks}")
    if not reading["outputs"]:
        problems.append("there is no text")
    elif not reading["readable"]:
        problems.append("the text is not valid: empty, not printable, or one phrase over and over")
    if yaml_path and os.path.getmtime(yaml_path) > os.path.getmtime(reading["log"]):
        problems.append(f"stale: {yaml_path} is newer than the log")
    return problems


def _ms(value):
    return "-" if value is None else f"{value:.3f} ms"


def _lines(reading):
    batches, steps = len(reading["prefill_batches_ms"]), reading["decode_steps"]
    outputs = reading["outputs"]
    yield f"log       {reading['log']} ({reading['format'] or 'no times'})"
    in_batches = f" in {batches} batches" if batches > 1 else ""
    yield f"prefill   {_ms(reading['prefill_ms'])}{in_batches}"
    yield f"decode    {_ms(reading['decode_avg_ms'])}, {steps} steps without the first"
    yield f"          {_ms(reading['decode_avg_iqr_ms'])} without outliers"
    yield f"          {_ms(reading['decode_first_ms'])} the first"
    for key, value in reading.get("mtp", {}).items():
        yield f"draft     {key} {value:g}"
    for number, text in enumerate(outputs):
        line = " ".join(text.split())
        yield f"text {number:<4} {line[:80]}{'...' if len(line) > 80 else ''}"
    for note in reading["notes"]:
        yield f"note      {note}"


def _write(path, text):
    """Whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise Error(
            "TK1212",
            f"cannot write {path}: {error.strerror}",
            help="give a file in a folder that exists",
        ) from error

#!/usr/bin/env python3
"""Measures Tokamak beside its peers, in alternating rounds, and prints the table of ratios.

    bench/run.py --work WORK [--models smollm2] [--contexts 128,4096] [--rounds 3] [--out rows.json]

WORK holds the peers and the models (WORK/smollm2-hf, ...), as setup.sh beside run_peers.py fills
it. The model is captured and optimised into WORK/tokamak first, unless it is there; --fresh does it
again, and --captured measures the captured model with all moves and no trials. Ratios are taken
between cells of the same round, and the median over the rounds is shown with the smallest and the
largest; the share of the read bandwidth is what `tokamak bench` measures in the same process.
Needs the folder ../shared/bench (or --peers). plot.py draws the rows.
"""

import argparse
import collections
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import tokamak  # noqa: E402 (of this checkout)

CELL = ("model", "precision", "threads", "batch", "context")
MEASURES = ("prefill", "decode")


def prepare(work, model, fresh, as_captured):
    """The folder to measure of WORK/<model>-hf; made when it is not there."""
    captured = work / "tokamak" / f"{model}-captured"
    optimised = work / "tokamak" / model
    if fresh:
        shutil.rmtree(optimised, ignore_errors=True)
    if not (captured / "model.pt2").is_file():
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        command = [sys.executable, "-m", "tokamak.capture", work / f"{model}-hf", "-o", captured]
        subprocess.run(command, check=True, env=environment)
    if as_captured:
        return captured
    if not (optimised / "ledger.json").is_file():
        command = [tokamak.find_binary(), "optimize", captured, "-o", optimised]
        subprocess.run(command, check=True)
    return optimised


def own_command(folder):
    flags = " ".join(f"--{x} {{{x}}}" for x in ("threads", "batch", "prompt", "context", "gen"))
    return f"tokamak={tokamak.find_binary()} bench {folder} --cell {flags} --reps {{reps}}"


def read_cells(path):
    """Round -> CELL -> engine -> record, and the failures."""
    rounds = collections.defaultdict(lambda: collections.defaultdict(dict))
    failures = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if "engine_key" not in record:
            continue
        if "error" in record:
            failures.append(f"{record['engine_key']} {record['model']}: {record['error'][-200:]}")
            continue
        cell = tuple(record[k] for k in CELL)
        rounds[record["round"]][cell][record["engine_key"]] = record
    return rounds, failures


def rows(rounds):
    """One row for each cell and peer: medians, and the ratio tokamak / peer over the rounds."""
    ratios = collections.defaultdict(lambda: collections.defaultdict(list))
    values = collections.defaultdict(lambda: collections.defaultdict(list))
    alone = collections.defaultdict(lambda: collections.defaultdict(list))
    disturbed = collections.Counter()
    for cells in rounds.values():
        for cell, engines in cells.items():
            own = engines.get("tokamak")
            for engine, record in engines.items():
                disturbed[cell, engine] += bool(record.get("disturbed"))
                others = alone[cell, engine]
                others["first_token_s"].append(record.get("first_token_s"))
                # Our own figure: the driver's has the buffer of the read bandwidth in it.
                own_peak = record.get("peak_rss_bytes")
                others["peak_mib"].append(
                    own_peak / 2**20 if own_peak else record.get("peak_rss_mib")
                )
                others["read_share"].append(record.get("decode_bandwidth_share"))
                for measure in MEASURES:
                    for kind in ("median", "cpu_median"):
                        field = f"{measure}_{kind}"
                        if not record.get(field):
                            continue
                        values[cell, engine][field].append(record[field])
                        if own and own.get(field):
                            ratios[cell, engine][field].append(own[field] / record[field])
    for (cell, engine), fields in sorted(values.items(), key=str):
        row = dict(zip(CELL, cell, strict=True))
        row |= {"engine": engine, "disturbed": disturbed[cell, engine]}
        for field, measured in alone[cell, engine].items():
            if None not in measured:
                row[field] = round(statistics.median(measured), 3)
        for field, measured in fields.items():
            row[field.replace("median", "tok_s")] = round(statistics.median(measured), 2)
            found = ratios[cell, engine][field]
            if found and engine != "tokamak":
                name = field.replace("median", "ratio")
                row[name] = round(statistics.median(found), 3)
                row[name + "_range"] = [round(min(found), 3), round(max(found), 3)]
        row["rounds"] = max(len(v) for v in fields.values())
        yield row


def table(all_rows):
    lines = [
        "| model | precision | threads | batch | context | engine | prefill tok/s | decode tok/s "
        "| prefill: tokamak / it | decode: tokamak / it | decode, share of read "
        "| first token s | peak MiB | rounds (disturbed) |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in all_rows:
        cells = [str(row[k]) for k in (*CELL, "engine")]
        for measure in MEASURES:
            cells.append(f"{row[f'{measure}_tok_s']:.1f}" if f"{measure}_tok_s" in row else "-")
        for measure in MEASURES:
            ratio, spread = row.get(f"{measure}_ratio"), row.get(f"{measure}_ratio_range")
            text = f"{ratio:.2f} ({spread[0]:.2f} to {spread[1]:.2f})" if ratio else "-"
            cells.append(text)
        for field, digits in (("read_share", 2), ("first_token_s", 2), ("peak_mib", 0)):
            cells.append(f"{row[field]:.{digits}f}" if field in row else "-")
        cells.append(f"{row['rounds']} ({row['disturbed']})")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--work", type=Path, required=True, help="folder with the peers and the models")
    add("--models", default="smollm2", help="comma-separated; WORK/<model>-hf")
    add("--engines", default="llama.cpp,torch", help="peers, as run_peers.py names them")
    add("--precision", default="bf16")
    add("--threads", default="2", help="comma-separated")
    add("--batches", default="1", help="comma-separated")
    add("--contexts", default="128", help="comma-separated; tokens in the cache before decode")
    add("--rounds", type=int, default=3)
    add("--reps", type=int, default=3)
    add("--wait", type=int, default=20, help="seconds to wait for idle cores before a cell")
    add("--fresh", action="store_true", help="optimise again")
    add("--captured", action="store_true", help="all moves on the captured model, no trials")
    add("--peers", type=Path, default=ROOT.parent / "shared" / "bench" / "run_peers.py")
    add("--raw", type=Path, default=ROOT / "build" / "bench" / "cells.jsonl")
    add("--out", type=Path, default=ROOT / "build" / "bench" / "rows.json")
    options = parser.parse_args()
    if not options.peers.is_file():
        parser.error(f"{options.peers} is not there: give --peers, or use `tokamak bench` alone")
    options.work = options.work.resolve()
    options.raw.parent.mkdir(parents=True, exist_ok=True)
    options.raw.unlink(missing_ok=True)
    for model in options.models.split(","):
        folder = prepare(options.work, model, options.fresh, options.captured)
        for context in options.contexts.split(","):
            command = [sys.executable, options.peers, "--work", options.work, "--models", model]
            command += ["--engines", options.engines, "--precisions", options.precision]
            command += ["--threads", options.threads, "--batches", options.batches]
            command += ["--rounds", options.rounds, "--reps", options.reps, "--wait", options.wait]
            command += ["--context", context, "--own", own_command(folder), "--base", "tokamak"]
            command += ["--out", options.raw]
            subprocess.run([str(word) for word in command], check=True)
    rounds, failures = read_cells(options.raw)
    found = list(rows(rounds))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print("\n" + table(found))
    for failure in failures:
        print("failed:", failure)
    print(f"rows: {options.out}, cells: {options.raw}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

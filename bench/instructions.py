#!/usr/bin/env python3
"""Instructions of one decode step, counted by callgrind: a gate that a busy machine can't disturb.

    bench/instructions.py MODEL [--limit N] [--record FILE | --against FILE]

MODEL is a folder that `tokamak optimize` made. Two runs that differ by 8 decoded tokens are counted
with one thread on AVX2 (what valgrind knows), so that loading and prefill cancel out. --record
writes the count, --against fails when it has grown by more than --limit per cent (default 3).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import tokamak  # noqa: E402 (of this checkout)

STEPS = 8


def instructions(model, gen):
    """Of a whole `tokamak bench` with one repetition that decodes `gen` tokens."""
    environment = {**os.environ, "TOKAMAK_TARGET": "AVX2", "TOKAMAK_CACHE": "off"}
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [tokamak.find_binary(), "bench", model, "--threads", "1", "--reps", "1"]
        command += ["--prompt", "16", "--context", "16", "--gen", str(gen), "--no-bandwidth"]
        done = subprocess.run(
            [str(word) for word in command], env=environment, capture_output=True, text=True
        )
        counted = re.search(r"Collected : (\d+)", done.stderr)
        if done.returncode != 0 or counted is None:
            sys.exit(f"callgrind failed:\n{done.stderr[-2000:]}")
        return int(counted[1])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--limit", type=float, default=3, help="per cent")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    # Four tokens are decoded to warm up in both.
    count = (instructions(options.model, 4 + STEPS) - instructions(options.model, 4)) // STEPS
    print(f"{count} instructions for a decode step")
    if options.record:
        options.record.write_text(json.dumps({"decode_step": count}) + "\n")
    if options.against:
        before = json.loads(options.against.read_text())["decode_step"]
        grown = 100 * (count / before - 1)
        print(f"{grown:+.2f} % against {before}")
        return 1 if grown > options.limit else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())

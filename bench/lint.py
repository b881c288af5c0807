"""Processor time of `tokamak lint` for each modeling file of the installed transformers.

python bench/lint.py [FAMILY...] [--reps 3]; the least of the repetitions, the slowest files last.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import transformers

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

from tokamak.lint import lint

MODELS = Path(transformers.__file__).parent / "models"


def least(path, reps):
    times = []
    for _ in range(reps):
        start = time.process_time()
        lint([path])
        times.append(1e3 * (time.process_time() - start))
    return min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", help="none: all")
    parser.add_argument("--reps", type=int, default=3)
    flags = parser.parse_args()
    paths = sorted(MODELS.glob("*/modeling_*.py"))
    if flags.families:
        paths = [p for p in paths if p.parent.name in flags.families]
    times = sorted((least(p, flags.reps), p.name) for p in paths)
    for ms, name in times[-10:]:
        print(f"{ms:8.1f} ms  {name}")
    values = [ms for ms, _ in times]
    slow = sum(ms > 50 for ms in values)
    print(f"{len(values)} files, median {statistics.median(values):.1f} ms, {slow} above 50 ms")


main()

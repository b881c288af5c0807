#!/usr/bin/env python3
"""Writes docs/fusion-verdicts.md: what the NPU's fusion tree makes of full-size graphs.

scripts/fusion_verdicts.py build/bin/tokamak ../shared/models/large docs/fusion-verdicts.md
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Degrees as such models are deployed: (graph, tp, ep, sequences of a rank in a decode step).
CASES = [
    ("llama3-70b", 8, 1, 16),
    ("qwen3-235b-a22b", 4, 16, 16),
    ("qwen3-235b-a22b", 4, 2, 16),
    ("deepseek-v3", 1, 16, 16),
    ("deepseek-v3", 1, 8, 16),
]


def analyse(tokamak: str, graph: Path, target: str, tp: int, ep: int, batch: int):
    with tempfile.TemporaryDirectory() as out:
        start = time.monotonic()
        options = {"--target": target, "--tp": tp, "--ep": ep, "--decode-batch": batch}
        flags = [str(x) for pair in options.items() for x in pair]
        result = subprocess.run(
            [tokamak, "optimize", graph, "-o", out, "--analysis-only", "--json", "-q", *flags],
            capture_output=True,
            text=True,
        )
        seconds = time.monotonic() - start
    if result.returncode not in (0, 1):
        sys.exit(result.stderr)
    return json.loads(result.stdout), seconds


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def section(name: str, target: str, tp: int, ep: int, batch: int, analysis, seconds: float) -> str:
    step = analysis["decode_step"]
    lines = [
        f"## {name} on {target}, tp {tp}, ep {ep}",
        "",
        f"Analysed in {seconds:.1f} s. Decode step of {batch} sequences, unsharded: "
        f"{step['unfused_ms']:.2f} ms unfused, {step['fused_ms']:.2f} ms fused (predicted; 9 of 10 "
        f"published steps were off by at most {100 * step['band_p90_error']:.0f} %).",
        "",
        "| site | operator | phase | place | sites | verdict | constraint and values |",
        "|---|---|---|---|---|---|---|",
    ]
    for s in analysis["sites"]:
        if " " in s["id"]:
            continue  # the quantised ones, refused together
        lines.append(
            f"| {s['id']} | {s['operators']} | {s['phase']} | `{s['place']}` | {s['sites']} "
            f"| {s['verdict']} | {cell(s['reason'] or '; '.join(s['notes']))} |"
        )
    for missing in analysis["gate"]["missing"]:
        lines.append(f"\nNot complete: {missing}.")
    return "\n".join(lines) + "\n"


def main() -> None:
    tokamak, folder, out = sys.argv[1:4]
    parts = [
        "# Fusion verdicts for full-size graphs\n",
        "Made by `scripts/fusion_verdicts.py` from captures without weights. Quantised sites are "
        "refused everywhere (no scheme is chosen, FU-04) and left out. Times are predicted by "
        "the virtual NPU; none is measured.\n",
    ]
    for name, tp, ep, batch in CASES:
        for target in ("a2", "a3"):
            graph = Path(folder) / f"{name}.pt2"
            analysis, seconds = analyse(tokamak, graph, target, tp, ep, batch)
            parts.append(section(name, target, tp, ep, batch, analysis, seconds))
            print(f"{name} {target}: {seconds:.1f} s", file=sys.stderr)
    Path(out).write_text("\n".join(parts))


if __name__ == "__main__":
    main()

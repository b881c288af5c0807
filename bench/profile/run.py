#!/usr/bin/env python3
"""Times `tokamak profile` beside msprof-analyze and the breakdown scripts, in alternating rounds.

    python run.py --profile DIR --tokamak "build/bin/tokamak profile" [--msprof msprof-analyze]
                  [--scripts .agents/skills/model-infer-perf-breakdown/scripts] [--rounds 3]

DIR is a *_ascend_pt folder, as ../shared/tools/gen_profile.py writes (500 MB trace, 200 MB table).
Wall time, CPU time of all processes and peak memory: each cell on stderr as it is measured, then
the medians and ratios on stdout, one JSON line each.
"""

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

p = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
p.add_argument("--profile", required=True, type=Path)
p.add_argument("--tokamak", required=True)
p.add_argument("--msprof")
p.add_argument("--scripts", type=Path)
p.add_argument("--rounds", type=int, default=3)
p.add_argument("--python", default=sys.executable, help="the Python of the scripts")
a = p.parse_args()
profile = a.profile.resolve()
table = profile / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
trace = table.with_name("trace_view.json")


def measure(command, cwd):
    begin = time.perf_counter()
    child = subprocess.Popen(
        command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return {
        "rc": child.returncode,
        "wall_s": time.perf_counter() - begin,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mib": usage.ru_maxrss >> 10,
        "tail": output[-200:].decode(errors="replace") if child.returncode else "",
    }


def commands(work):
    """(name, command) of one round; each writes below `work`."""
    out = [("tokamak profile", [*shlex.split(a.tokamak), str(profile), "-o", f"{work}/tokamak"])]
    if a.msprof:
        compare = [a.msprof, "compare", "-d", str(profile), "-bp", str(profile), "-o", f"{work}/c"]
        advisor = [a.msprof, "advisor", "all", "-d", str(profile), "-o", f"{work}/a"]
        out += [("msprof-analyze compare", compare), ("msprof-analyze advisor", advisor)]
    if a.scripts:
        # The scripts need a person for the structure; they get the one found by ours.
        draft, rules = ours / "structure_draft.json", ours / "bench_spec.json"
        step = json.loads((ours / "inputs.json").read_text())["step"]
        chain = [
            f"analyze_kernels -f {table} -s {step} -o raw.json -d details.json",
            f"render -d {draft} -r raw.json --raw-ops-details details.json -s {rules} "
            "-o page/index.html",
            "gen_insights --metrics page/metrics.json --raw-ops raw.json "
            f"--structure-draft {draft} --raw-ops-details details.json --out-dir page/insights",
            "render_insights --insights-dir page/insights -o page/insights.html",
            f"split_artifacts -d {draft} -r raw.json -f {table} -t {trace} -o splits",
        ]
        folder = a.scripts.resolve()
        lines = [
            f"{a.python} {folder}/{script}.py {args}"
            for script, _, args in (line.partition(" ") for line in chain)
        ]
        out.append(("scripts: all five", ["bash", "-ec", "\n".join(lines)]))
        out.append(("scripts: without the splits", ["bash", "-ec", "\n".join(lines[:-1])]))
    return out


kept = tempfile.TemporaryDirectory()
ours = Path(kept.name)
label = ["-o", str(ours), "--label", "bench"]
subprocess.run([*shlex.split(a.tokamak), str(profile), *label], check=True, capture_output=True)
results = {}
for _ in range(a.rounds):
    with tempfile.TemporaryDirectory() as work:
        for name, command in commands(work):
            cell = measure(command, work)
            results.setdefault(name, []).append(cell)
            print(json.dumps({"what": name} | cell), file=sys.stderr, flush=True)
size = sum(f.stat().st_size for f in profile.rglob("*") if f.is_file()) / 1e9
base = None
for name, runs in results.items():
    row = {
        "what": name,
        "gb": round(size, 3),
        "rc": [r["rc"] for r in runs],
        "wall_s_median": round(statistics.median(r["wall_s"] for r in runs), 2),
        "wall_s_best": round(min(r["wall_s"] for r in runs), 2),
        "cpu_s_median": round(statistics.median(r["cpu_s"] for r in runs), 2),
        "peak_mib": max(r["peak_mib"] for r in runs),
        "tail": next((r["tail"] for r in runs if r["tail"]), ""),
    }
    base = base or row
    row["times_ours_wall"] = round(row["wall_s_median"] / base["wall_s_median"], 1)
    row["times_ours_cpu"] = round(row["cpu_s_median"] / base["cpu_s_median"], 1)
    print(json.dumps(row), flush=True)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(
    json.dumps({"load": os.getloadavg(), "children_cpu_s": round(usage.ru_utime + usage.ru_stime)})
)

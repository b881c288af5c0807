"""Fits the constants of src/npu/devices/cost.json that are guesses to published cases.

    python scripts/fit_costs.py published_cases.json -o FOLDER [--trials 200]

Constants are shared by all models; a trial is one set of them. Each model's error is also given
for the set that is best on the other models alone, which is what a new model may expect
(VN-113). Writes cost.json and fit.json.
"""

import argparse
import json
import math
import random
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Name: (low, high). Several constants of one name are scaled together.
RANGES = {
    "hbm_read_share": (0.6, 0.92),
    "grouped_read_share": (0.5, 1.0),
    "cube_efficiency": (0.45, 0.85),
    "cube_attention_efficiency": (0.2, 0.75),
    "vector_efficiency": (0.2, 0.9),
    "link_share": (0.3, 0.85),
    "collective_setup_us": (10, 60),
    "host_eager_us": (60, 250),
    "gap_mix_graph_us": (0.1, 1.7),
    "heads": (0.8, 3.0),
    "head_attention_us": (8, 25),
}
HEADS = [
    "head_vector_us",
    "head_vector_many_us",
    "head_norm_us",
    "head_rope_us",
    "head_gather_us",
    "head_cube_us",
    "head_mix_us",
    "head_sort_us",
]
PULL = 0.02  # towards the defaults: a constant that decides nothing stays


def values_of(costs):
    values = {n: costs["numbers"][n]["value"] for n in RANGES if n in costs["numbers"]}
    return values | {"heads": 1.0}


def applied(costs, values):
    out = json.loads(json.dumps(costs))
    for name, value in values.items():
        if name == "heads":
            for head in HEADS:
                out["numbers"][head]["value"] = round(costs["numbers"][head]["value"] * value, 3)
        else:
            out["numbers"][name]["value"] = float(f"{value:.4g}")
    return out


def errors(binary, cases, costs):
    """Model and phase to its mean |log(predicted / published)|, over graph and eager steps."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(costs, file)
        file.flush()
        command = [binary, "simulate", "--cases", cases, "--costs", file.name, "--json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    groups, seen = {}, set()
    for p in json.loads(done.stdout)["predictions"]:
        if p["kind"] not in ("graph step", "eager step", "kernel"):
            continue
        key = p["id"] if p["kind"] == "kernel" else p["run"]
        if key in seen:
            continue
        seen.add(key)
        group = (p["model"], p["kind"])
        groups.setdefault(group, []).append(abs(math.log(p["predicted"] / p["published"])))
    return {g: sum(e) / len(e) for g, e in groups.items()}


def loss(by_group, values, start, left_out=None):
    # Beyond a factor e a case says that something else is missing, not that a constant is off.
    kept = [min(e, 1.0) for (model, _), e in by_group.items() if model != left_out]
    pull = sum(math.log(values[n] / start[n]) ** 2 for n in values)
    return sum(kept) / len(kept) + PULL * pull


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binary", default=str(ROOT / "build" / "bin" / "tokamak"))
    parser.add_argument("--costs", default=str(ROOT / "src" / "npu" / "devices" / "cost.json"))
    o = parser.parse_args()
    random.seed(o.seed)
    costs = json.loads(Path(o.costs).read_text())
    start = values_of(costs)
    trials = []
    best = dict(start)
    for i in range(o.trials):
        values = dict(best)
        if i > 0:
            # Some constants at once, in steps that get smaller.
            width = 0.6 * (1 - i / o.trials) + 0.05
            for name in random.sample(sorted(RANGES), random.choice([1, 1, 2, 3])):
                low, high = RANGES[name]
                moved = values[name] * math.exp(random.gauss(0, width))
                values[name] = min(max(moved, low), high)
        by_group = errors(o.binary, o.cases, applied(costs, values))
        trials.append((values, by_group))
        if i == 0 or loss(by_group, values, start) < least:
            best, least = values, loss(by_group, values, start)
            print(i, f"{least:.4f}", {n: float(f"{v:.3g}") for n, v in values.items()}, flush=True)
    held_out = {}
    for model in sorted({m for m, _ in trials[0][1]}):
        values, by_group = min(trials, key=lambda t: loss(t[1], t[0], start, model))
        held_out[model] = {k: round(e, 4) for (m, k), e in by_group.items() if m == model}
    out = Path(o.output)
    out.mkdir(parents=True, exist_ok=True)
    (out / "cost.json").write_text(json.dumps(applied(costs, best), indent=1) + "\n")
    fit = {"values": best, "trials": o.trials, "held_out_log_errors": held_out}
    (out / "fit.json").write_text(json.dumps(fit, indent=1) + "\n")
    print(json.dumps(held_out, indent=1))


if __name__ == "__main__":
    main()

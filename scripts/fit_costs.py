"""Fits the constants of src/npu/devices/cost.json that no source gives to published cases.

    python scripts/fit_costs.py published_cases.json -o FOLDER [--halves 8]

A constant starts at what a source says (PRIORS) and is pulled back to it as strongly as that source
is sure; published steps, in logarithms, pull the other way (a ridge regression, linearised at the
best point so far; far outliers count less). Every source, model, phase and kind weighs the same,
however many records it has. For each model the same fit is made without its records: cost.json
keeps those under "without", and `simulate --cases` predicts a model's records with them (VN-113).
--halves also fits on random halves of the models and tests on the others.
Writes cost.json and fit.json.
"""

import argparse
import json
import math
import random
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parents[1]
PRIORS = json.loads((Path(__file__).parent / "cost_priors.json").read_text())["priors"]
NOISE = 0.15  # of log(predicted / published) that no constant explains: what sources leave unsaid
FAR = 2.0  # residuals beyond so many NOISE count linearly, not squared
STEP = 0.08  # of a constant's logarithm, for the derivative


def applied(costs, logs):
    """cost.json with the constants that `logs` (name to logarithm) has; groups are scaled."""
    out = json.loads(json.dumps(costs))
    out.pop("without", None)
    for name, log in logs.items():
        for member, value in values_of(name, log).items():
            out["numbers"][member]["value"] = value
    return out


def values_of(name, log):
    """A group's constants keep their proportions."""
    members = PRIORS[name].get("scales", {name: PRIORS[name]["value"]})
    factor = math.exp(log) / PRIORS[name]["value"]
    return {m: float(f"{v * factor:.4g}") for m, v in members.items()}


def log_of(name, costs):
    members = PRIORS[name].get("scales", {name: PRIORS[name]["value"]})
    first = next(iter(members))
    value = PRIORS[name]["value"] * costs["numbers"][first]["value"] / members[first]
    low, high = PRIORS[name].get("low", 1e-9), PRIORS[name].get("high", 1e12)
    return math.log(min(max(value, low), high))


class Cases:
    def __init__(self, binary, path):
        self.binary, self.path = binary, path

    def run(self, costs):
        """What the command answers under these costs."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(costs, file)
            file.flush()
            command = [self.binary, "simulate", "--cases", self.path, "--costs", file.name]
            done = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)


def residuals(answer):
    """Run or kernel to (model, group, log(predicted / published)), once per step."""
    out = {}
    for p in answer["predictions"]:
        if p["kind"] == "peer baseline":
            continue
        key = p["id"] if p["kind"] == "kernel" else p["run"]
        predicted, published = (
            (p["step_ms"], p["published_step_ms"])
            if "step_ms" in p
            else (p["predicted"], p["published"])
        )
        group = (p["source"], p["model"], p["phase"], p["kind"])
        out.setdefault(key, (p["model"], group, math.log(predicted / published)))
    return out


class Linear:
    """Residuals around a point: r + J (x - x0)."""

    def __init__(self, cases, costs, logs, jobs):
        self.names = sorted(logs)
        self.x0 = numpy.array([logs[n] for n in self.names])
        moved = [dict(logs)]
        for n in self.names:
            top = math.log(PRIORS[n].get("high", math.inf))
            step = STEP if logs[n] + STEP <= top else -STEP
            moved.append({**logs, n: logs[n] + step})
        with ThreadPoolExecutor(jobs) as pool:
            answers = list(pool.map(lambda m: residuals(cases.run(applied(costs, m))), moved))
        self.keys = sorted(answers[0])
        self.models = [answers[0][k][0] for k in self.keys]
        self.groups = [answers[0][k][1] for k in self.keys]
        self.r = numpy.array([answers[0][k][2] for k in self.keys])
        self.jacobian = numpy.zeros((len(self.keys), len(self.names)))
        for j, n in enumerate(self.names):
            step = moved[j + 1][n] - logs[n]
            for i, k in enumerate(self.keys):
                self.jacobian[i, j] = (answers[j + 1][k][2] - self.r[i]) / step

    def solve(self, kept):
        """The best point over the records whose model is kept."""
        use = [i for i, m in enumerate(self.models) if m in kept]
        count = {}
        for i in use:
            count[self.groups[i]] = count.get(self.groups[i], 0) + 1
        even = numpy.array([1 / math.sqrt(count[self.groups[i]]) for i in use])
        priors = numpy.array([math.log(PRIORS[n]["value"]) for n in self.names])
        pull = numpy.array([1 / PRIORS[n]["sd"] ** 2 for n in self.names])
        low = numpy.log([PRIORS[n].get("low", 1e-9) for n in self.names])
        high = numpy.log([PRIORS[n].get("high", 1e12) for n in self.names])
        a, r = self.jacobian[use], self.r[use]
        x = self.x0.copy()
        for _ in range(30):
            now = r + a @ (x - self.x0)
            weight = even * numpy.minimum(1, FAR * NOISE / numpy.maximum(abs(now), 1e-9))
            weight = weight / NOISE**2
            left = a.T @ (weight[:, None] * a) + numpy.diag(pull)
            right = -a.T @ (weight * (r - a @ self.x0)) + pull * priors
            x = numpy.clip(numpy.linalg.solve(left, right), low, high)
        return dict(zip(self.names, x, strict=True))

    def loss(self, residual, logs):
        """What solve() makes least, of residuals by key: Huber's, and the pull to the sources."""
        count, far, total = {}, FAR * NOISE, 0.0
        for group in self.groups:
            count[group] = count.get(group, 0) + 1
        for key, group in zip(self.keys, self.groups, strict=True):
            r = abs(residual[key][2])
            size = r * r / 2 if r < far else far * r - far * far / 2
            total += size / NOISE**2 / math.sqrt(count[group])
        for n, p in PRIORS.items():
            total += ((logs[n] - math.log(p["value"])) / p["sd"]) ** 2 / 2
        return total

    def uncertainty(self):
        left = self.jacobian.T @ self.jacobian / NOISE**2
        pull = numpy.diag([1 / PRIORS[n]["sd"] ** 2 for n in self.names])
        errors = numpy.sqrt(numpy.diag(numpy.linalg.inv(left + pull)))
        return dict(zip(self.names, errors, strict=True))


def summary(errors):
    size = sorted(abs(math.expm1(e)) for e in errors)
    if not size:
        return None
    quantile = numpy.quantile(size, [0.5, 0.9])
    return {"steps": len(size), "median": round(quantile[0], 4), "p90": round(quantile[1], 4)}


def by_kind(found, models):
    kinds = {}
    for model, group, r in found.values():
        if model in models:
            kinds.setdefault(group[3], []).append(r)
    return {k: summary(e) for k, e in kinds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--halves", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--binary", default=str(ROOT / "build" / "bin" / "tokamak"))
    parser.add_argument("--costs", default=str(ROOT / "src" / "npu" / "devices" / "cost.json"))
    o = parser.parse_args()
    cases = Cases(o.binary, o.cases)
    costs = json.loads(Path(o.costs).read_text())
    # From where the last fit ended.
    logs = {n: log_of(n, costs) for n in PRIORS}
    linear = Linear(cases, costs, logs, o.jobs)
    models = set(linear.models)
    least = linear.loss(residuals(cases.run(applied(costs, logs))), logs)
    for i in range(o.rounds):
        print(
            i, f"{least:.3f}", {n: float(f"{math.exp(v):.3g}") for n, v in logs.items()}, flush=True
        )
        following, step = linear.solve(models), 1.0
        while step > 0.1:  # shorter until it is a gain: far away the derivatives are others
            tried = {n: logs[n] + step * (following[n] - logs[n]) for n in logs}
            loss = linear.loss(residuals(cases.run(applied(costs, tried))), tried)
            if loss < least - 0.01:
                break
            step /= 2
        else:
            break
        logs, least = tried, loss
        linear = Linear(cases, costs, logs, o.jobs)
    spread = linear.uncertainty()
    out = applied(costs, logs)
    for name, p in PRIORS.items():
        for member in p.get("scales", {name: 0}):
            out["numbers"][member] |= {
                "source": "fit of published steps of all models together, pulled towards "
                f"{p.get('scales', {name: p['value']})[member]:g} (scripts/fit_costs.py)",
                "certainty": "low",
                "others": [f"{p.get('scales', {name: p['value']})[member]:g}: {p['source']}"],
            }
    out["without"] = {}
    for model in sorted(models):
        held = linear.solve(models - {model})
        values = {}
        for name, log in held.items():
            values |= values_of(name, log)
        out["without"][model] = {m: v for m, v in values.items() if v != out["numbers"][m]["value"]}
    halves = []
    rng = random.Random(1)
    for _ in range(o.halves):
        ordered = sorted(models)
        rng.shuffle(ordered)
        one, other = set(ordered[::2]), set(ordered[1::2])
        fitted = linear.solve(one)
        found = residuals(cases.run(applied(costs, fitted)))
        halves.append({"fit_on": sorted(one), "errors_of_the_others": by_kind(found, other)})
        print(json.dumps(halves[-1]), flush=True)
    folder = Path(o.output)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cost.json").write_text(json.dumps(out, indent=1) + "\n")
    fit = {
        "values": {n: round(math.exp(v), 6) for n, v in logs.items()},
        "standard_error_of_log": {n: round(float(v), 3) for n, v in spread.items()},
        "in_sample": by_kind(residuals(cases.run(applied(costs, logs))), models),
        "held_out": by_kind(residuals(cases.run(out)), models),
        "halves": halves,
    }
    (folder / "fit.json").write_text(json.dumps(fit, indent=1) + "\n")
    print(json.dumps({k: fit[k] for k in ("in_sample", "held_out")}, indent=1))


if __name__ == "__main__":
    main()

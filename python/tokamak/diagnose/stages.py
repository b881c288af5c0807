"""Runs a script stage by stage on the emulation and stops at the first that fails (GM-40)."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ..errors import Error
from .graph_log import Diagnosis, diagnose_logs
from .stage_run import STAGES

MEANING = {
    "eager": "the script itself, nothing compiled",
    "dynamo": "traced by Dynamo, run as it was",
    "aot_eager": "lowered to ATen (functionalised), run as it was",
    "backend": "the backend and its options, launches one by one",
    "capture": "the whole captured",
}
_LACKING = re.compile(r".*(?:of this emulation has no|is not in this emulation).*")


@dataclass
class Stage:
    """`status`: ok, failed, pending (the emulation lacks an operator) or not run."""

    name: str
    status: str
    seconds: float = 0.0
    reason: str = ""
    diagnosis: Diagnosis | None = None


def run_stages(script, arguments=(), timeout=600, warmup_steps=None, log_dir=None, progress=None):
    """The stages in order; those after one that failed are "not run"."""
    if not Path(script).is_file():
        raise Error(
            "TK1301", f"{script}: no such file", help="give a log, a folder of logs or a script"
        )
    folder = Path(log_dir or tempfile.mkdtemp(prefix="tokamak-diagnose-"))
    folder.mkdir(parents=True, exist_ok=True)
    stages = []
    for name in STAGES:
        if stages and stages[-1].status != "ok":
            stages.append(Stage(name, "not run"))
            continue
        if progress:
            progress(f"stage {name}: {MEANING[name]}")
        stages.append(_run(name, script, arguments, timeout, warmup_steps, folder))
    return stages


def _run(name, script, arguments, timeout, warmup_steps, folder):
    log, report = folder / f"{name}.log", folder / f"{name}.json"
    report.unlink(missing_ok=True)
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(p for p in (package, os.environ.get("PYTHONPATH")) if p)
    command = [
        sys.executable,
        "-m",
        "tokamak.diagnose.stage_run",
        name,
        str(report),
        str(script),
        *arguments,
    ]
    start = time.monotonic()
    with open(log, "wb") as out:
        try:
            code = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=timeout,
                env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            code = None
    seconds = time.monotonic() - start
    if code is None:
        return Stage(name, "failed", seconds, f"no end within {timeout} s; output in {log}")
    text = log.read_text(errors="replace")
    if code != 0:
        if lacking := _LACKING.findall(text):
            return Stage(name, "pending", seconds, lacking[-1].strip())
        found = diagnose_logs([log], warmup_steps=None) if text.strip() else None
        cause = found.findings[0].cause if found and found.findings else "no error in its output"
        return Stage(name, "failed", seconds, f"exit code {code}: {cause}", found)
    counts = json.loads(report.read_text()) if report.is_file() else {"breaks": {}, "graphs": 0}
    if counts["breaks"]:
        reason, n = max(counts["breaks"].items(), key=lambda item: item[1])
        return Stage(name, "failed", seconds, f"{sum(counts['breaks'].values())} graph breaks; the first "
                     f"kind ({n} x): {reason.splitlines()[0]}")  # fmt: skip
    if name == "capture":
        if counts["graphs"] == 0:
            return Stage(
                name, "failed", seconds, "the script compiles nothing: no torch.compile was reached"
            )
        found = diagnose_logs([log], warmup_steps=warmup_steps) if text.strip() else None
        if found and found.verdict in ("fault", "pending"):
            status = "failed" if found.verdict == "fault" else "pending"
            return Stage(
                name, status, seconds, found.findings[0].cause if found.findings else "", found
            )
    return Stage(name, "ok", seconds, _count(counts["graphs"], "graph") if name != "eager" else "")


def _count(n, what):
    return f"{n} {what}{'' if n == 1 else 's'}"


def stages_text(stages):
    lines = []
    for s in stages:
        mark = f"{s.status:8} {s.seconds:6.1f} s" if s.status != "not run" else "not run          "
        lines.append(f"{s.name:10} {mark}  {s.reason or MEANING[s.name]}")
    last = next((s for s in stages if s.status in ("failed", "pending")), None)
    lines.append("")
    if last is None:
        lines.append(
            "verdict  pass: all stages end, one graph per entry, no compilation while serving"
        )
    elif last.status == "pending":
        lines.append(f"verdict  pending at stage {last.name}: {last.reason}")
    else:
        at = "the capture" if last.name == "capture" else "the model's code"
        lines.append(f"verdict  stage {last.name} fails first: the fault is in {at}")
    text = "\n".join(lines) + "\n"
    if last is not None and last.diagnosis is not None:
        text += "\n" + last.diagnosis.text()
    return text


def stages_json(stages):
    last = next((s for s in stages if s.status in ("failed", "pending")), None)
    return json.dumps(
        {
            "verdict": "pass"
            if last is None
            else ("pending" if last.status == "pending" else "fault"),
            "stage": last.name if last else None,
            "stages": [
                {
                    "name": s.name,
                    "status": s.status,
                    "seconds": round(s.seconds, 3),
                    "reason": s.reason,
                }
                for s in stages
            ],
            "diagnosis": json.loads(last.diagnosis.json()) if last and last.diagnosis else None,
        },
        indent=2,
    )

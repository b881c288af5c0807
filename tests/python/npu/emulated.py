"""Runs code or a script with `python -m tokamak.npu`."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TOKAMAK_NPU_S")}
    return env | {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"} | more


def run(code, *args, cwd=None, **env):
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(code)
        return launch(str(script), *args, cwd=cwd, **env)


def launch(*args, cwd=None, **env):
    return subprocess.run(
        [sys.executable, "-m", "tokamak.npu", *args],
        capture_output=True,
        text=True,
        env=environment(**env),
        cwd=cwd,
        timeout=300,
    )

"""`run --trace` and `bench --trace`: this CPU's launches, read by `profile` as any other."""

import csv
import json
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

MODEL = ROOT / "examples" / "stories260k"
LAYERS = 5  # num_hidden_layers of its config.json

COMMANDS = {
    "run": ("--ids", "1,403,407", "-n", "6"),
    "bench": ("--prompt", "8", "--context", "4", "--gen", "4", "--reps", "1"),
}


def call(*args):
    return subprocess.run(args, capture_output=True, text=True, timeout=300, check=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_layers_go_by_module_path(tokamak_binary, tmp_path, command):  # BD-50, PF-50, PF-51
    tokamak = str(tokamak_binary)
    args = COMMANDS[command]
    call(tokamak, command, str(MODEL), *args, "--trace", str(tmp_path / "prof"))
    table = next(Path(tmp_path / "prof").rglob("kernel_details.csv"))
    rows = list(csv.DictReader(table.open()))
    assert {r["Accelerator Core"] for r in rows} == {"CPU"}
    assert {r["aicore_time(us)"] for r in rows} == {"N/A"}
    done = call(
        tokamak, "profile", str(tmp_path / "prof"), "-o", str(tmp_path / "run"), "--no-split"
    )
    assert f"{LAYERS} layers" in done.stdout
    draft = json.loads((tmp_path / "run" / "structure_draft.json").read_text())
    raw = json.loads((tmp_path / "run" / "raw_ops.json").read_text())["operators"]
    for component in draft["components"]:
        number = f".{component['layer_idx']}."
        for op in component["op_indices"]:
            assert number in rows[raw[op]["org_index"]]["Module"]
    metrics = json.loads(next((tmp_path / "run").rglob("metrics.json")).read_text())
    assert metrics["origin"]["kind"] == "cpu"
    assert metrics["theoretical_perf_source"] is None  # there is no table of this machine's rates

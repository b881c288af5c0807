"""The virtual NPU as the clock of trials, and its calibration (VN-100 to VN-106, VN-29, VN-112)."""

import csv
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT


def run(binary, *arguments, code=0):
    done = subprocess.run(
        [str(binary), *map(str, arguments)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, f"{arguments}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done


def test_trials_are_predicted(tokamak_binary, stories, tmp_path):
    """Each trial times the candidate by lowering and simulation, and says so with its band."""
    out = tmp_path / "out"
    options = ("--target", "a2", "--moves", "fuse_rms_norm,fuse_swiglu", "--phase", "decode", "-q")
    done = run(tokamak_binary, "optimize", stories, "-o", out, *options)
    assert "predicted" in done.stdout and "band" in done.stdout
    ledger = json.loads((out / "ledger.json").read_text())
    assert ledger["prediction"]["cases"] > 0 and ledger["prediction"]["p90_error"] > 0
    total = ledger["total"]["decode"]
    assert total["kind"] == "predicted"
    assert total["before"]["min_ms"] < total["before"]["median_ms"] < total["before"]["max_ms"]
    tried = [r for r in ledger["rows"] if r["time"]["decode"]]
    assert len(tried) == 2
    for r in tried:
        time = r["time"]["decode"]
        assert time["kind"] == "predicted"
        if r["decision"] == "kept" and "fewer" not in r["why"] and r["stage"] != "cache":
            assert time["ratio_high"] < 1, r
    # The same clock as tokamak simulate.
    shape = ("--target", "a2", "--kv", ledger["workload"]["decode_context"], "--json", "-q")
    simulated = json.loads(run(tokamak_binary, "simulate", out, *shape).stdout)
    assert simulated["step_ms"] == pytest.approx(total["after"]["median_ms"], rel=1e-6)
    page = (out / "report.html").read_text()
    assert "than unfused, measured" not in page and "predicted" in page


@pytest.fixture(scope="module")
def as_measured(profile, tmp_path_factory):
    """The same files without the mark of who made them, as a profiler on an NPU writes them."""
    copy = tmp_path_factory.mktemp("measured") / profile.name
    shutil.copytree(profile, copy)
    for file in (*copy.rglob("profiler_info*.json"), *copy.rglob("profiler_metadata.json")):
        marked = json.loads(file.read_text())
        assert "tokamak simulate" in marked.pop("producer")
        file.write_text(json.dumps(marked))
    return copy


@pytest.fixture(scope="module")
def profile(tokamak_binary, stories, tmp_path_factory):
    """A simulated profile with costs that nobody told the calibration."""
    folder = tmp_path_factory.mktemp("secret")
    costs = json.loads((ROOT / "src/npu/devices/cost.json").read_text())
    for name in ("head_cube_us", "head_norm_us", "head_vector_us"):
        costs["numbers"][name]["value"] *= 1.5
    (folder / "secret.json").write_text(json.dumps(costs))
    options = ("--target", "a2", "--costs", folder / "secret.json", "-o", folder / "out", "-q")
    run(tokamak_binary, "simulate", stories, *options)
    (found,) = (folder / "out").glob("*_ascend_pt")
    return found


def test_calibration_of_a_profile(tokamak_binary, profile, as_measured, stories, tmp_path):
    """VN-100, VN-102: constants move towards those of the profile; the file is for --costs."""
    file = tmp_path / "cost.json"
    done = run(
        tokamak_binary, "simulate", "--calibrate", as_measured, "--target", "a2", "-o", file, "-q"
    )
    assert "error held out" in done.stdout
    costs = json.loads(file.read_text())
    built_in = json.loads((ROOT / "src/npu/devices/cost.json").read_text())["numbers"]
    assert costs["held_out"]["shapes"] > 4
    assert set(built_in) <= set(costs["numbers"])
    moved = {n: v for n, v in costs["numbers"].items() if "calibrated" in v["source"]}
    assert moved

    def step(*more):
        options = ("--target", "a2", "--json", "-q", *more)
        return json.loads(run(tokamak_binary, "simulate", stories, *options).stdout)["step_ms"]

    secret = step("--costs", profile.parents[1] / "secret.json")
    before, after = step(), step("--costs", file)
    assert abs(after - secret) < abs(before - secret) / 2


def test_pipe_counters_add_up(profile):
    """VN-29: ratios are of the core time; cycles over clock, cores and Duration."""
    with open(profile / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    cubes = [r for r in rows if r["Accelerator Core"] == "AI_CORE"]
    assert cubes and any(r["Accelerator Core"] == "AI_VECTOR_CORE" for r in rows)
    for r in cubes:
        time = float(r["aicore_time(us)"])
        assert 0 <= time <= float(r["Duration(us)"]) + 0.001
        ratio = float(r["aic_mac_time(us)"]) / time if time else 0
        assert float(r["aic_mac_ratio"]) == pytest.approx(ratio, abs=0.02)
        most = 1800 * 20 * float(r["Duration(us)"])
        wanted = 100 * float(r["aic_total_cycles"]) / most
        assert float(r["cube_utilization(%)"]) == pytest.approx(wanted, abs=0.002)
        assert r["aic_scalar_time(us)"] == "N/A"  # not modelled
    for r in rows:
        if r["Accelerator Core"] == "AI_VECTOR_CORE":
            assert float(r["aiv_vec_time(us)"]) <= float(r["aiv_time(us)"]) + 0.001
            assert float(r["aic_total_cycles"]) == 0


def test_replay(tokamak_binary, profile):
    """VN-105: a simulated profile replayed is itself, but for waits that it does not say."""
    done = run(tokamak_binary, "simulate", "--replay", profile, "--target", "a2", "-q")
    assert "replay " in done.stdout
    percent = float(done.stdout.split("us (")[1].split(" %")[0])
    assert abs(percent) < 3


@pytest.mark.parametrize("what", ["level0", "no file", "no output", "results", "simulated"])
def test_refusals(tokamak_binary, profile, tmp_path, what):
    target = ("--target", "a2", "-q")
    if what == "no output":
        done = run(tokamak_binary, "simulate", "--calibrate", profile, *target, code=2)
        assert "error[TK1434]" in done.stderr
        return
    path = tmp_path / "kernel_details.csv"
    if what == "level0":
        lines = ["Name,Type,Start Time(us),Duration(us)"]
        lines += [f"a{i},N/A,{i * 10}.0,5.0" for i in range(60)]
        path.write_text("\n".join(lines) + "\n")
    if what == "simulated":
        path = profile
    if what == "results":
        path = tmp_path / "results.json"
        path.write_text(json.dumps({"format": "tokamak-microbench-1", "emulated": True}))
    done = run(
        tokamak_binary, "simulate", "--calibrate", path, *target, "-o", tmp_path / "c.json", code=2
    )
    assert "error[" in done.stderr
    if what != "no file":
        assert "error[TK1430]" in done.stderr
    assert not (tmp_path / "c.json").exists()


def test_micro_benchmarks_run_on_the_emulation(tokamak_binary, tmp_path):
    """The script is valid torch_npu code; what it wrote here is refused as a measurement."""
    pytest.importorskip("torch")
    script, results = tmp_path / "microbench.py", tmp_path / "results.json"
    run(tokamak_binary, "emit", "microbench", "-o", script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tokamak.npu", script, "-o", results, "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(results.read_text())
    assert found["format"] == "tokamak-microbench-1" and found["emulated"] is True
    assert {r["type"] for r in found["rows"]} == {"MatMulV2", "Add", "Mul", "RmsNorm", "SwiGlu"}
    assert all(r["us"] > 0 for r in found["rows"]) and found["host"]["host_eager_us"] > 0
    options = ("--target", "a2", "-o", tmp_path / "c.json", "-q")
    done = run(tokamak_binary, "simulate", "--calibrate", results, *options, code=2)
    assert "error[TK1430]" in done.stderr and "emulation" in done.stderr

"""tokamak bench --read-log: figures, texts and failures of logged runs (EB-51 to EB-58)."""

import json
import os
import subprocess

import pytest
from conftest import ROOT
from tokamak.bench.run_log import is_readable, read_run

LOGS = ROOT.parent / "shared" / "data" / "baseline_logs"
HEAD = "[INFO][2026-03-02 10:00:00.013][scheduler.py:570] "


def equal(found, wanted):
    if isinstance(wanted, float):
        return found == pytest.approx(wanted, abs=1e-3)
    if isinstance(wanted, dict):
        return all(equal(found[key], value) for key, value in wanted.items())
    return found == wanted


def test_the_expected_readings():
    """EB-51 to EB-53."""
    if not LOGS.is_dir():
        pytest.skip(f"{LOGS} is not there")
    cases = json.loads((LOGS / "expected.json").read_text())
    assert len(cases) > 8
    for name, wanted in cases.items():
        found = read_run(LOGS / name)
        for key in wanted.keys() - {"notes"}:
            assert equal(found[key], wanted[key]), (name, key)


def framework_log(steps=(30.0, 10.0, 12.0), text="Paris is the capital.", more=""):
    lines = ["[Main] Inference time (prefill): 5.00 ms"]
    lines += [f"[Main] Inference time (decode): {ms:.2f} ms" for ms in steps]
    return "".join(HEAD + line + "\n" for line in (*lines, f"Request 0: outputs: {text}\n")) + more


def read_log(binary, *arguments):
    command = [binary, "bench", "--read-log", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_command_writes_the_metadata(tokamak_binary, tmp_path):
    """EB-54; EB-58: devices are the rows of npu-smi's table."""
    (tmp_path / "run.yaml").write_text('model_config:\n  model_name: "tiny"\n  exe_mode: eager\n')
    (tmp_path / "log_0.log").write_text(framework_log())
    smi = tmp_path / "npu-smi"
    rows = "".join(f"| {n} 910B3 | OK |\n| {n}  {n} | 1  |\n" for n in range(2))
    smi.write_text(f"#!/bin/sh\ncat <<'END'\n+----+\n{rows}+----+\n9 lines\nEND\n")
    smi.chmod(0o755)
    flags = ("--read-log", tmp_path, "--yaml", tmp_path / "run.yaml", "-o", tmp_path / "out.json")
    done = subprocess.run(
        [tokamak_binary, "bench", *flags],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    assert "11.000 ms" in done.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["performance"] == {
        "prefill_ms": 5.0,
        "decode_avg_ms": 11.0,
        "output_text": "Paris is the capital.",
    }
    assert found["model_config"]["model_name"] == "tiny"
    assert found["environment"]["num_cards"] == 2
    assert found["environment"]["npu_model"] == "910B3"
    assert found["tokamak"]["kind"] == "measured"


def test_what_makes_a_baseline_not_valid(tokamak_binary, tmp_path):
    log = tmp_path / "log_0.log"
    log.write_text(framework_log(steps=()))
    done = read_log(tokamak_binary, log, "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["decode_avg_ms"] is None
    assert "no time of decode" in done.stderr

    crash = "Traceback (most recent call last):\n  File x\nRuntimeError: broken\n"
    log.write_text(framework_log(more=crash))
    done = read_log(tokamak_binary, log)
    assert done.returncode == 1 and "RuntimeError: broken" in done.stdout

    log.write_text(framework_log())
    done = read_log(tokamak_binary, log, "--ranks", 2)
    assert done.returncode == 1 and "no log of rank 1" in done.stdout

    settings = tmp_path / "run.yaml"
    settings.write_text("exe_mode: eager\n")
    os.utime(log, (0, 0))
    done = read_log(tokamak_binary, log, "--yaml", settings)  # EB-55
    assert done.returncode == 1 and "stale" in done.stderr


def test_bad_input(tokamak_binary, tmp_path):
    for path in (tmp_path / "none", tmp_path):
        done = read_log(tokamak_binary, path)
        assert done.returncode == 2 and "error[TK1210]" in done.stderr
    (tmp_path / "log_0.log").write_text(framework_log())
    assert "error[TK1211]" in read_log(tokamak_binary, tmp_path, "--ranks", 0).stderr
    done = read_log(tokamak_binary, tmp_path, "-o", tmp_path / "no" / "file")
    assert done.returncode == 2 and "error[TK1212]" in done.stderr
    (tmp_path / "log_0.log").write_bytes(os.urandom(5000))
    assert read_log(tokamak_binary, tmp_path).returncode == 1


def test_readable():
    """EB-56."""
    assert is_readable("Paris is the capital of France.")
    assert is_readable("First line.\nSecond line of the answer, with the word the in it. " * 1)
    assert not is_readable("") and not is_readable("  \n")
    assert not is_readable("the cat sat on " * 8)
    assert not is_readable("half of it \ufffd")
    assert not is_readable("\x00\x01 text")
    assert not is_readable("好" * 40) and is_readable(
        "人工智能是一门研究如何使计算机模拟人类思维的学科。"
    )


def test_a_text_may_speak_of_tracebacks(tmp_path):
    log = tmp_path / "log_0.log"
    log.write_text(framework_log(text="It prints\nTraceback (most recent call last):\nand stops."))
    found = read_run(log)
    assert found["all_ranks_success"]
    assert found["output_text"].endswith("and stops.")

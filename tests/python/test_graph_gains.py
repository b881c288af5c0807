"""What capture gains, and which buckets: gains, requests, plan cache, modes."""

import json
import subprocess

import pytest

FAST = ("--prompt", "8", "--context", "8", "--gen", "2", "--reps", "1", "--threads", "1")


def run(binary, *arguments, code=0):
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_gm_63_gains_apart(tokamak_binary, stories):
    done = run(tokamak_binary, "bench", stories, "--gains", *FAST, "--json")
    stages = json.loads(done.stdout)["stages"]
    names = [s["name"] for s in stages]
    assert names == ["op by op", "one launch list", "static shapes", "fused"]
    assert all(s["step_s"] > 0 and s["host_s"] > 0 for s in stages)
    launches = [s["launches"] for s in stages]
    assert launches[0] == launches[1] == launches[2] > launches[3] > 0
    text = run(tokamak_binary, "bench", stories, "--gains", *FAST).stdout
    assert "launch" in text and "static shapes" in text and "fusion" in text


def test_gains_want_the_unfused_graph(tokamak_binary, stories, tmp_path):
    out = tmp_path / "out"
    run(tokamak_binary, "optimize", stories, "-o", out, "-q", "--moves", "move_logit_rows")
    says = run(tokamak_binary, "bench", out, "--gains", code=2).stderr
    assert "error[TK1508]" in says


def test_gm_61_buckets_of_a_trace(tokamak_binary, stories, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt,new\n" + "0,8,6\n" * 3 + "1000,4,3\n")
    command = ("bench", stories, "--requests", trace, "--batch", "4", *FAST)
    found = json.loads(run(tokamak_binary, *command, "--json").stdout)
    assert found["steps"] == 5 + 2  # three together, then one alone
    by_name = {b["name"]: b for b in found["buckets"]}
    assert by_name["one for each batch"]["sizes"] == [1, 3]
    assert by_name["the largest alone"]["sizes"] == [3]
    least = min(b["steps_s"] + b["plans_s"] for b in found["buckets"])
    chosen = by_name["chosen"]
    assert chosen["steps_s"] + chosen["plans_s"] == pytest.approx(least)
    assert "use them: --buckets" in run(tokamak_binary, *command).stdout
    run(tokamak_binary, "bench", stories, *FAST, "--batch", "3", "--buckets", "1,4", "--json")
    trace.write_text("0,8\n")
    assert "error[TK1507]" in run(tokamak_binary, *command, code=2).stderr
    trace.write_text("")
    assert "error[TK1506]" in run(tokamak_binary, *command, code=2).stderr
    bad = run(tokamak_binary, "bench", stories, *FAST, "--buckets", "4,4", code=2).stderr
    assert "error[TK0518]" in bad


def test_gm_38_plans_of_the_command(tokamak_binary, stories, tmp_path):
    folder = tmp_path / "plans"
    command = ("run", stories, "--ids", "1,5", "-n", "4", "--json", "--plan-cache", folder)
    plain = run(tokamak_binary, *command[:-2]).stdout
    for _ in range(2):
        done = run(tokamak_binary, *command)
        assert done.stdout == plain and done.stderr == ""
    (plan,) = folder.iterdir()
    whole = plan.read_bytes()
    plan.write_bytes(whole[: len(whole) // 2])
    done = run(tokamak_binary, *command)
    assert done.stdout == plain and "the plan is made anew: it is cut short" in done.stderr
    assert plan.read_bytes() == whole
    folder.chmod(0o777)
    assert "error[TK1505]" in run(tokamak_binary, *command, code=2).stderr


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_gm_52_modes_and_break_even(tokamak_binary, stories, phase):
    command = ("simulate", stories, "--target", "a3", "--phase", phase, "--modes")
    rows = json.loads(run(tokamak_binary, *command, "--warm-up", "10", "--json").stdout)["modes"]
    eager, *graphs = rows
    assert eager["mode"] == "eager" and "verdict" not in eager
    assert [g["mode"] for g in graphs] == ["npugraph_ex", "ge_graph"]
    for g in graphs:
        assert g["verdict"] == "capture"  # small kernels: the host is slower than the device
        saved = (eager["step_ms"] - g["step_ms"]) / 1e3
        assert (g["break_even_steps"] - 1) * saved < 10 <= g["break_even_steps"] * saved * 1.001
    assert "break-even: give --warm-up" in run(tokamak_binary, *command).stdout


def test_gm_52_a_large_prefill_gains_nothing(tokamak_binary, shared_models):
    model = shared_models / "large" / "llama3-70b.pt2"
    command = ("simulate", model, "--target", "a3", "--tp", "8", "--phase", "prefill", "--modes")
    rows = json.loads(run(tokamak_binary, *command, "--tokens", "8192", "--json").stdout)["modes"]
    assert [r.get("verdict") for r in rows] == [None, "no gain", "no gain"]


@pytest.mark.parametrize("target", ["cpu", "a3"])
def test_gm_50_capture_in_ledger_and_report(tokamak_binary, stories, tmp_path, target):
    out = tmp_path / "out"
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt,new\n" + "".join(f"0,{5 + i % 9},2\n" for i in range(40)))
    command = ("optimize", stories, "-o", out, "-q", "--moves", "capture", "--target", target)
    run(tokamak_binary, *command, "--requests", trace, "--warm-up", "1e-6")
    ledger = json.loads((out / "ledger.json").read_text())
    decode, prefill = [r for r in ledger["rows"] if r["stage"] == "capture"]
    assert (decode["phase"], prefill["phase"]) == ("decode", "prefill")
    assert [a["passed"] for a in decode["acceptance"]] == [True] * 4
    assert decode["numerics"]["local"]["error"]["max_abs"] == 0
    names = [a["name"] for a in decode["alternatives"]]
    if target == "a3":
        assert names == ["eager", "npugraph_ex", "ge_graph"]
        assert decode["decision"] == prefill["decision"] == "kept"
        assert decode["alternatives"][1]["break_even_steps"] == 1
    else:
        assert names == ["operator by operator", "launch list"]
    kept = prefill["decision"] == "kept"
    marker = json.loads((out / "tokamak.json").read_text())
    assert bool(ledger["prefill_buckets"]) == kept
    assert marker["prefill_buckets"] == ledger["prefill_buckets"]
    assert ledger["capture_plan"]["factors"] and not ledger["capture_plan"]["region"]["missing"]
    page = (out / "report.html").read_text()
    assert "Capture plan" in page and "graphs made while serving" in page
    assert "Capture plan" in (out / "report.md").read_text()
    # What was kept runs, padded or not, with the tokens of the model itself.
    ids = ("--ids", "1,5,7", "-n", "6", "--json")
    tokens = [
        json.loads(run(tokamak_binary, "run", model, *ids).stdout)[0]["ids"]
        for model in (out, stories)
    ]
    assert tokens[0] == tokens[1]

"""tokamak simulate: all ranks, Plans as files, moves of a step, buckets, faults on purpose."""

import csv
import json
import subprocess

import pytest
from test_simulate import simulate  # noqa: F401

CONFIG = {
    "hidden_size": 2048,
    "vocab_size": 32000,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 4,
    "intermediate_size": 8192,
    "head_dim": 64,
}
EXPERTS = CONFIG | {"num_experts": 64, "num_experts_per_tok": 4, "moe_intermediate_size": 512}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "dense.json"
    path.write_text(json.dumps(CONFIG))
    return path


@pytest.fixture
def experts(tmp_path):
    path = tmp_path / "experts.json"
    path.write_text(json.dumps(EXPERTS))
    return path


@pytest.fixture
def profile(tokamak_binary):
    def run(*arguments):
        return subprocess.run(
            [str(tokamak_binary), "profile", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


def test_ranks_wait_for_the_late_one(simulate, experts, profile, tmp_path):  # noqa: F811
    """VN-72: waiting apart from transfer, in the summary, communication.json and the page."""
    lengths = "/".join(["1024,1024"] * 3 + ["131072,131072"])
    done = simulate(
        experts, "--ep", 4, "--ranks", "all", "--lengths", lengths, "-o", tmp_path / "o"
    )
    assert "rank 3: the others waited" in done.stdout
    result = json.loads((tmp_path / "o" / "simulation.json").read_text())
    assert result["waiting_share"] > 0.1
    assert [r["came_last"] > 0 for r in result["ranks"]] == [False, False, False, True]
    folders = sorted((tmp_path / "o").glob("rank_*/*_ascend_pt"))
    assert len(folders) == 4
    waits = []
    for folder in folders:
        text = (folder / "ASCEND_PROFILER_OUTPUT" / "communication.json").read_text()
        times = [
            entry["Communication Time Info"]
            for step in json.loads(text).values()
            for entry in step["collective"].values()
        ]
        assert times
        for t in times:
            whole = t["Transit Time(ms)"] + t["Wait Time(ms)"]
            assert whole == pytest.approx(t["Elapse Time(ms)"], rel=1e-6, abs=1e-6)
        waits.append(sum(t["Wait Time(ms)"] for t in times))
    assert max(waits[3], 0.001) < min(waits[:3])
    for rank, told in enumerate(result["ranks"]):
        assert waits[rank] * 1e3 == pytest.approx(told["waiting_us"], rel=1e-3, abs=0.1)
    opened = profile(tmp_path / "o", "--all", "-o", tmp_path / "page")
    assert opened.returncode == 0, opened.stdout + opened.stderr
    assert "rank 3: came last" in opened.stdout
    late = next(line for line in opened.stdout.splitlines() if "rank 3: came last" in line)
    assert "came last 0 times" not in late


def test_symmetric_ranks_take_the_time_of_one(simulate, config, experts):  # noqa: F811
    """VN-72: exactly, in every mode."""
    for model, degrees in ((config, ("--tp", 4)), (experts, ("--tp", 2, "--ep", 8))):
        for mode in ("eager", "npugraph_ex", "ge_graph"):
            options = (model, *degrees, "--batch", 4, "--mode", mode, "--json")
            one = json.loads(simulate(*options).stdout)
            all_ = json.loads(simulate(*options, "--ranks", "all").stdout)
            assert all_["step_ms"] == one["step_ms"]
            assert all_["waiting_share"] == 0


def test_experts_of_each_rank(simulate, shared_models):  # noqa: F811
    """VN-72, VN-73: skewed routing makes the rank of the wanted experts late."""
    model = next(iter(sorted((shared_models / "large").glob("*235b*.pt2"))), None)
    if model is None:
        pytest.skip("no large model of experts")
    options = (model, "--ep", 4, "--batch", 2048, "--kv", 512, "--ranks", "all", "--json")
    even = json.loads(simulate(*options).stdout)
    skewed = json.loads(simulate(*options, "--zipf", 1.2).stdout)
    assert skewed["step_ms"] > even["step_ms"]
    computing = [r["computing_us"] for r in skewed["ranks"]]
    assert computing[0] == max(computing)
    assert computing[0] > computing[3]
    assert skewed["ranks"][0]["came_last"] > 0
    assert skewed["waiting_share"] > even["waiting_share"]


def test_lengths_of_sequences(simulate, config):  # noqa: F811
    """VN-03, VN-27: the core with the longest sequence decides, and the caches' bytes add up."""

    def ms(lengths):
        options = ("--lengths", lengths, "--json", "--target", "a2")
        return json.loads(simulate(config, *options).stdout)["step_ms"]

    even = ms(",".join(["8192"] * 32))
    uneven = ms(",".join(["1024"] * 31 + [str(8192 * 32 - 1024 * 31)]))
    assert uneven > even
    as_one = json.loads(
        simulate(config, "--batch", 32, "--kv", 8192, "--json", "--target", "a2").stdout
    )
    assert even == as_one["step_ms"]


def test_a_plan_that_hangs(simulate, config, tmp_path):  # noqa: F811
    """VN-32, VN-74: exit 1 with the cycle; a Plan is written, changed and read again."""
    plan = tmp_path / "plan.json"
    simulate(config, "--tp", 2, "--ranks", "all", "--write-plan", plan)
    whole = json.loads(simulate("--plan", plan, "--json").stdout)
    assert whole["total_us"] > 0
    assert {launch["rank"] for launch in whole["launches"]} == {0, 1}

    changed = json.loads(plan.read_text())
    (first, second) = [k for k in changed["launches"] if k["stream"] == 0][:2]
    other = next(k for k in changed["launches"] if k["stream"] == 1)
    events = [e for k in changed["launches"] for e in k.get("records", [])]
    spare = max(events) + 1
    second.setdefault("waits", []).append(spare)
    other.setdefault("records", []).append(spare)
    second.setdefault("records", []).append(spare + 1)
    other.setdefault("waits", []).append(spare + 1)
    plan.write_text(json.dumps(changed))
    done = simulate("--plan", plan, code=1)
    assert "error[TK1402]" in done.stderr and first["name"] not in done.stderr
    assert second["name"] in done.stderr and other["name"] in done.stderr

    collectives = [k for k in changed["launches"] if "collective" in k]
    (a, b) = [c["collective"] for c in collectives[:2]]
    changed["collectives"][a]["bytes"] += 1
    assert a != b
    plan.write_text(json.dumps(changed))
    assert "error[TK1403]" in simulate("--plan", plan, code=1).stderr


def test_moves_of_a_step(simulate, config, tmp_path):  # noqa: F811
    """VN-33, VN-60, VN-62: what each of them does to the step, with the guesses behind it."""

    def result(*more):
        return json.loads(simulate(config, "--tp", 2, "--batch", 8, "--json", *more).stdout)

    plain = result()
    assert plain["gains"] == []
    limited = result("--core-limit", "6:12")
    assert limited["step_ms"] > plain["step_ms"]
    for scope in ("attention", "layer", "all", "auto"):
        (gain,) = result("--superkernel", scope)["gains"]
        assert gain["what"] == "superkernel" and gain["before_ms"] == plain["step_ms"]
        assert gain["low"] <= gain["gain"] <= gain["high"]
        # The band of such gains holds "nothing": none is kept before it is measured.
        assert gain["verdict"] in ("loss", "no gain", "pending: measure") and gain["low"] <= 0
    scopes = tmp_path / "scopes.txt"
    scopes.write_text("# one block\nmodel.layers.1.self_attn\n")
    (gain,) = result("--superkernel", scopes)["gains"]
    assert "segments" in gain["detail"]
    with_prefetch = result("--prefetch", "auto")
    (gain,) = with_prefetch["gains"]
    assert gain["what"] == "prefetch"
    assert with_prefetch["prefetches"] == [] and with_prefetch["step_ms"] == plain["step_ms"]
    with_prefetch = result("--prefetch", "on")
    assert with_prefetch["step_ms"] == with_prefetch["gains"][0]["after_ms"]
    both = result("--prefetch", "auto", "--superkernel", "auto")
    assert [g["what"] for g in both["gains"]] == ["prefetch", "superkernel"]
    for name, more in (("a", ()), ("b", ("--core-limit", "6:12"))):
        simulate(config, "--tp", 2, "--batch", 8, "-o", tmp_path / name, *more)
    assert "A is faster" in simulate("--compare", tmp_path / "a", tmp_path / "b").stdout


def test_buckets(simulate, config):  # noqa: F811
    """VN-52: a batch is padded to a bucket; one that misses is captured first, or runs eagerly."""

    def result(batch, *more):
        return json.loads(simulate(config, "--batch", batch, "--json", *more).stdout)

    buckets = ("--buckets", "16,4,32")
    padded = result(9, *buckets)
    assert padded["scene"]["bucket"] == 16 and padded["scene"]["batch"] == 9
    assert result(9)["step_ms"] <= padded["step_ms"] <= result(16)["step_ms"]
    assert result(32, *buckets)["step_ms"] == result(32)["step_ms"]
    missed = result(33, *buckets)
    assert missed["scene"]["bucket_miss"]["then"] == "eager"
    assert missed["step_ms"] == result(33, "--mode", "eager")["step_ms"]
    again = result(33, *buckets, "--on-miss", "recapture", "--warm-up", 12)
    assert again["scene"]["bucket_miss"] == {"then": "recapture", "once_s": 12.0}
    assert again["step_ms"] == result(33)["step_ms"]
    sweep = json.loads(simulate(config, "--sweep", "batch=3..33:30", *buckets, "--json").stdout)
    assert sweep["points"][1]["step_ms"] == missed["step_ms"]
    assert "missed" in simulate(config, "--batch", 33, *buckets).stdout


def test_dynamic_shapes(simulate, config):  # noqa: F811
    """VN-53: between a static graph and eager mode."""

    def ms(*more):
        return json.loads(simulate(config, "--json", *more).stdout)["step_ms"]

    assert ms() < ms("--dynamic") < ms("--mode", "eager")
    modes = json.loads(simulate(config, "--modes", "--dynamic", "--json").stdout)["modes"]
    assert modes[2]["step_ms"] == ms("--dynamic")


def test_faults(simulate, experts, profile, tmp_path):  # noqa: F811
    """VN-140: each is marked in the files, and profile names it or refuses with the reason."""

    def made(fault, *more):
        out = tmp_path / fault
        simulate(experts, "--batch", 4, "-o", out, "--emulate-faults", fault, *more)
        folder = next(iter(sorted(out.rglob("*_ascend_pt"))))
        info = json.loads(next(folder.glob("profiler_info_*.json")).read_text())
        assert f"faults: {fault}" in info["producer"]
        return out, folder

    out, _ = made("cut-trace")
    opened = profile(out, "-o", tmp_path / "p1")
    assert opened.returncode == 2 and "error[TK" in opened.stderr and "cut" in opened.stderr

    out, folder = made("run-failed")
    opened = profile(out, "-o", tmp_path / "p2")
    assert opened.returncode == 2 and "error[TK" in opened.stderr
    checked = profile("--check", out, "--log", folder / "run.log")
    assert checked.returncode == 1 and "run failed" in checked.stdout

    out, folder = made("clock-drop")
    opened = profile("--check", out)
    assert "1 changes of the AI Core frequency" in opened.stdout

    out, folder = made("ai-cpu-stall")
    with (folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").open() as rows:
        stalls = [r for r in csv.DictReader(rows) if r["Accelerator Core"] == "AI_CPU"]
    assert len(stalls) == 1 and float(stalls[0]["Duration(us)"]) > 5000
    opened = profile(out, "-o", tmp_path / "p4")
    assert opened.returncode == 0, opened.stderr
    assert "ai_cpu_kernels" in opened.stdout + opened.stderr

    out, _ = made("missing-rank", "--ep", 4, "--ranks", "all")
    assert len(list(out.rglob("*_ascend_pt"))) == 3
    opened = profile(out, "--all", "-o", tmp_path / "p5")
    assert "no profile of rank 3, of 4" in opened.stdout


def test_mix_blocks(simulate, experts, tmp_path):  # noqa: F811
    """VN-26: a mix has the cores of both sides."""
    simulate(experts, "--batch", 64, "-o", tmp_path / "o")
    (table,) = (tmp_path / "o").rglob("kernel_details.csv")
    with table.open() as rows:
        kernels = list(csv.DictReader(rows))
    mixes = [k for k in kernels if k["Accelerator Core"] == "MIX_AIC"]
    assert mixes
    for k in kernels:
        expected = 2 * int(k["Block Num"]) if k["Accelerator Core"] == "MIX_AIC" else 0
        assert int(k["Mix Block Num"]) == expected, k["Name"]


@pytest.mark.parametrize(
    "code, arguments",
    [
        ("TK1450", ["MODEL", "--lengths", "12,x"]),
        ("TK1450", ["MODEL", "--lengths", "12/12"]),
        ("TK1450", ["MODEL", "--ranks", "all", "--tp", "4", "--lengths", "12/12"]),
        ("TK1450", ["MODEL", "--ranks", "all", "--tp", "2", "--ep", "3"]),
        ("TK1451", ["MODEL", "--core-limit", "8"]),
        ("TK1451", ["MODEL", "--core-limit", "0=8:16", "--mode", "eager"]),
        ("TK1401", ["MODEL", "--core-limit", "99:99"]),
        ("TK1452", ["MODEL", "--superkernel", "everything"]),
        ("TK1453", ["MODEL", "--superkernel", "all", "--mode", "eager"]),
        ("TK1454", ["--plan", "MODEL"]),
        ("TK1455", ["MODEL", "--dynamic", "--mode", "eager"]),
        ("TK1456", ["MODEL", "--ranks", "all", "--tp", "2", "--prefetch", "auto"]),
        ("TK1456", ["MODEL", "--ranks", "all", "--ep", "4", "--zipf", "1"]),
        ("TK1457", ["MODEL", "--buckets", "4,,8"]),
        ("TK1458", ["MODEL", "--emulate-faults", "fire", "-o", "OUT"]),
        ("TK1458", ["MODEL", "--emulate-faults", "cut-trace"]),
        ("TK1458", ["MODEL", "--emulate-faults", "missing-rank", "-o", "OUT"]),
    ],
)
def test_mistakes_of_these(simulate, experts, tmp_path, code, arguments):  # noqa: F811
    names = {"MODEL": experts, "OUT": tmp_path / "out"}
    done = simulate(*[names.get(a, a) for a in arguments], code=2)
    assert f"error[{code}]" in done.stderr

"""tokamak simulate from end to end: a real model, a full-size graph, published cases, mistakes."""

import json
import subprocess

import pytest
from conftest import ROOT

SIZES = {
    "hidden_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "intermediate_size": 1024,
    "vocab_size": 1000,
}


@pytest.fixture(scope="session")
def simulate(tokamak_binary):
    def run(*arguments, code=0):
        done = subprocess.run(
            [str(tokamak_binary), "simulate", *map(str, arguments), "-q"],
            capture_output=True,
            text=True,
            timeout=300,
        )
        shown = f"{arguments}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert done.returncode == code, shown
        assert "internal error" not in done.stderr, shown
        return done

    return run


def test_the_bundled_model_and_its_profile(simulate, stories, tokamak_binary, tmp_path):
    """VN-90, VN-141: the profiler's files of a simulation open like a real profile."""
    done = simulate(stories, "--batch", 4, "--kv", 256, "-o", tmp_path / "sim")
    assert "band" in done.stdout and "what dominates" in done.stdout
    result = json.loads((tmp_path / "sim" / "simulation.json").read_text())
    assert result["kind"] == "simulated" and result["step_ms"] > 0
    assert result["band"]["cases"] > 0
    assert result["band"]["low_ms"] < result["step_ms"] < result["band"]["high_ms"]
    bounds = result["bounds_of_two_steps_ms"]
    assert bounds["busiest"] <= bounds["total"]
    assert result["critical_path_end"]
    (profile,) = (tmp_path / "sim").glob("*_ascend_pt")
    opened = subprocess.run(
        [str(tokamak_binary), "profile", str(profile), "-o", str(tmp_path / "page")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert opened.returncode == 0, opened.stdout + opened.stderr
    page = next((tmp_path / "page").rglob("index.html")).read_text()
    assert "simulated" in page.lower()


def test_modes_and_effects(simulate, stories):
    """VN-50, VN-51: the host decides in eager mode, and without it nothing waits for it."""

    def ms(*more):
        return json.loads(simulate(stories, "--json", *more).stdout)["step_ms"]

    eager = ms("--mode", "eager")
    assert ms("--mode", "ge_graph") < eager / 3
    assert ms("--mode", "eager", "--without", "host") < eager / 3
    assert ms("--mode", "npugraph_ex") >= ms("--mode", "ge_graph")


def test_full_size_without_weights(simulate, shared_models, tmp_path):
    """VN-01: a Graph is lowered by default rules, whole or a rank's part of it."""
    model = shared_models / "large" / "llama3-70b.pt2"
    whole = json.loads(simulate(model, "--batch", 8, "--json").stdout)
    split = json.loads(simulate(model, "--batch", 8, "--tp", 8, "--json").stdout)
    assert 100e9 < whole["memory"]["weight_bytes"] < 160e9
    # Everything but embedding and norms is split.
    assert split["memory"]["weight_bytes"] < whole["memory"]["weight_bytes"] / 6
    assert split["step_ms"] < whole["step_ms"] / 3
    kinds = {k["type"]: k["launches"] for k in split["kernels"]}
    assert kinds["hcom_allReduce_"] == 160  # two a layer
    assert "hcom_allReduce_" not in {k["type"] for k in whole["kernels"]}


def test_sweep_compare_explain(simulate, stories, tmp_path):
    """VN-03, VN-92, VN-93, VN-112: workloads, terms of a kernel, causes of a difference."""
    simulate(stories, "--sweep", "batch=1..9:4", "-o", tmp_path / "sweep")
    points = json.loads((tmp_path / "sweep" / "sweep.json").read_text())["points"]
    assert [p["batch"] for p in points] == [1, 5, 9]
    assert points[2]["tokens_per_s"] > points[0]["tokens_per_s"]
    page = (tmp_path / "sweep" / "sweep.html").read_text()
    assert "<svg" in page and page.count("<circle") == 3 and "http" not in page
    for name, kv in (("a", 128), ("b", 65536)):
        simulate(stories, "--batch", 64, "--kv", kv, "-o", tmp_path / name)
    text = simulate("--compare", tmp_path / "a", tmp_path / "b").stdout
    # Heads of 8 are none that the fused operator takes: the cache is gathered and multiplied.
    assert "BatchMatMulV2" in text and "Index" in text
    assert "pending" in simulate("--compare", tmp_path / "a", tmp_path / "a").stdout
    text = simulate(stories, "--explain", "MatMulV2").stdout
    assert "HBM" in text and "hbm_tb_s" in text
    info = simulate("--device-info", "--target", "a2").stdout
    assert "910b3" in info and "also: " in info


def test_published_cases(simulate, shared_models, tmp_path):
    """VN-110, VN-111, VN-113: bands are what the command makes of the cases now."""
    cases = shared_models.parent / "data" / "published_cases.json"
    result = json.loads(simulate("--cases", cases, "--json", "-o", tmp_path).stdout)
    table = (ROOT / "docs" / "virtual-npu-validation.md").read_text()
    assert table.endswith((tmp_path / "validation.md").read_text())
    committed = json.loads((ROOT / "src" / "npu" / "devices" / "validation.json").read_text())
    assert result == committed
    records = {c["id"] for c in json.loads(cases.read_text())["cases"]}
    answered = [p["id"] for p in result["predictions"] + result["not_expressed"]]
    assert sorted(answered) == sorted(records)
    assert all(p["predicted"] > 0 for p in result["predictions"])
    assert all(n["why"] for n in result["not_expressed"])
    # VN-113: no figure is of constants that have seen its model. The peer's own are in no fit.
    assert all(p["model_in_fit"] or p["kind"] == "peer baseline" for p in result["predictions"])
    assert [b["kind"] for b in result["bands"]] == [b["kind"] for b in result["in_sample_bands"]]


def test_records_that_cannot_be_expressed(simulate, shared_models, tmp_path):
    """VN-05: what is not modelled has a reason of its own; the other records are predicted."""
    source = shared_models.parent / "data" / "published_cases.json"
    base = next(c for c in json.loads(source.read_text())["cases"] if c["id"] == "P120")
    odd = {
        "device": ("device", "family", "950DT"),
        "products": ("quant", "experts", "MXFP4"),
        "cache bits": ("quant", "kv", "INT3"),
        "mode": ("execution", "mode", "by hand"),
        "heads": ("parallel", "attn_tp", 7),
        "batch": ("parallel", "attn_dp", "two"),
        "none": ("parallel", "attn_dp", 0),
        "stages": ("parallel", "pp", 4),
        "config": ("model", None, "nobody_has_it"),
        "metric": ("metric", "formula", "S+"),
        "never": ("metric", "formula", "0*S"),
        "missing": ("phase", None, None),
        "phase": ("phase", ..., "training"),
        "degrees": ("parallel", ..., None),
        "no degrees": ("parallel", None, None),
        "sequences": ("global_batch", ..., None),
        "no sequences": ("global_batch", ..., 0),
        "tokens": ("query_len", ..., None),
        "no tokens": ("query_len", ..., 0),
        "cache": ("kv_len", ..., None),
    }
    cases = [base]
    for name, (group, field, value) in odd.items():
        record = json.loads(json.dumps(base)) | {"id": name, "run": name}
        if value is None and field is None:
            del record[group]
        elif field is None or field is ...:
            record[group] = value
        else:
            record[group][field] = value
        cases.append(record)
    # Unknown fields and absent degrees do no harm.
    more = json.loads(json.dumps(base)) | {"id": "more", "run": "more", "colour": "blue"}
    del more["parallel"]["moe_tp"], more["how_sure"]
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"cases": [*cases, more]}))
    done = simulate("--cases", path, "--configs", source.parent / "model_configs", "--json")
    result = json.loads(done.stdout)
    assert {p["id"] for p in result["predictions"]} == {"P120", "more"}
    why = {n["id"]: n["why"] for n in result["not_expressed"]}
    assert set(why) == set(odd)
    assert why["device"].startswith("TK1423") and "950DT" in why["device"]
    assert "MXFP4" in why["products"]
    assert "nobody_has_it" in why["config"] and "phase" in why["missing"]
    assert "training" in why["phase"] and "kv_len" in why["cache"] and "0" in why["no tokens"]


def test_records_of_one_run_are_priced_by_their_own_fields(simulate, shared_models, tmp_path):
    """VN-110: a run is a name; what a record says decides."""
    source = shared_models.parent / "data" / "published_cases.json"
    base = next(c for c in json.loads(source.read_text())["cases"] if c["id"] == "P120")
    other = json.loads(json.dumps(base)) | {"id": "other", "kv_len": base["kv_len"] + 60000}
    path = tmp_path / "cases.json"

    def steps(*cases):
        path.write_text(json.dumps({"cases": cases}))
        options = ("--configs", source.parent / "model_configs", "--json")
        result = json.loads(simulate("--cases", path, *options).stdout)
        return {p["id"]: (p["step_ms"], p["in_sample"]) for p in result["predictions"]}

    both = steps(base, other)
    assert both == steps(base) | steps(other)
    assert both["other"][0] > both["P120"][0]


def test_a_device_is_a_file(simulate, stories, tmp_path):
    """VN-02, VN-10: a new device is a new file."""
    text = (ROOT / "src" / "npu" / "devices" / "910b3.json").read_text()
    device = json.loads(text)
    path = tmp_path / "fast.json"
    device["numbers"]["hbm_tb_s"]["value"] *= 2
    path.write_text(json.dumps(device))
    options = ("--target", "a2", "--batch", 256, "--kv", 512, "--json")
    slow = json.loads(simulate(stories, *options).stdout)["step_ms"]
    fast = json.loads(simulate(stories, *options, "--device", path).stdout)["step_ms"]
    assert fast < slow
    device["numbers"]["cube_cores"]["value"] = 0
    path.write_text(json.dumps(device))
    assert "TK1412" in simulate(stories, *options, "--device", path, code=2).stderr
    del device["numbers"]["hbm_tb_s"]
    path.write_text(json.dumps(device))
    assert "TK1412" in simulate(stories, *options, "--device", path, code=2).stderr


@pytest.mark.parametrize(
    "code, arguments",
    [
        ("TK1410", []),
        ("TK1411", ["MODEL", "--device", "910b9"]),
        ("TK1411", ["MODEL", "--target", "a3", "--device", "910b2"]),
        ("TK0703", ["MODEL", "--target", "cpu"]),
        ("TK1413", ["MODEL", "--batch", "0"]),
        ("TK1413", ["MODEL", "--batch", "4000000000000"]),
        ("TK1413", ["MODEL", "--tokens", "9000000000000"]),
        ("TK1413", ["MODEL", "--tokens", "0"]),
        ("TK1413", ["MODEL", "--tokens", "-1"]),
        ("TK1413", ["MODEL", "--tp", "0"]),
        ("TK1413", ["SIZES", "--tp", "0"]),
        ("TK1413", ["SIZES", "--tp", "0", "--modes"]),
        ("TK1413", ["SIZES", "--tp", "-2", "--sweep", "batch=1..2"]),
        ("TK1413", ["SIZES", "--ep", "0"]),
        ("TK1413", ["SIZES", "--tokens", "0"]),
        ("TK1414", ["MODEL", "--tp", "3"]),
        ("TK1416", ["CONFIG"]),
        ("TK1417", ["MODEL", "--mode", "aclgraph"]),
        ("TK1418", ["MODEL", "--without", "hbm"]),
        ("TK1419", ["MODEL", "--explain", "Magic"]),
        ("TK1420", ["--compare", "CONFIG", "CONFIG"]),
        ("TK1421", ["--cases", "CONFIG"]),
        ("TK1422", ["MODEL", "--sweep", "batch=8"]),
    ],
)
def test_mistakes(simulate, stories, tmp_path, code, arguments):
    config = tmp_path / "config.json"
    config.write_text("{}")
    sizes = tmp_path / "sizes.json"
    sizes.write_text(json.dumps(SIZES))
    names = {"MODEL": stories, "CONFIG": config, "SIZES": sizes}
    done = simulate(*[names.get(a, a) for a in arguments], code=2)
    assert f"error[{code}]" in done.stderr


def test_a_window_shorter_than_the_prompt(simulate, shared_models):
    """VN-27: late queries of a long prompt see the window, not fewer keys than none."""
    for name in ("gpt-oss", "gemma3-text"):
        model = shared_models / name
        if not model.is_dir():
            pytest.skip(f"needs {model}")
        times = []
        for tokens in (64, 1024, 4096):
            flags = ["--phase", "prefill", "--tokens", tokens, "--target", "a2", "--json"]
            times.append(json.loads(simulate(model, *flags).stdout)["step_ms"])
        assert times == sorted(times) and times[0] > 0


def test_a_capture_and_its_config_agree_on_a_ranks_experts(simulate, shared_models, tmp_path):
    """VN-28, VN-73: with tp alone each rank reads its part of every expert that is picked."""
    model = shared_models / "large" / "qwen3-235b-a22b.pt2"
    sizes = json.loads(model.with_suffix(".json").read_text())["config"]
    config = tmp_path / "config.json"
    config.write_text(json.dumps(sizes))
    text = simulate(model, "--tp", 4, "--explain", "GroupedMatmul_0").stdout
    picked = 8 * 4096 * 2 * 1536 * 2 // 4  # gate and up, bf16
    assert f"HBM {picked} read" in text
    for tp in (1, 4):
        captured = json.loads(simulate(model, "--tp", tp, "--json").stdout)
        priced = json.loads(simulate(config, "--tp", tp, "--json").stdout)
        assert captured["step_ms"] == pytest.approx(priced["step_ms"], rel=0.05)
        assert captured["memory"]["hbm_bytes"] == pytest.approx(
            priced["memory"]["hbm_bytes"], rel=0.05
        )

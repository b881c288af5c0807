"""`tokamak profile --check`: each item fails or warns by its own damage (PF-30 to PF-45)."""

import json
import shutil

import pytest
from test_profile import command, run  # noqa: F401  (a fixture)
from test_profile_structure import Writer, norm

INFO = {
    "config": {
        "common_config": {"schedule": {"active": 4}},
        "experimental_config": {
            "_profiler_level": "Level1",
            "_aic_metrics": "ACL_AICORE_NONE",
        },
    },
    "rank_id": 0,
}


def rank(folder, number=0, steps=4, slow_first=1, layers=3):
    """One rank's folder as the profiler leaves it."""
    w = Writer()
    for step in range(steps):
        w.step = step
        for layer in range(layers):
            norm(w, layer == 0)
            w.add("MatMulV2", "8,64;64,64", ns=5000 * (slow_first if step == 0 else 1))
            w.add("FusedInferAttentionScore", "8,64")
    root = folder / f"rank{number}_ascend_pt"
    root.mkdir(parents=True)
    output = root / "ASCEND_PROFILER_OUTPUT"
    w.write(output)
    text = (output / "kernel_details.csv").read_text().replace(",0,1,2,", ",0.500,1,2,")
    first = text.index(",0.500,")
    (output / "kernel_details.csv").write_text(text[:first] + ",0.000," + text[first + 7 :])
    for name in ("op_statistic.csv", "api_statistic.csv"):
        (output / name).write_text("OP Type,Core Type,Count,Total Time(us)\n")
    (output / "operator_details.csv").write_text("Name\n")
    (output / "trace_view.json").write_text('[{"ph": "M", "name": "process_name", "pid": 1}]')
    (root / f"profiler_info_{number}.json").write_text(json.dumps(INFO | {"rank_id": number}))
    return output


def check(command, folder, *args, code=0):  # noqa: F811
    out = json.loads(run(command, "--check", folder, "--json", *args, code=code).stdout)
    return {i["id"]: i for i in out["items"] if i["status"] != "ok"}, out


def test_a_whole_collection_is_usable(command, tmp_path):  # noqa: F811
    rank(tmp_path)
    bad, out = check(command, tmp_path, "--expect", "steps=4,ranks=1")
    assert not bad and out["verdict"] == "usable" and out["level"] == "Level1"
    assert {i["id"] for i in out["items"]} >= {
        "PF-30",
        "PF-32",
        "PF-33",
        "PF-34",
        "PF-35",
        "PF-36",
        "PF-37",
        "PF-38",
        "PF-42",
        "PF-44",
    }


@pytest.mark.parametrize(
    ("args", "item", "code"),
    [
        (("--expect", "prefill"), "PF-30", 1),
        (("--expect", "ranks=2"), "PF-30", 1),
        (("--expect", "steps=10"), "PF-36", 1),
        (("--latency", "0.001"), "PF-40", 0),
    ],
)
def test_what_was_expected(command, tmp_path, args, item, code):  # noqa: F811
    rank(tmp_path)
    bad, _ = check(command, tmp_path, *args, code=code)
    assert set(bad) == {item}


def test_a_compile_inside_the_window(command, tmp_path):  # noqa: F811  PF-37
    rank(tmp_path, slow_first=100)
    bad, _ = check(command, tmp_path, code=1)
    assert set(bad) == {"PF-37"} and "PF-16" in bad["PF-37"]["do"]


def test_ranks(command, tmp_path):  # noqa: F811  PF-38, PF-39
    rank(tmp_path, 0)
    rank(tmp_path, 1, layers=4)
    bad, out = check(command, tmp_path)
    assert set(bad) == {"PF-38", "PF-39"} and out["ranks"] == ["0", "1"]
    assert "AddRmsNorm 8 / 12" in bad["PF-39"]["found"]


def test_edited_numbers(command, tmp_path):  # noqa: F811  PF-42
    table = rank(tmp_path) / "kernel_details.csv"
    table.write_text(table.read_text().replace(",0.500,", ",0.900,"))
    bad, _ = check(command, tmp_path)
    assert set(bad) == {"PF-42"} and "Wait Time in 35 of 36 rows" in bad["PF-42"]["found"]


def test_a_changing_clock(command, tmp_path):  # noqa: F811  PF-41
    trace = rank(tmp_path) / "trace_view.json"
    meta = {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "AI Core Freq"}}
    events = [
        {
            "ph": "C",
            "name": "AI Core Freq",
            "pid": 9,
            "ts": f"1786102200001{i}00.000",
            "args": {"MHz": mhz},
        }
        for i, mhz in enumerate((1800, 800))
    ]
    trace.write_text(json.dumps([meta, *events]))
    bad, _ = check(command, tmp_path)
    assert set(bad) == {"PF-41"}


def test_an_empty_folder(command, tmp_path):  # noqa: F811  PF-43
    (tmp_path / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    bad, _ = check(command, tmp_path, code=1)
    assert set(bad) == {"PF-43"} and bad["PF-43"]["do"].startswith("in this order: step()")


def test_a_simulated_one_says_so(command, tmp_path):  # noqa: F811  PF-44
    output = rank(tmp_path)
    info = output.parent / "profiler_info_0.json"
    info.write_text(json.dumps(INFO | {"producer": "tokamak simulate a3"}))
    assert check(command, tmp_path)[1]["origin"] == "tokamak simulate a3"


def test_a_database_is_told(command, tmp_path):  # noqa: F811  PF-32
    output = rank(tmp_path)
    (output / "kernel_details.csv").unlink()
    (output / "ascend_pytorch_profiler_0.db").write_bytes(b"SQLite")
    shutil.rmtree(output.parent / "logs", ignore_errors=True)
    bad, _ = check(command, tmp_path, code=1)
    assert "export again as text" in bad["PF-32"]["do"]

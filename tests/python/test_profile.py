"""`tokamak profile` against an independent computation on real profiles.

The judge here is plain Python on the profiler's own text: integers of ns, nothing of Tokamak's.
TOKAMAK_PROFILE names another command, as "build/bin/tokamak profile"; TOKAMAK_CANN_RECIPES a
checkout of hicann/cann-recipes-infer, whose breakdown scripts then judge the component path too.
"""

import csv
import gzip
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

SHARED = Path(os.environ.get("TOKAMAK_SHARED", ROOT.parent / "shared")) / "profiles"
SMALL = ROOT / "tests" / "data" / "profiles" / "decode"
REAL = {
    "paddleocr": "paddleocr-vl-910b2-decode",
    "alexnet-l0": "msinsight-alexnet-ddp/level0/rank0_ascend_pt",
    "alexnet-l1-r0": "msinsight-alexnet-ddp/level1/rank0_ascend_pt",
    "alexnet-l1-r1": "msinsight-alexnet-ddp/level1/rank1_ascend_pt",
    "qwen3-train": "msinsight-qwen3-0.6b-train",
}


@pytest.fixture(scope="session")
def command(request):
    if own := os.environ.get("TOKAMAK_PROFILE"):
        return own.split()
    return [str(request.getfixturevalue("tokamak_binary")), "profile"]


def run(command, *args, code=0):
    done = subprocess.run(
        [*command, *map(str, args)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def profile(name):
    path = SMALL if name == "small" else SHARED / REAL[name]
    if not path.exists():
        pytest.skip(f"{path} is not there (set TOKAMAK_SHARED)")
    return path


# ---- the judge ---------------------------------------------------------------------------------
def ns(text):
    whole, _, part = text.strip().partition(".")
    return int(whole) * 1000 + int((part + "000")[:3])


def text_of(folder, name):
    for path in sorted(Path(folder).rglob(name + "*")):
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    return None


def kernels_of(folder):
    rows = []
    table = csv.DictReader(io.StringIO(text_of(folder, "kernel_details.csv")))
    for number, row in enumerate(table):
        kind = row["Type"] if row["Type"] not in ("", "N/A") else row["Name"]
        rows.append(
            {
                "row": number,
                "step": row.get("Step Id", "-"),
                "start": ns(row["Start Time(us)"]),
                "end": ns(row["Start Time(us)"]) + ns(row["Duration(us)"]),
                "comm": bool(re.search("hcom|hccl", kind + row["Name"], re.I)),
                "wait": row["Wait Time(us)"].strip(),
                "core": row["Accelerator Core"],
            }
        )
    return rows


def union(rows):
    total, end = 0, None
    for a, b in sorted((r["start"], r["end"]) for r in rows):
        if end is None or a > end:
            total, end = total + b - a, b
        elif b > end:
            total, end = total + b - end, b
    return total


# ---- numbers -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [*REAL, "small"])
def test_overview_equals_an_independent_computation(command, tmp_path, name):
    folder = profile(name)
    out = json.loads(run(command, folder, "-o", tmp_path / "run", "--overview", "--json").stdout)
    rows = kernels_of(folder)
    assert out["kernels"] == len(rows)
    for step in out["steps"]:
        mine = [r for r in rows if r["step"] == step["step"] or step["step"] == "-"]
        compute = [r for r in mine if not r["comm"]]
        comm = [r for r in mine if r["comm"]]
        span = max(r["end"] for r in mine) - min(r["start"] for r in mine)
        expected = {
            "kernels": len(mine),
            "kernel_sum_us": sum(r["end"] - r["start"] for r in mine) / 1e3,
            "computing_us": union(compute) / 1e3,
            "communication_us": union(comm) / 1e3,
            "communication_not_overlapped_us": (union(mine) - union(compute)) / 1e3,
            "free_us": (span - union(mine)) / 1e3,
            "stage_us": span / 1e3,
        }
        for key, value in expected.items():
            assert step[key] == pytest.approx(value, abs=1e-3), (step["step"], key)


@pytest.mark.parametrize("name", [n for n in REAL if n != "paddleocr"])
def test_step_trace_time_is_recomputed(command, tmp_path, name):
    out = json.loads(
        run(command, profile(name), "-o", tmp_path / "r", "--overview", "--json").stdout
    )
    assert out["step_trace_check"]
    assert all(c["equal"] for c in out["step_trace_check"]), out["step_trace_check"]


@pytest.mark.parametrize("name", REAL)
def test_wait_time_is_recomputed(command, tmp_path, name):  # PF-42, KD "Wait Time"
    out = json.loads(
        run(command, profile(name), "-o", tmp_path / "r", "--overview", "--json").stdout
    )
    rows = sorted(kernels_of(profile(name)), key=lambda r: (r["start"], r["row"]))
    waits = [max(0, b["start"] - a["end"]) for a, b in itertools.pairwise(rows)]
    assert out["wait_time"]["total_us"] == pytest.approx(sum(waits) / 1e3, abs=1e-3)
    assert out["wait_time"]["differs"] == 0


@pytest.mark.parametrize("name", ["paddleocr", "small"])
def test_components_equal_an_independent_computation(command, tmp_path, name):  # BD-70, BD-71
    folder = profile(name)
    run(command, folder, "-o", tmp_path / "run")
    raw = json.loads((tmp_path / "run" / "raw_ops.json").read_text())["operators"]
    draft = json.loads((tmp_path / "run" / "structure_draft.json").read_text())
    metrics = json.loads(next((tmp_path / "run").rglob("metrics.json")).read_text())
    rows = {r["row"]: r for r in kernels_of(folder)}
    owned = [i for c in draft["components"] for i in c["op_indices"]]
    assert len(owned) == len(set(owned))
    assert sorted(owned + draft["unmatched_op_indices"]) == list(range(len(raw)))
    for section in metrics["sections"]:
        mine = [c for c in draft["components"] if c["type"] == section["component_type"]]
        assert section["instance_count"] == len(mine)
        for i, component in enumerate(mine):
            ops = set(component["op_indices"]) - set(component.get("displaced_op_indices", []))
            part = [rows[raw[op]["org_index"]] for op in ops]
            span = max(r["end"] for r in part) - min(r["start"] for r in part)
            assert section["total"]["per_instance_ms"][i] == pytest.approx(span / 1e6, abs=1e-6)
            bubble = section["sub_items"][-1]
            assert bubble["kind"] == "bubble"
            assert bubble["per_instance_ms"][i] == pytest.approx(
                (span - union(part)) / 1e6, abs=1e-6
            )
            for item in section["sub_items"][:-1]:
                ops = [r["op_idx"] for r in item["op_records"] if r["inst_idx"] == i]
                wall = union([rows[raw[op]["org_index"]] for op in ops])
                assert item["per_instance_ms"][i] == pytest.approx(wall / 1e6, abs=1e-6)


def test_against_the_reference_scripts(command, tmp_path):  # BD-02
    recipes = os.environ.get("TOKAMAK_CANN_RECIPES")
    if not recipes:
        pytest.skip("TOKAMAK_CANN_RECIPES is not set")
    scripts = Path(recipes) / ".agents/skills/model-infer-perf-breakdown/scripts"
    for name in ("paddleocr", "small"):
        out = tmp_path / name
        run(command, profile(name), "-o", out)
        ref = out / "ref"
        ref.mkdir()
        table = ref / "kernel_details.csv"
        table.write_text(text_of(profile(name), "kernel_details.csv"))
        step = json.loads((out / "inputs.json").read_text())["step"]

        def script(file, *args, ref=ref):
            done = subprocess.run(
                [sys.executable, scripts / file, *map(str, args)],
                capture_output=True,
                text=True,
                cwd=ref,
                check=False,
            )
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

        script(
            "analyze_kernels.py",
            "-f",
            table,
            "-s",
            step,
            "-o",
            ref / "raw_ops.json",
            "-d",
            ref / "details.json",
        )
        rules = next(
            out.glob("*_spec.json")
            if not (out / "structure_spec.json")
            else (p for p in out.glob("*_spec.json") if p.name != "structure_spec.json")
        )
        spec = json.loads(rules.read_text())
        script(
            "render.py",
            "-d",
            out / "structure_draft.json",
            "-r",
            ref / "raw_ops.json",
            "-s",
            rules,
            "-o",
            ref / "index.html",
            "--accept-unmatched",
        )
        theirs = json.loads((ref / "metrics.json").read_text())
        ours = json.loads(next((out / "runs").rglob("metrics.json")).read_text())
        assert spec["component_clusters"].keys() == {s["component_type"] for s in ours["sections"]}
        by_type = {s["component_type"]: s for s in theirs["sections"]}
        for section in ours["sections"]:
            other = by_type[section["component_type"]]
            assert section["instances_meta"] == other["instances_meta"]
            for a, b in zip(
                [*section["sub_items"], section["total"]],
                [*other["sub_items"], other["total"]],
                strict=True,
            ):
                # theirs go through doubles of 16 digits: 0.25 us
                assert a["per_instance_ms"] == pytest.approx(b["per_instance_ms"], abs=1e-3), a.get(
                    "name"
                )
                assert a["metric"]["median_ms"] == pytest.approx(
                    b["metric"]["median_ms"], abs=5.1e-4
                )


# ---- structure ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name,layers,rest", [("paddleocr", 18, (4, 0, 10)), ("small", 5, (0, 0, 0))]
)
def test_layers_are_found(command, tmp_path, name, layers, rest):
    run(command, profile(name), "-o", tmp_path / "run")
    draft = json.loads((tmp_path / "run" / "structure_draft.json").read_text())
    assert draft["validation"]["detected_layer_count"] == layers
    assert tuple(len(draft["unowned_ops"][k]) for k in ("pre", "between", "post")) == rest


def test_what_stands_between_passes_is_of_no_block(command, tmp_path):  # BD-33
    rows = list(csv.reader(io.StringIO(text_of(profile("paddleocr"), "kernel_details.csv"))))
    start = rows[0].index("Start Time(us)")
    (tmp_path / "p").mkdir()
    with open(tmp_path / "p" / "kernel_details.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(rows[0])
        for again in range(4):
            for row in rows[1:]:
                at = ns(row[start]) + again * 2_600_000
                out.writerow([*row[:start], f"{at // 1000}.{at % 1000:03d}", *row[start + 1 :]])
    done = run(command, tmp_path / "p", "-o", tmp_path / "run")
    # 4 kernels before the layers of a pass and 10 after them: inputs, head, sampling
    assert "main_4: 18 layers" in done.stdout
    assert "4 before, 42 between, 10 after" in done.stdout


def test_samples_find_the_same_instances(command, tmp_path):  # BD-30..40
    run(command, profile("paddleocr"), "-o", tmp_path / "auto")
    files = (
        "--structure",
        tmp_path / "auto" / "structure_spec.json",
        "--samples",
        tmp_path / "auto" / "sample_ack.json",
    )
    # The first layer also makes the rotary tables: no sample of another layer fits it.
    done = run(command, profile("paddleocr"), "-o", tmp_path / "samples", *files, code=1)
    assert "composition_mismatch" in done.stderr
    accept = ("--accept", "composition_mismatch,unmatched")
    run(command, profile("paddleocr"), "-o", tmp_path / "samples", *files, *accept)
    ours, again = (
        json.loads((tmp_path / w / "structure_draft.json").read_text())["components"]
        for w in ("auto", "samples")
    )
    found = {tuple(c["op_indices"]) for c in again}
    missing = [c["component_id"] for c in ours if tuple(c["op_indices"]) not in found]
    assert missing == ["main.L000.self_attn.0"]
    assert len(again) == 35


def test_splits_hold_every_kernel_once(command, tmp_path):  # BD-120..123
    run(command, profile("small"), "-o", tmp_path / "run")
    splits = tmp_path / "run" / "splits"
    manifest = json.loads((splits / "manifest.json").read_text())
    raw = json.loads((tmp_path / "run" / "raw_ops.json").read_text())["operators"]
    text = text_of(SMALL, "kernel_details.csv").splitlines()
    events = json.loads(text_of(SMALL, "trace_view.json"))
    spans = [(ns(e["ts"]), ns(e["ts"]) + ns(str(e["dur"]))) for e in events if e["ph"] == "X"]
    always = sum(e["ph"] in "MiI" for e in events)
    flows = [ns(e["ts"]) for e in events if e["ph"] in "sf"]
    seen = []
    for target in manifest["targets"]:
        table = (splits / target["folder"] / "kernels.csv").read_text().splitlines()
        assert table[0] == "org_index," + text[0]
        for line in table[1:]:
            row, rest = line.split(",", 1)
            assert rest == text[int(row) + 1]
            seen.append(int(row))
        files = target["files"]
        assert files["trace_source"] == "sliced"
        a, b = map(ns, files["trace_time_range_us"])
        inside = sum(a <= x and y <= b for x, y in spans) + sum(a <= x <= b for x in flows)
        cut = json.loads((splits / target["folder"] / "trace_view.json").read_text())
        assert len(cut) == files["trace_events"] == always + inside, target["folder"]
    assert sorted(seen) == sorted(r["org_index"] for r in raw)
    run(command, profile("small"), "-o", tmp_path / "none", "--no-split")
    assert not (tmp_path / "none" / "splits").exists()


def test_jitter_of_one_step_is_told_from_a_slow_layer(command, tmp_path):  # BD 16.3
    rows = list(csv.reader(io.StringIO(text_of(profile("paddleocr"), "kernel_details.csv"))))
    head, rows = rows[0], rows[1:]
    at = {c: i for i, c in enumerate(head)}
    step, start, duration = at["Step Id"], at["Start Time(us)"], at["Duration(us)"]
    types = [r[at["Type"]] for r in rows]
    once_a_layer = sorted({t for t in types if types.count(t) == 18 and "Attention" not in t})
    always, once = (
        [i for i, t in enumerate(types) if t == kind][7]
        for kind in (next(t for t in types if "Attention" in t), once_a_layer[0])
    )
    (tmp_path / "p").mkdir()
    with (tmp_path / "p" / "kernel_details.csv").open("w", newline="") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(head)
        for n in range(5):
            for i, source in enumerate(rows):
                row = list(source)
                row[step] = str(n)
                at_ns = ns(row[start]) + n * 10**9
                row[start] = f"{at_ns // 1000}.{at_ns % 1000:03}\t"
                if i == always or (i == once and n == 3):
                    row[duration] = "300.000"
                writer.writerow(row)
    accept = ("--accept", "unmatched", "--step", "3")
    run(command, tmp_path / "p", "-o", tmp_path / "run", *accept)
    found = json.loads(next((tmp_path / "run").rglob("operator_jitter.json")).read_text())
    kinds = {x["op_name"]: x["jitter"] for x in found["operator_jitter"]}
    assert kinds[types[always]] == "layer", kinds
    assert kinds[types[once]] == "step", kinds
    assert "5 steps were aligned" in " ".join(found["data_limits"])


def test_no_structure_still_gives_the_overview(command, tmp_path):
    done = run(command, profile("alexnet-l1-r0"), "-o", tmp_path / "run")
    assert "no layers" in done.stdout
    assert next((tmp_path / "run").rglob("index.html")).stat().st_size > 10000


def test_a_training_step_has_no_stage(command, tmp_path):  # BD-03
    run(command, profile("qwen3-train"), "-o", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "inputs.json").read_text())["phase"] == "unknown"


# ---- inputs ------------------------------------------------------------------------------------
def tree_hash(folder):
    digest = hashlib.sha256()
    for path in sorted(Path(folder).rglob("*")):
        digest.update(str(path.relative_to(folder)).encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def test_the_profile_is_never_written(command, tmp_path):  # BD-01
    folder = tmp_path / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    shutil.copytree(SMALL, folder)
    before = tree_hash(tmp_path / "rank0_ascend_pt")
    run(command, tmp_path / "rank0_ascend_pt", "-o", tmp_path / "run", "--split")
    assert tree_hash(tmp_path / "rank0_ascend_pt") == before
    done = run(command, tmp_path / "rank0_ascend_pt", "-o", folder / "run", code=2)
    assert "TK0916" in done.stderr
    assert tree_hash(tmp_path / "rank0_ascend_pt") == before


def test_several_ranks_are_listed(command, tmp_path):  # BD-04
    for rank in (0, 1):
        shutil.copytree(SMALL, tmp_path / "p" / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT")
    done = run(command, tmp_path / "p", "-o", tmp_path / "run", code=2)
    assert "rank 0" in done.stderr and "rank 1" in done.stderr
    run(command, tmp_path / "p", "-o", tmp_path / "run", "--rank", 1)
    run(command, tmp_path / "p", "-o", tmp_path / "all", "--all")
    assert len(list((tmp_path / "all").rglob("metrics.json"))) == 2


def times_last(text):
    rows = list(csv.reader(io.StringIO(text)))
    at = rows[0].index("Duration(us)")
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        [*row[:at], *row[at + 1 :], row[at]] for row in rows
    )
    return out.getvalue()


def column(text, name, change):
    """The table with each cell of a column changed: change(row number, cell)."""
    rows = list(csv.reader(io.StringIO(text)))
    at = rows[0].index(name)
    for i, row in enumerate(rows[1:]):
        row[at] = change(i, row[at])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def swapped(text, a, b):
    """The names of two columns change places, their cells do not."""
    head, rows = text.split("\n", 1)
    return head.replace(a, "?").replace(b, a).replace("?", b) + "\n" + rows


DAMAGE = {
    "cut": lambda t: t[: len(t) * 2 // 3],
    "no start": lambda t: t.replace("Start Time(us)", "Begin"),
    "empty": lambda t: "",
    "foreign": lambda t: "a,b,c\n1,2,3\n",
    "open quote": lambda t: t.replace('"""', '""', 1),
    "binary": lambda t: "\x00\x01\x02" * 100,
    "zeros in the middle": lambda t: t[: len(t) // 2] + "\x00" * 5000 + t[len(t) // 2 :],
    "two tables": lambda t: t + t,
    "rows twice": lambda t: t + t.split("\n", 1)[1],
    "start for duration": lambda t: swapped(t, "Start Time(us)", "Duration(us)"),
    "two days": lambda t: column(
        t, "Start Time(us)", lambda i, c: f"{float(c) + (i % 2) * 2e11:.3f}"
    ),
    "time cut": lambda t: times_last(t)[:-3],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_tables_get_a_message(command, tmp_path, damage):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "kernel_details.csv").write_text(
        DAMAGE[damage]((SMALL / "kernel_details.csv").read_text())
    )
    done = run(command, tmp_path / "p", "-o", tmp_path / "run", code=2)
    assert re.match(r"error\[TK09\d\d\]", done.stderr), done.stderr
    assert not list((tmp_path / "run").rglob("*.json"))


def test_a_kernel_of_another_day_is_left_out(command, tmp_path):
    """One row whose time was lost does not make the step half a century long."""
    text = (profile("paddleocr") / "kernel_details.csv").read_text()
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "kernel_details.csv").write_text(
        column(text, "Start Time(us)", lambda i, c: c if i else "0.000")
    )
    done = run(command, tmp_path / "p", "-o", tmp_path / "run", "--overview")
    assert "1 of 275 kernels last longer than a day or lie more than a day from" in done.stdout
    assert "274 kernels, 2.2" in done.stdout


def test_durations_that_cannot_be_are_told(command, tmp_path):  # PF-42
    text = (profile("paddleocr") / "kernel_details.csv").read_text()
    (tmp_path / "p").mkdir()
    path = tmp_path / "p" / "kernel_details.csv"
    path.write_text(swapped(text, "Duration(us)", "Wait Time(us)"))
    done = run(command, tmp_path / "p", "-o", tmp_path / "run")
    assert "durations_disagree: engine time is longer than the kernel in" in done.stderr
    path.write_text(text)
    assert "durations_disagree" not in run(command, path, "-o", tmp_path / "run2").stderr


ALEXNET = SHARED / "msinsight-alexnet-ddp" / "level1"


def test_a_trace_of_another_rank_is_left_out(command, tmp_path):
    if not ALEXNET.exists():
        pytest.skip(f"{ALEXNET} is not there (set TOKAMAK_SHARED)")
    (tmp_path / "p").mkdir()
    for rank, name in ((0, "kernel_details.csv"), (1, "trace_view.json")):
        (tmp_path / "p" / name).write_text(text_of(ALEXNET / f"rank{rank}_ascend_pt", name))
    done = run(command, tmp_path / "p", "-o", tmp_path / "run")
    assert "trace_view.json is not used: none of its" in done.stdout


TRACE_DAMAGE = {
    "two lists": lambda t: t + t,
    "events twice": lambda t: t.rstrip()[:-1] + "," + t.lstrip()[1:],
    "cut": lambda t: t[: len(t) // 2],
    "closed by a brace": lambda t: t.rstrip()[:-1] + "}",
    "object cut": lambda t: '{"traceEvents": ' + t,
    "zeros": lambda t: t + "\x00" * 100,
}


@pytest.mark.parametrize("damage", TRACE_DAMAGE)
def test_damaged_traces_get_a_message(command, tmp_path, damage):
    if not ALEXNET.exists():
        pytest.skip(f"{ALEXNET} is not there (set TOKAMAK_SHARED)")
    (tmp_path / "p").mkdir()
    text = text_of(ALEXNET / "rank0_ascend_pt", "trace_view.json")
    (tmp_path / "p" / "trace_view.json").write_text(TRACE_DAMAGE[damage](text))
    done = run(command, tmp_path / "p", "-o", tmp_path / "run", code=2)
    assert re.match(r"error\[TK090[89]\]", done.stderr), done.stderr


def test_columns_in_another_order_give_the_same_numbers(command, tmp_path):
    rows = list(csv.reader(io.StringIO((SMALL / "kernel_details.csv").read_text())))
    order = sorted(range(len(rows[0])), key=lambda i: rows[0][i])
    (tmp_path / "p").mkdir()
    with (tmp_path / "p" / "kernel_details.csv").open("w", newline="", encoding="utf-8-sig") as f:
        writer = csv.writer(f, lineterminator="\r\n")
        for n, row in enumerate(rows):
            writer.writerow([row[i] for i in order] + ["more, here" if n else "extra"])
            if n == 3:
                f.write("\r\n")
    a = json.loads(
        run(command, SMALL, "-o", tmp_path / "a", "--label", "x", "--json", "--no-trace").stdout
    )
    b = json.loads(
        run(command, tmp_path / "p", "-o", tmp_path / "b", "--label", "x", "--json").stdout
    )
    assert a["sections"] == b["sections"]


def test_op_summary_names_give_the_same_numbers(command, tmp_path):  # BD-11
    text = (SMALL / "kernel_details.csv").read_text()
    head, body = text.split("\n", 1)
    for ours, theirs in (
        ("Name", "Op Name"),
        ("Type", "OP Type"),
        ("Accelerator Core", "Task Type"),
        ("Start Time(us)", "Task Start Time(us)"),
        ("Duration(us)", "Task Duration(us)"),
        ("Wait Time(us)", "Task Wait Time(us)"),
    ):
        head = re.sub(rf"(^|,){re.escape(ours)}(?=,)", rf"\1{theirs}", head)
    folder = tmp_path / "PROF_000001_20260101_ABC" / "mindstudio_profiler_output"
    folder.mkdir(parents=True)
    (folder / "op_summary_20260101.csv").write_text(head + "\n" + body)
    a = json.loads(
        run(command, SMALL, "-o", tmp_path / "a", "--label", "x", "--json", "--no-trace").stdout
    )
    b = json.loads(
        run(
            command,
            tmp_path / "PROF_000001_20260101_ABC",
            "-o",
            tmp_path / "b",
            "--label",
            "x",
            "--json",
        ).stdout
    )
    assert a["sections"] == b["sections"]


@pytest.mark.parametrize("empty", ["all", "some"])
def test_empty_step_ids(command, tmp_path, empty):  # BD-14
    rows = list(csv.reader(io.StringIO((SMALL / "kernel_details.csv").read_text())))
    step = rows[0].index("Step Id")
    for i, row in enumerate(rows[1:]):
        if empty == "all" or i % 50 == 0:
            row[step] = ""
    (tmp_path / "p").mkdir()
    with open(tmp_path / "p" / "kernel_details.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    done = run(command, tmp_path / "p", "-o", tmp_path / "run", "--overview")
    overview = json.loads(next((tmp_path / "run").rglob("overview.json")).read_text())
    left = sum(1 for row in rows[1:] if empty == "all" or row[step])
    assert sum(s["kernels"] for s in overview["steps"]) == left
    note = "every Step Id is empty" if empty == "all" else "6 of 297 kernels have no Step Id"
    assert note in done.stdout


def test_gzip_and_cut_gzip(command, tmp_path):
    data = gzip.compress((SMALL / "kernel_details.csv").read_bytes())
    (tmp_path / "p").mkdir()
    file = tmp_path / "p" / "kernel_details.csv.gz"
    file.write_bytes(data)
    run(command, tmp_path / "p", "-o", tmp_path / "run")
    file.write_bytes(data[: len(data) // 2])
    assert "TK0902" in run(command, tmp_path / "p", "-o", tmp_path / "run2", code=2).stderr

"""The theory column of `tokamak profile`, against an independent computation (BD-90 to BD-93)."""

import csv
import io
import json

import pytest
from test_profile import SMALL, command, ns, profile, run, text_of, union


def theory_table(folder, path, change=lambda i, row: row):
    """An operator_analysis.csv: 0.8 of what each kernel took; RmsNorm is unsupported."""
    rows = list(csv.DictReader(io.StringIO(text_of(folder, "kernel_details.csv"))))
    extra = ["org_index", "Theoretical Operator Time(us)", "Bound Type", "Supported"]
    with path.open("w", newline="") as f:
        writer = csv.DictWriter(f, [*rows[0], *extra])
        writer.writeheader()
        for i, row in enumerate(rows):
            us = float(row["Duration(us)"]) * 0.8
            row |= {"org_index": i, extra[1]: f"{us:.6f}", "Bound Type": "memory bound"}
            row["Supported"] = "false" if row["Type"] == "RmsNorm" else "true"
            if (row := change(i, row)) is not None:
                writer.writerow(row)


@pytest.mark.parametrize("name", ["paddleocr", "small"])
def test_theory_of_a_table(command, tmp_path, name):  # BD-90, BD-91, BD-93
    table = tmp_path / "operator_analysis.csv"
    theory_table(profile(name), table)
    run(command, profile(name), "-o", tmp_path / "run", "--theory", table)
    details = json.loads((tmp_path / "run" / "raw_ops_details.json").read_text())
    source = details["theoretical_perf_source"]
    assert source["matched_operator_count"] == len(details["operators"])
    assert source["missing_operator_count"] == 0
    raw = json.loads((tmp_path / "run" / "raw_ops.json").read_text())["operators"]
    metrics = json.loads(next((tmp_path / "run").rglob("metrics.json")).read_text())
    assert metrics["theoretical_perf_source"]["kind"] == "operator_analysis_csv"
    for section in metrics["sections"]:
        for item in section["sub_items"]:
            if item["kind"] == "bubble":
                continue
            theory = item["theoretical"]
            for i, got in enumerate(theory["per_instance"]):
                streams = {}
                for r in item["op_records"]:
                    if r["inst_idx"] == i:
                        streams.setdefault(raw[r["op_idx"]]["stream_id"], []).append(
                            raw[r["op_idx"]]
                        )
                if not streams:
                    assert got["effective_theoretical_us"] is None
                    continue
                busy = {
                    s: union(
                        [
                            {
                                "start": ns(str(o["start_time_us"])),
                                "end": ns(str(o["start_time_us"])) + ns(str(o["duration_us"])),
                            }
                            for o in ops
                        ]
                    )
                    for s, ops in streams.items()
                }
                critical = max(busy, key=lambda s: busy[s])
                told = [o for o in streams[critical] if o["normalized_name"] != "RmsNorm"]
                if list(busy.values()).count(busy[critical]) > 1:
                    continue  # a tie: either stream is right
                expected = sum(o["duration_us"] * 0.8 for o in told) if told else None
                assert got["effective_theoretical_us"] == pytest.approx(expected, abs=1e-3)
    stubs = json.loads(next((tmp_path / "run").rglob("theoretical_deviation.json")).read_text())
    assert stubs["sub_item_deviation"]
    off = run(command, profile(name), "-o", tmp_path / "off", "--theory", "off", "--json")
    assert all(s["total"]["theoretical"] is None for s in json.loads(off.stdout)["sections"])


def test_a_table_of_another_profile_is_refused(command, tmp_path):  # BD-90
    table = tmp_path / "operator_analysis.csv"
    theory_table(SMALL, table, lambda i, row: row | {"org_index": max(1, i)})
    done = run(command, SMALL, "-o", tmp_path / "run", "--theory", table, code=2)
    assert "TK0923" in done.stderr and "org_index 1" in done.stderr
    theory_table(SMALL, table, lambda i, row: row if i % 2 else None)
    done = run(command, SMALL, "-o", tmp_path / "run", "--theory", table)
    assert "have no row in operator_analysis.csv" in done.stderr
    table.write_text("a,b\n1,2\n")
    assert "TK0923" in run(command, SMALL, "-o", tmp_path / "r", "--theory", table, code=2).stderr
